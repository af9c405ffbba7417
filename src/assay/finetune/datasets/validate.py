"""Validation of a data file, in one pass with bounded memory.

A problem has a kind; for each kind the number of rows and the first places are reported. Token
counts are estimates of four characters per token, unless a tokenizer is given. The file may
have been written by any program.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic_core import from_json

from assay.errors import UsageError
from assay.finetune.datasets.chat_template import ChatTemplate
from assay.finetune.datasets.formats import read_row_as_written
from assay.finetune.datasets.manifest import read_lineage
from assay.finetune.datasets.message_checks import (
    FIRST_PLACES,
    RowFault,
    RowFinding,
    TokenCounter,
    estimate_tokens,
)
from assay.finetune.datasets.row_checks import RowChecks
from assay.store.parquet import parquet_rows

_MAX_LINE_BYTES: Final = 64 << 20
_BLOCK_BYTES: Final = 1 << 18
"""Bytes read at a time."""


def read_values(path: Path) -> Iterator[tuple[int, Any, str | None]]:
    """Yield each row of a file: line number, value, and the error if it cannot be parsed.

    Raises:
        UsageError: The file does not exist or cannot be read.
    """
    if path.suffix == ".parquet" and path.is_file():
        for number, value in enumerate(parquet_rows(path), start=1):
            yield number, value, None
        return
    for number, line in read_lines(path):
        try:
            yield number, from_json(line, allow_inf_nan=False), None
        except ValueError as error:
            yield number, None, str(error)


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Return the lines of a file with their line ends, numbered from 1.

    Raises:
        UsageError: The file does not exist or cannot be read.
    """
    if not path.is_file():
        raise UsageError(f"{str(path)!r} does not exist; 'assay sft filter' writes such a file")
    return enumerate(chain.from_iterable(_read_blocks(path)), start=1)


def _read_blocks(path: Path) -> Iterator[list[bytes]]:
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                if not block.endswith(b"\n"):
                    block += stream.readline(_MAX_LINE_BYTES)
                yield BytesIO(block).readlines()
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Distribution of row lengths in tokens."""

    total: int
    trained: int
    """Tokens of the trained answers."""
    shortest: int
    median: int
    p95: int
    longest: int
    histogram: tuple[tuple[int, int], ...]
    """Upper bounds, each with the number of rows between the previous bound and this one."""


def compute_lengths(tokens: Sequence[int], trained: int) -> Lengths | None:
    """Compute the distribution of row lengths; None if there are no rows."""
    if not tokens:
        return None
    sizes = np.asarray(tokens, np.int64)
    upper_bound = 1 << max(4, int(sizes.max() - 1).bit_length())
    bounds = [upper_bound >> shift for shift in range(7, -1, -1)]
    bins = np.searchsorted(bounds, sizes)
    counts = np.bincount(bins, minlength=len(bounds))
    quantiles = np.quantile(sizes, [0, 0.5, 0.95, 1], method="inverted_cdf").astype(int)
    return Lengths(
        total=int(sizes.sum()),
        trained=trained,
        shortest=int(quantiles[0]),
        median=int(quantiles[1]),
        p95=int(quantiles[2]),
        longest=int(quantiles[3]),
        histogram=tuple(zip(bounds, map(int, counts), strict=True)),
    )


_MAX_ACTION_SHARE: Final = 0.5
_MAX_RENDERED: Final = 100
"""Number of rows to render with a chat template, which is a thousand times slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """Findings and statistics of a data file."""

    path: Path
    rows: int
    forms: Mapping[str, int]
    """Number of rows by format."""
    findings: tuple[RowFinding, ...]
    """Findings by kind, errors first."""
    lengths: Lengths | None
    """None if no row could be read."""
    tokenizer: str | None
    """Tokenizer that counted; None if tokens are estimates."""
    actions: Mapping[str, int]
    """Number of trained answers by first action."""
    answers: int
    """Number of trained messages."""
    untrained_answers: int
    seconds: float
    checked_against: tuple[int, ...]
    """Held-out seeds that the file was checked for."""
    templated: int = 0
    """Number of rows rendered with a chat template."""

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not any(finding.is_error for finding in self.findings)


def validate_file(
    path: Path,
    *,
    max_tokens: int | None = None,
    holdout_seeds: Sequence[int] = (),
    count: TokenCounter = estimate_tokens,
    tokenizer: str | None = None,
    template: ChatTemplate | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ValidationReport:
    """Validate a data file in any of the supported formats.

    Args:
        path: JSON Lines or Parquet.
        max_tokens: Maximum length of a row; a longer one is an error.
        holdout_seeds: Worlds that must not be in the file, in addition to those in its
            manifest.
        count: Counts the tokens of a text.
        tokenizer: Name of the tokenizer that counts; None for an estimate.
        template: Chat template of a model, to render the first rows with.
        progress: Called with the number of rows done.

    Raises:
        UsageError: The file cannot be read, or has no rows.
    """
    started = time.perf_counter()
    checks = RowChecks(count, max_tokens)
    if path.suffix == ".parquet":
        for number, value, _ in read_values(path):
            checks.check_row(number, value)
    else:
        for number, line in read_lines(path):
            checks.check_line(number, line)
            if not number % 1000:
                progress(number, 0)
    if not checks.rows:
        raise UsageError(f"{str(path)!r} has no rows; create some with 'assay sft filter'")
    _check_duplicates(checks)
    seeds = _check_lineage(checks, path, holdout_seeds)
    _check_action_shares(checks)
    templated = 0 if template is None else _check_rendering(checks, path, template)
    return ValidationReport(
        path=path,
        rows=checks.rows,
        forms=dict(checks.forms),
        findings=checks.findings.list_sorted(),
        lengths=compute_lengths(checks.lengths, checks.trained),
        tokenizer=tokenizer,
        actions=dict(checks.actions.most_common()),
        answers=checks.answers,
        untrained_answers=checks.untrained,
        seconds=time.perf_counter() - started,
        checked_against=seeds,
        templated=templated,
    )


def _check_duplicates(checks: RowChecks) -> None:
    hashes = np.asarray(checks.hashes, np.int64)
    order = np.argsort(hashes, kind="stable")
    duplicates = np.sort(order[1:][hashes[order][1:] == hashes[order][:-1]])
    rest = max(0, len(duplicates) - FIRST_PLACES)
    for index, times in zip(duplicates, (1, 1, 1 + rest), strict=False):
        first = int(np.flatnonzero(hashes == hashes[index])[0])
        description = f"identical to line {first + 1}"
        checks.findings.add(RowFault.DUPLICATE, int(index) + 1, description, times=times)


def _check_lineage(
    checks: RowChecks, path: Path, holdout_seeds: Sequence[int]
) -> tuple[int, ...]:
    """Check the file for held-out worlds and return their seeds."""
    manifest = read_lineage(path)
    if manifest is None:
        return ()
    split = "holdout" if path.stem.endswith(".holdout") else "train"
    rows = manifest.get("files", {}).get(split, {}).get("rows")
    if rows != checks.rows:
        description = f"the manifest has {rows:,} rows, but the file has {checks.rows:,}"
        checks.findings.add(
            RowFault.CHANGED, 0, f"{description}; it was changed after it was written"
        )
    if split == "holdout":
        return ()
    held_out = {*holdout_seeds, *manifest.get("holdout_seeds", ())}
    for task, seed in manifest.get("worlds", {}).get("train", ()):
        if seed in held_out:
            checks.findings.add(RowFault.LEAK, 0, f"{task}, seed {seed}")
    return tuple(sorted(held_out))


def _check_action_shares(checks: RowChecks) -> None:
    trained = sum(checks.actions.values())
    for action, times in checks.actions.most_common(1):
        if action and trained >= 20 and times > _MAX_ACTION_SHARE * trained:
            description = (
                f"{action!r} is the first action in {times / trained:.0%} of the answers"
            )
            description += "; use --balance-actions to limit it"
            checks.findings.add(RowFault.ONE_SIDED, 0, description)


def _check_rendering(checks: RowChecks, path: Path, template: ChatTemplate) -> int:
    """Render the first rows with a chat template; return the number of rows tried."""
    tried = 0
    for line, value, error_text in islice(read_values(path), _MAX_RENDERED):
        try:
            row = read_row_as_written(value)
        except UsageError:
            continue  # reported already
        if error_text is not None or not row.messages:
            continue
        tried += 1
        try:
            rendered = template.render(row)
        except UsageError as error:
            checks.findings.add(RowFault.TEMPLATE, line, str(error))
            continue
        if not rendered.trained and any(map(row.is_trained, range(len(row.messages)))):
            description = "the chat template does not render any part to be trained"
            checks.findings.add(RowFault.NOTHING, line, description)
    return tried

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
from assay.finetune.datasets.formats import written_row
from assay.finetune.datasets.manifest import read_lineage
from assay.finetune.datasets.message_checks import (
    FIRST_PLACES,
    Count,
    RowFault,
    RowFinding,
    estimated,
)
from assay.finetune.datasets.row_checks import RowChecks
from assay.store.parquet import parquet_rows

_MAX_LINE: Final = 64 << 20
_BLOCK: Final = 1 << 18
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
    for number, line in data_lines(path):
        try:
            yield number, from_json(line, allow_inf_nan=False), None
        except ValueError as error:
            yield number, None, str(error)


def data_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Return the lines of a file with their line ends, numbered from 1.

    Raises:
        UsageError: The file does not exist or cannot be read.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}; 'assay sft filter' writes one")
    return enumerate(chain.from_iterable(_blocks(path)), start=1)


def _blocks(path: Path) -> Iterator[list[bytes]]:
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                if not block.endswith(b"\n"):
                    block += stream.readline(_MAX_LINE)
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


def lengths_of(tokens: Sequence[int], trained: int) -> Lengths | None:
    """Compute the distribution of row lengths; None if there are no rows."""
    if not tokens:
        return None
    sizes = np.asarray(tokens, np.int64)
    top = 1 << max(4, int(sizes.max() - 1).bit_length())
    bounds = [top >> shift for shift in range(7, -1, -1)]
    places = np.searchsorted(bounds, sizes)
    counted = np.bincount(places, minlength=len(bounds))
    quantiles = np.quantile(sizes, [0, 0.5, 0.95, 1], method="inverted_cdf").astype(int)
    return Lengths(
        total=int(sizes.sum()),
        trained=trained,
        shortest=int(quantiles[0]),
        median=int(quantiles[1]),
        p95=int(quantiles[2]),
        longest=int(quantiles[3]),
        histogram=tuple(zip(bounds, map(int, counted), strict=True)),
    )


_ONE_SIDED: Final = 0.5
_RENDERED: Final = 100
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
    most_tokens: int | None = None,
    holdout_seeds: Sequence[int] = (),
    count: Count = estimated,
    tokenizer: str | None = None,
    template: ChatTemplate | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ValidationReport:
    """Validate a data file in any of the supported formats.

    Args:
        path: JSON Lines or Parquet.
        most_tokens: Maximum length of a row; a longer one is an error.
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
    checks = RowChecks(count, most_tokens)
    if path.suffix == ".parquet":
        for number, value, _ in read_values(path):
            checks.row(number, value)
    else:
        for number, line in data_lines(path):
            checks.line(number, line)
            if not number % 1000:
                progress(number, 0)
    if not checks.rows:
        raise UsageError(f"{str(path)!r} has no rows; 'assay sft filter' writes some")
    _add_duplicates(checks)
    seeds = _add_lineage(checks, path, holdout_seeds)
    _add_one_sided(checks)
    templated = 0 if template is None else _add_rendered(checks, path, template)
    return ValidationReport(
        path=path,
        rows=checks.rows,
        forms=dict(checks.forms),
        findings=checks.findings.in_order(),
        lengths=lengths_of(checks.lengths, checks.trained),
        tokenizer=tokenizer,
        actions=dict(checks.actions.most_common()),
        answers=checks.answers,
        untrained_answers=checks.untrained,
        seconds=time.perf_counter() - started,
        checked_against=seeds,
        templated=templated,
    )


def _add_duplicates(checks: RowChecks) -> None:
    hashes = np.asarray(checks.hashes, np.int64)
    order = np.argsort(hashes, kind="stable")
    again = np.sort(order[1:][hashes[order][1:] == hashes[order][:-1]])
    rest = max(0, len(again) - FIRST_PLACES)
    for place, times in zip(again, (1, 1, 1 + rest), strict=False):
        first = int(np.flatnonzero(hashes == hashes[place])[0])
        words = f"line {first + 1} is the same"
        checks.findings.add(RowFault.DUPLICATE, int(place) + 1, words, times=times)


def _add_lineage(
    checks: RowChecks, path: Path, holdout_seeds: Sequence[int]
) -> tuple[int, ...]:
    """Check the file for held-out worlds and return their seeds."""
    about = read_lineage(path)
    if about is None:
        return ()
    split = "holdout" if path.stem.endswith(".holdout") else "train"
    rows = about.get("files", {}).get(split, {}).get("rows")
    if rows != checks.rows:
        words = f"the manifest has {rows:,} rows, and the file {checks.rows:,}"
        checks.findings.add(RowFault.CHANGED, 0, f"{words}; it was changed since")
    if split == "holdout":
        return ()
    held = {*holdout_seeds, *about.get("holdout_seeds", ())}
    for task, seed in about.get("worlds", {}).get("train", ()):
        if seed in held:
            checks.findings.add(RowFault.LEAK, 0, f"{task}, seed {seed}")
    return tuple(sorted(held))


def _add_one_sided(checks: RowChecks) -> None:
    trained = sum(checks.actions.values())
    for action, times in checks.actions.most_common(1):
        if action and trained >= 20 and times > _ONE_SIDED * trained:
            words = f"{action!r} comes first in {times / trained:.0%} of the answers"
            words += "; --balance-actions evens them out"
            checks.findings.add(RowFault.ONE_SIDED, 0, words)


def _add_rendered(checks: RowChecks, path: Path, template: ChatTemplate) -> int:
    """Render the first rows with a chat template; return the number of rows tried."""
    tried = 0
    for line, value, wrong in islice(read_values(path), _RENDERED):
        try:
            row = written_row(value)
        except UsageError:
            continue  # reported already
        if wrong is not None or not row.messages:
            continue
        tried += 1
        try:
            rendered = template.render(row)
        except UsageError as error:
            checks.findings.add(RowFault.TEMPLATE, line, str(error))
            continue
        if not rendered.trained and any(map(row.is_trained, range(len(row.messages)))):
            words = "the chat template shows nothing of what is to be trained"
            checks.findings.add(RowFault.NOTHING, line, words)
    return tried

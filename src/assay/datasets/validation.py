"""Checks of a data file, line by line, whatever wrote it.

One pass in bounded memory. A problem has a kind; of each kind the number of rows and the
first places are told. Counts of tokens are estimates, four characters each, unless somebody
who knows better counts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from assay.errors import UsageError

from .chat_template import ChatTemplate
from .data_file import data_lines, read_values
from .findings import FIRST_PLACES, RowFault, RowFinding
from .formats import written_row
from .lengths import Lengths, lengths_of
from .manifest import read_lineage
from .message_checks import Count, estimated
from .row_checks import RowChecks

__all__ = ["ValidationReport", "validate_file"]

_ONE_SIDED: Final = 0.5
_RENDERED: Final = 100
"""So many rows are written with a chat template, which takes a thousand times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """What was found in a file."""

    path: Path
    rows: int
    forms: Mapping[str, int]
    """Rows by their format."""
    findings: tuple[RowFinding, ...]
    """The errors first, each kind once."""
    lengths: Lengths | None
    """None where no row could be read."""
    tokenizer: str | None
    """Who counted; None where tokens are estimates."""
    actions: Mapping[str, int]
    """The first actions that trained answers ask for."""
    answers: int
    """Messages that are trained."""
    untrained_answers: int
    seconds: float
    checked_against: tuple[int, ...]
    """The seeds that were looked for because they are held out."""
    templated: int = 0
    """The rows that were written with a chat template."""

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
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
    """Check a data file of any format that is written here.

    Args:
        path: JSON Lines or Parquet.
        most_tokens: A row that is longer is an error.
        holdout_seeds: Worlds that must not be in it, beside those its manifest names.
        count: Counts the tokens of a text.
        tokenizer: Whose count that is; None for an estimate.
        template: The chat template of a model, which the first rows are written with.
        progress: Told how many rows are done.

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
    """Look for held-out worlds among those of the file; returns what was looked for."""
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
    """Write the first rows with a chat template; returns how many were tried."""
    tried = 0
    for line, value, wrong in islice(read_values(path), _RENDERED):
        try:
            row = written_row(value)
        except UsageError:
            continue  # it was told already
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

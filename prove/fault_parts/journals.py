"""Journals that are truncated, corrupted, reordered or misnamed are never read as valid."""

import random
from collections.abc import Iterator
from pathlib import Path

from assay.errors import JournalError
from assay.store.journal import read_journal, read_session
from assay.store.records import SessionRecord
from tests.store.sessions import make_run, make_session
from tests.store.test_journal import write

from .tried import FaultRow, scaled_range

__all__ = ["attack"]

_FLIPS = 4_000
_MOVES = 500


def attack(folder: Path, chance: random.Random) -> Iterator[FaultRow]:
    """Truncate everywhere, flip bits, and remove, duplicate or swap lines."""
    session = make_session(make_run())
    path = folder / f"{session.header.session_id}.jsonl"
    write(path, session)
    whole = path.read_bytes()
    states = _read_prefixes(path, whole)

    cuts = FaultRow(
        "cut at every byte", note="complete lines are kept, the partial line is dropped"
    )
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        kept_lines = whole.count(b"\n", 0, length)
        cuts.count(_compare_reading(path, states[kept_lines], may_refuse=kept_lines == 0))
    yield cuts

    refused = 0
    flips = FaultRow("a bit flipped")
    for _ in scaled_range(_FLIPS):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        reason = _compare_reading(path, states[-2], may_refuse=True)
        refused += _is_refused(path)
        flips.count(reason)
    flips.note = (
        f"{refused:,} refused, {flips.tries - refused:,} in the last line, which is dropped"
    )
    yield flips

    moves = FaultRow("a line removed, doubled or swapped", note="each is refused and reported")
    lines_of = whole.splitlines(keepends=True)
    for _ in scaled_range(_MOVES):
        lines, at = list(lines_of), chance.randrange(len(lines_of) - 1)
        match chance.randrange(3):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[at])
            case _:
                lines[at], lines[at + 1] = lines[at + 1], lines[at]
        path.write_bytes(b"".join(lines))
        moves.count("" if _is_refused(path) else f"accepted: line {at + 1}")
    yield moves

    names = FaultRow("the journal of another session or run", note="refused and reported")
    path.write_bytes(whole)
    other = path.with_name("other.jsonl")
    other.write_bytes(whole)
    for place, run in ((other, session.header.run_id), (path, "another")):
        try:
            read_session(place, run)
        except JournalError:
            names.count()
        else:
            names.count(f"{place} was accepted for run {run}")
    yield names


def _read_prefixes(path: Path, whole: bytes) -> list[SessionRecord | None]:
    """Return the record read from the first n lines of a journal, by n."""
    states: list[SessionRecord | None] = [None]
    lines = whole.splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:count]))
        states.append(read_journal(path))
    return states


def _is_refused(path: Path) -> bool:
    try:
        read_journal(path)
    except JournalError:
        return True
    return False


def _compare_reading(path: Path, expected: SessionRecord | None, *, may_refuse: bool) -> str:
    try:
        record = read_journal(path)
    except JournalError as error:
        return "" if may_refuse else f"refused: {error}"
    return "" if record == expected else "read as something else"

"""Journals that are cut, flipped, reordered or misnamed: never read as what they are not."""

import random
from collections.abc import Iterator
from pathlib import Path

from assay.errors import JournalError
from assay.store.journal import read_journal, read_session
from assay.store.records import SessionRecord
from tests.store.sessions import make_run, make_session
from tests.store.test_journal import write

from .tried import Tried, times

__all__ = ["attack"]

_FLIPS = 4_000
_MOVES = 500


def attack(folder: Path, chance: random.Random) -> Iterator[Tried]:
    """Every cut, many flipped bits, and lines that were removed, doubled or swapped."""
    session = make_session(make_run())
    path = folder / f"{session.header.session_id}.jsonl"
    write(path, session)
    whole = path.read_bytes()
    states = _states(path, whole)

    cuts = Tried("cut at every byte", note="whole lines are kept, the torn one is dropped")
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        left = whole.count(b"\n", 0, length)
        cuts.count(_compare(path, states[left], may_refuse=left == 0))
    yield cuts

    refused = 0
    flips = Tried("a bit flipped")
    for _ in times(_FLIPS):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        reason = _compare(path, states[-2], may_refuse=True)
        refused += _is_refused(path)
        flips.count(reason)
    flips.note = (
        f"{refused:,} refused, {flips.tries - refused:,} in the last line, which is dropped"
    )
    yield flips

    moves = Tried("a line removed, doubled or swapped", note="each is refused, and named")
    lines_of = whole.splitlines(keepends=True)
    for _ in times(_MOVES):
        lines, at = list(lines_of), chance.randrange(len(lines_of) - 1)
        match chance.randrange(3):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[at])
            case _:
                lines[at], lines[at + 1] = lines[at + 1], lines[at]
        path.write_bytes(b"".join(lines))
        moves.count("" if _is_refused(path) else f"taken in: line {at + 1}")
    yield moves

    names = Tried("the journal of another session or run", note="refused, and named")
    path.write_bytes(whole)
    other = path.with_name("other.jsonl")
    other.write_bytes(whole)
    for place, run in ((other, session.header.run_id), (path, "another")):
        try:
            read_session(place, run)
        except JournalError:
            names.count()
        else:
            names.count(f"{place} was taken in for run {run}")
    yield names


def _states(path: Path, whole: bytes) -> list[SessionRecord | None]:
    """What the first lines of a journal say, by how many they are."""
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


def _compare(path: Path, expected: SessionRecord | None, *, may_refuse: bool) -> str:
    try:
        found = read_journal(path)
    except JournalError as error:
        return "" if may_refuse else f"refused: {error}"
    return "" if found == expected else "read as something else"

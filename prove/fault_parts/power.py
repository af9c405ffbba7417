"""Power cuts: the image of a file system in the middle of a run, mounted anew."""

import random
from collections.abc import Iterator
from pathlib import Path

from tests.runs.tables import calls_at, contents
from tests.runs.test_kills import journaled, start
from tests.runs.test_power_cuts import cut_power

from .tried import Tried, times

__all__ = ["attack"]

_CUTS = 6
_LATEST_S = 4.0


def attack(folder: Path, chance: random.Random) -> Iterator[Tried]:
    """Cut the power at moments that chance picks; resume, and compare with a run in peace."""
    plain = folder / "plain"
    plain.mkdir()
    if start(plain).wait():
        raise RuntimeError("the run in peace failed")
    cuts = Tried("power cut in the middle of a run, then resumed")
    answers = old = lost = 0
    for number in times(_CUTS):
        place = folder / str(number)
        place.mkdir()
        cut, left = cut_power(place, chance.uniform(0.2, _LATEST_S))
        answers, old, lost = answers + cut.answers, old + cut.old, lost + cut.lost
        kept = journaled(left)
        code = start(left).wait()
        if cut.lost_old:
            cuts.count(f"{cut.lost_old} answers that were older than a second")
        elif code or contents(left / "traces.duckdb") != contents(plain / "traces.duckdb"):
            cuts.count(f"exit code {code}, or other tables")
        elif not kept.items() <= calls_at(left / "traces.duckdb").items():
            cuts.count("an answer was asked for again")
        else:
            cuts.count()
    cuts.note = (
        f"of {answers} answers, {old} older than a second, {lost} younger ones were lost"
    )
    yield cuts

"""Power cuts: the image of a file system in the middle of a run, mounted anew."""

import random
from collections.abc import Iterator
from pathlib import Path

from tests.runs.tables import calls_at, contents
from tests.runs.test_kills import journaled, start
from tests.runs.test_power_cuts import cut_power

from .tried import FaultRow, scaled_range

__all__ = ["attack"]

_CUTS = 6
_LATEST_S = 4.0


def attack(folder: Path, chance: random.Random) -> Iterator[FaultRow]:
    """Cut the power at random moments, resume, and compare with an undisturbed run."""
    plain = folder / "plain"
    plain.mkdir()
    if start(plain).wait():
        raise RuntimeError("the undisturbed run failed")
    cuts = FaultRow("power cut in the middle of a run, then resumed")
    answers = old = lost = 0
    for number in scaled_range(_CUTS):
        place = folder / str(number)
        place.mkdir()
        cut, left = cut_power(place, chance.uniform(0.2, _LATEST_S))
        answers, old, lost = answers + cut.answers, old + cut.old, lost + cut.lost
        kept = journaled(left)
        code = start(left).wait()
        if cut.lost_old:
            cuts.count(f"{cut.lost_old} responses older than a second were lost")
        elif code or contents(left / "traces.duckdb") != contents(plain / "traces.duckdb"):
            cuts.count(f"exit code {code}, or the tables differ")
        elif not kept.items() <= calls_at(left / "traces.duckdb").items():
            cuts.count("a recorded call was repeated")
        else:
            cuts.count()
    cuts.note = (
        f"of {answers} responses, {old} older than a second, {lost} newer ones were lost"
    )
    yield cuts

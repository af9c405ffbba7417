"""How long a fresh Python takes to the first world, compiling and afterwards."""

import atexit
import os
import shutil
import tempfile
from functools import cache, partial
from typing import Final

from .measure import QUICK, Row, Topic
from .processes import wall_time

__all__ = ["FIRST", "SECOND"]

_LIMIT: Final = 300
_OURS: Final = ("from assay.crafter import World; World(1)", "ASSAY_CACHE_DIR")
_THEIRS: Final = ("import crafter; crafter.Env(seed=1).reset()", "NUMBA_CACHE_DIR")


def _time_first_start(turn: int, *, code: str, variable: str) -> float:
    del turn
    if QUICK:  # to compile takes as long as all other rows together
        return wall_time(code, {variable: _fill_cache(code, variable)}, _LIMIT)
    with tempfile.TemporaryDirectory(prefix="assay-perf-start-") as folder:
        return wall_time(code, {variable: folder}, _LIMIT)


@cache
def _fill_cache(code: str, variable: str) -> str:
    if QUICK and variable in os.environ:
        return os.environ[variable]  # it is filled already
    folder = tempfile.mkdtemp(prefix="assay-perf-start-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if not QUICK:
        wall_time(code, {variable: folder}, _LIMIT)
    return folder


def _time_second_start(turn: int, *, code: str, variable: str) -> float:
    del turn
    return wall_time(code, {variable: _fill_cache(code, variable)}, _LIMIT)


_AGAINST: Final = "crafter, Env(seed=1).reset()"

FIRST: Final = Topic(
    name="first-start",
    unit="start",
    sides={
        "ours": partial(_time_first_start, code=_OURS[0], variable=_OURS[1]),
        "crafter": partial(_time_first_start, code=_THEIRS[0], variable=_THEIRS[1]),
    },
    rows=(
        Row(
            name="first-start",
            what="first start: World(1), empty cache",
            ours="ours",
            peer="crafter",
            against=_AGAINST,
        ),
    ),
    notes=(
        "Wall time of a fresh Python, from nothing to the first world. First: with an empty "
        "cache of compiled code on both sides; second: with a filled one. Both have numba, "
        "and their bytecode is compiled already.",
    ),
    rounds_at_most=3,
    warmup=False,
)

SECOND: Final = Topic(
    name="second-start",
    unit="start",
    sides={
        "ours": partial(_time_second_start, code=_OURS[0], variable=_OURS[1]),
        "crafter": partial(_time_second_start, code=_THEIRS[0], variable=_THEIRS[1]),
    },
    rows=(
        Row(
            name="second-start",
            what="second start: World(1), warm cache",
            ours="ours",
            peer="crafter",
            against=_AGAINST,
        ),
    ),
    notes=(),
)

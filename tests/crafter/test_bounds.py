"""The engine on bounds-checked arrays: the same source, the same digests, no index astray.

With NUMBA_BOUNDSCHECK=1 an index below zero or beyond the end of its section raises
IndexError, and numba checks its own tables too. The first run compiles that mode (about
half a minute) into the usual cache, where it is kept apart from the ordinary one.

    NUMBA_BOUNDSCHECK=1 python -m tests.crafter.test_bounds

prints what the test compares.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numba
import pytest

from assay.crafter import DIFFICULTIES, Batch, World, warmup
from assay.crafter.engine import jit
from assay.crafter.engine.layout import (
    CAPACITY,
    POSITION,
    SECTIONS,
    STEP,
    X,
    new_blocks,
    section,
    state,
)
from assay.errors import WorldFull
from tests.support import run_python

from .builders import ARROW, PLANT, PLAYER, SKELETON, arrange, crowd, full_health
from .fuzz import fuzz
from .saved import SCALAR, Saved
from .streams import apply_to_ours, assisted, plain

ROOT = Path(__file__).resolve().parents[2]
FUZZ_CASES = 1500
CROWDED = {"zombie_chance": 0.1, "skeleton_chance": 0.6, "cow_chance": 0.05, "start_radius": 2}
TABLES: list[Any] = [*DIFFICULTIES, CROWDED]


def games() -> list[str]:
    """Play with and without help; the digests along the way."""
    digests = []
    for seed in range(20):
        world = World(seed, TABLES[seed % len(TABLES)])
        stream = assisted(seed, 250, deadly=True) if seed % 4 else plain(seed, 300)
        for count, (edit, action) in enumerate(stream):
            world = world if edit is None else apply_to_ours(edit, world)
            result = world.step(action)
            if count % 5 == 0 or result.done:
                digests.append(f"{world.digest():016x}")
                view = world.view()
                shown = (view.materials, view.objects, view.details, world.semantic())
                digests.append(hashlib.sha256(b"".join(a.tobytes() for a in shown)).hexdigest())
            if result.done:
                break
    return digests


def corners() -> list[str]:
    """Walk, look and work where the map ends, and at the last step of the longest game."""
    digests = []
    for x, y in ((0, 0), (63, 0), (0, 63), (63, 63), (0, 30), (63, 30), (30, 0), (30, 63)):
        saved = Saved.read(World(x + y).snapshot())
        saved.materials[max(x - 2, 0) : x + 3, max(y - 2, 0) : y + 3] = 2
        others = [thing for thing in saved.things[1:] if thing[1:3] != [x, y]]
        arrange(saved, [full_health(PLAYER, x, y), *others])
        saved.inventory[:] = 9
        saved.scalars[[SCALAR["step"], SCALAR["length"]]] = 99_960, 100_000
        world = World.restore(saved.write())
        while not world.done:
            world.step((world.steps * 5 + x) % 17)
            world.view()
            digests.append(f"{world.digest():016x}")
    return digests


def crowds() -> list[str]:
    """Tables of things that are full, or nearly."""
    ends = []
    for count in (CAPACITY, CAPACITY - 1, CAPACITY - 30):
        for kind in (PLANT, SKELETON, ARROW):
            saved = crowd(count, kind)
            if kind != PLANT:
                saved.materials[:, 3:] = 4
            world = World.restore(saved.write())
            try:
                while world.steps < 30 and not world.done:
                    world.step((10, 5, 2, 4)[world.steps % 4])
                ends.append(f"{world.digest():016x}")
            except WorldFull:
                ends.append(f"full after {world.steps}")
    return ends


def batches() -> list[str]:
    batch = Batch(range(80), "hard", length=30, auto_reset=True, threads=2)
    for step in range(70):
        batch.step([(step * 3 + i) % 17 for i in range(len(batch))])
    view = batch.view()
    digests = [f"{batch.world(i).digest():016x}" for i in range(len(batch))]
    batch.close()
    return [
        *digests,
        hashlib.sha256(view.materials.tobytes() + view.details.tobytes()).hexdigest(),
    ]


def played() -> dict[str, Any]:
    found = fuzz(1, 0, FUZZ_CASES, None)
    return {
        "games": games(),
        "corners": corners(),
        "crowds": crowds(),
        "batches": batches(),
        "fuzz": dict(sorted(found["ends"].items())),
    }


def is_astray(call: Any, *arguments: Any) -> bool:
    try:
        call(*arguments)
    except IndexError:
        return True
    return False


def caught() -> dict[str, bool]:
    """Return the out-of-bounds accesses that the checked mode detects."""
    block = new_blocks(1)[0]
    address = block.ctypes.data
    seen = {}
    for name, (_, count) in SECTIONS.items():
        names = {"state": state}
        exec(f"def read(address, at): return state(address).{name}[at]", names)
        exec(f"def write(address, at): state(address).{name}[at] = 0", names)
        for how in ("read", "write"):
            kernel = numba.njit(names[how])
            assert not is_astray(kernel, address, 0)
            assert not is_astray(kernel, address, count - 1)
            seen[f"{how} beyond {name}"] = is_astray(kernel, address, count)
            seen[f"{how} before {name}"] = is_astray(kernel, address, -1)

    def step_damaged(name: str, index: int, value: int) -> None:
        world = World(0)
        section(world._block, name)[index] = value
        for action in (1, 2, 3, 4, 5, 10) * 2:
            world.step(action)

    seen["the engine with a player far outside"] = is_astray(step_damaged, "things", X, 500)
    seen["the engine with a player before the map"] = is_astray(step_damaged, "things", X, -9)
    seen["the engine with a generator index of 700"] = is_astray(
        step_damaged, "scalars", POSITION, 700
    )
    seen["the engine beyond the longest game"] = is_astray(
        step_damaged, "scalars", STEP, 300_009
    )
    return seen


@pytest.mark.extras
def test_bounds_checked_engine_gives_equal_results_and_detects_bad_indices() -> None:
    done = run_python(
        "-m", "tests.crafter.test_bounds", folder=ROOT, variables={"NUMBA_BOUNDSCHECK": "1"}
    )
    checked = json.loads(done.output)
    assert (jit.CHECKED, checked["checked"]) == (False, True)
    assert checked["directory"] != str(warmup().directory)

    assert len(checked["caught"]) == 4 * len(SECTIONS) + 4
    assert [what for what, seen in checked["caught"].items() if not seen] == []

    ordinary = played()
    assert len(ordinary["games"]) > 500
    assert any("full" in end for end in ordinary["crowds"])
    assert ordinary["fuzz"]["accepted"] > 0.3 * FUZZ_CASES
    for name, value in ordinary.items():
        assert checked[name] == value, name


if __name__ == "__main__":
    report = warmup()
    facts = {"checked": jit.CHECKED, "directory": str(report.directory), "caught": caught()}
    print(json.dumps(facts | played()))

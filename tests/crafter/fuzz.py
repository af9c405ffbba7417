"""Damage snapshots in many ways, then restore and play them.

Run in a process of its own, so that a crash is seen; one case can be run alone:

    python -m tests.crafter.fuzz SEED FIRST COUNT
"""

import collections
import faulthandler
import json
import os
import struct
import sys
from typing import Any

import numpy as np

from assay.crafter import DIFFICULTIES, StepResult, World
from assay.crafter.engine.layout import CAPACITY, section
from assay.crafter.snapshot import _RANGES
from assay.errors import SnapshotError, WorldFull

from .builders import (
    ARROW,
    CLOCK,
    COW,
    GROUND,
    HEALTH,
    MATERIALS_AT,
    PLANT,
    PLAYER,
    SCALARS_AT,
    SKELETON,
    ZOMBIE,
    Things,
    arrange,
    with_int,
)
from .saved import COUNTS_AT, ORDER_AT, SCALAR, Saved
from .streams import apply_to_ours, assisted


class Pool:
    """Good snapshots of many kinds, and a random source to damage them with."""

    def __init__(self) -> None:
        self.snapshots: list[bytes] = []
        for seed in range(16):
            world = World(seed, list(DIFFICULTIES)[seed % 4], length=600)
            for count, (edit, action) in enumerate(assisted(seed, 30 + 20 * seed)):
                world = world if edit is None else apply_to_ours(edit, world)
                if world.step(action).done:
                    break
                if count in (3, 40):
                    self.snapshots.append(world.snapshot())
            self.snapshots.append(world.snapshot())

    def pick(self, rng: np.random.Generator) -> bytes:
        return self.snapshots[int(rng.integers(len(self.snapshots)))]


EXTREMES = (
    *(0, 1, -1, 2, 9, 10, 63, 64, 255, 256, 624, 625, 1023, 1024, 1025),
    *(2**15 - 1, -(2**15), 2**16 - 1, 2**31 - 1, -(2**31)),
)


def extreme(rng: np.random.Generator) -> int:
    return int(EXTREMES[rng.integers(len(EXTREMES))])


def flipped_bytes(rng: np.random.Generator, pool: Pool) -> bytes:
    """A few bytes are changed, anywhere."""
    data = np.frombuffer(pool.pick(rng), np.uint8).copy()
    where = rng.integers(0, len(data), int(rng.integers(1, 6)))
    data[where] ^= (1 << rng.integers(0, 8, len(where))).astype(np.uint8)
    return data.tobytes()


def extreme_fields(rng: np.random.Generator, pool: Pool) -> bytes:
    """Scalars and fields of things get values at the ends of what fits."""
    data = bytearray(pool.pick(rng))
    for _ in range(int(rng.integers(1, 3))):
        if rng.random() < 0.5:
            at = SCALARS_AT + 4 * int(rng.integers(56))
            struct.pack_into("<i", data, at, extreme(rng))
        else:
            at = ORDER_AT + 2 * int(rng.integers((len(data) - ORDER_AT) // 2))
            struct.pack_into("<h", data, at, max(-32_768, min(32_767, extreme(rng))))
    return bytes(data)


def swapped_blocks(rng: np.random.Generator, pool: Pool) -> bytes:
    """Two runs of bytes change places."""
    data = bytearray(pool.pick(rng))
    size = int(2 ** rng.integers(0, 9))
    a, b = (int(at) for at in rng.integers(16, len(data) - size, 2))
    if rng.random() < 0.5:
        a, b = (int(at) for at in rng.integers(MATERIALS_AT, ORDER_AT - size, 2))
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]
    return bytes(data)


def other_length(rng: np.random.Generator, pool: Pool) -> bytes:
    """The snapshot is truncated or extended, with or without a matching header."""
    data = pool.pick(rng)
    change = int(rng.choice([1, 2, 14, 16, 31, 32, 64, 4096, *rng.integers(0, len(data), 2)]))
    data = data[:-change] if rng.random() < 0.5 else data + rng.bytes(change)
    knows = rng.random() < 0.5 and len(data) > 16
    return with_int(data, 12, len(data)) if knows else data


def spliced(rng: np.random.Generator, pool: Pool) -> bytes:
    """Whole parts come from another world."""
    saved, other = Saved.read(pool.pick(rng)), Saved.read(pool.pick(rng))
    parts = ["parameters", "words", "scalars", "materials", "chunks", "things", "order"]
    chosen = rng.choice(parts, int(rng.integers(1, 4)), replace=False).tolist()
    if rng.random() < 0.6:  # these belong together
        together = {"materials", "chunks", "things", "order"}
        chosen = [*{*chosen, *together}] if together & {*chosen} else chosen
    for part in chosen:
        setattr(saved, part, getattr(other, part))
    return saved.write()


def any_ground(rng: np.random.Generator, saved: Saved) -> None:
    """Random materials."""
    if rng.random() < 0.5:
        kinds = rng.choice(np.arange(1, 13), int(rng.integers(1, 13)), replace=False)
        saved.materials[:] = rng.choice(kinds, (64, 64))
    else:
        left, top = rng.integers(0, 60, 2)
        saved.materials[left : left + 20, top : top + 20] = rng.integers(1, 13)
    if rng.random() < 0.3:  # at an edge of the map
        saved.materials[rng.integers(2) * -1] = rng.integers(1, 13)


def any_things(rng: np.random.Generator, saved: Saved, most: int) -> None:
    """Things of all kinds wherever they can stand, some of them half dead or grown."""
    cells = rng.permutation(4096)[: int(rng.integers(1, most))]
    if rng.random() < 0.3:  # close together, round the player
        cells = rng.permutation(np.add.outer(np.arange(32) * 64, np.arange(32)).ravel())[:most]
    kinds = rng.choice([COW, ZOMBIE, SKELETON, ARROW, PLANT], len(cells))
    if rng.random() < 0.3:
        kinds[:] = rng.integers(COW, PLANT + 1)
    draws = rng.random((len(cells), 3))
    things: Things = []
    for cell, kind, (health, clock, aim) in zip(
        cells.tolist(), kinds.tolist(), draws.tolist(), strict=True
    ):
        x, y = divmod(cell, 64)
        kind = kind if things else PLAYER
        if saved.materials[x, y] not in GROUND[kind]:
            saved.materials[x, y] = GROUND[kind][int(health * len(GROUND[kind]))]
        things.append(
            [
                *(kind, x, y),
                int(health * (HEALTH[kind] + 1)),
                int(clock * (CLOCK[kind] + 1)),
                int(aim * 4) if kind == ARROW else 4,
            ]
        )
    saved.chunks = rng.permutation(36)[: int(rng.integers(0, 37))].tolist()
    arrange(saved, things)


def any_numbers(rng: np.random.Generator, saved: Saved) -> None:
    """Scalars, inventory, difficulty and generator, anywhere in their ranges."""
    for index, (name, low, high) in _RANGES.items():
        fixed = ("number of things", "number of holes", "number of chunks", "news", "status")
        if name not in fixed and rng.random() < 0.3:
            saved.scalars[index] = rng.choice([low, high, int(rng.integers(low, high + 1))])
    saved.inventory[:] = rng.integers(0, 10, 16)
    saved.scalars[COUNTS_AT:] = rng.integers(0, rng.choice([2, 100, 100_000]), 22)
    step, length = (int(n) for n in np.sort(rng.integers(1, 100_001, 2)))
    if rng.random() < 0.5:
        step = length - int(rng.integers(0, min(60, length)))
    saved.scalars[[SCALAR["step"], SCALAR["length"]]] = step, length
    saved.scalars[SCALAR["status"]] = 1 if saved.inventory[0] == 0 else 2 * (step == length)
    if rng.random() < 0.3:
        most = np.array([64, 1, 1, 1, 1, 2, 1, 1, 64, 1, 1, 1, 64, 100, 100, 1, 100])
        at_an_end = rng.random(17) < 0.2
        saved.parameters[:17] = most * np.where(at_an_end, rng.random(17) < 0.5, rng.random(17))
    if rng.random() < 0.2:
        saved.words[:] = rng.choice([1, 0x80000000, 0xFFFFFFFF])
        saved.words[rng.integers(0, 624, 600)] = 0


def odd(rng: np.random.Generator, pool: Pool) -> bytes:
    """A state that no episode reaches, but with every field valid."""
    saved = Saved.read(pool.pick(rng))
    if rng.random() < 0.6:
        any_ground(rng, saved)
        things = [thing for thing in saved.things if thing[0] != ARROW or rng.random() < 0.5]
        for kind, x, y, *_ in things:
            if saved.materials[x, y] not in GROUND[kind]:
                saved.materials[x, y] = rng.choice(GROUND[kind])
        arrange(saved, things)
    if rng.random() < 0.7:
        any_things(rng, saved, CAPACITY + 1 if rng.random() < 0.05 else 120)
    if rng.random() < 0.6:
        any_numbers(rng, saved)
    return saved.write()


def almost_in_order(rng: np.random.Generator, pool: Pool) -> bytes:
    """An odd one with one number changed."""
    data = odd(rng, pool)
    at = int(rng.choice([SCALARS_AT + 4 * rng.integers(56), rng.integers(16, len(data) - 4)]))
    return (
        with_int(data, at, extreme(rng))
        if rng.random() < 0.5
        else data[:at] + b"\7" + data[at + 1 :]
    )


DAMAGES = (
    *(flipped_bytes, extreme_fields, swapped_blocks, other_length, spliced),
    *(odd, odd, odd, odd, almost_in_order),
)


def play_on(rng: np.random.Generator, data: bytes, case: int) -> str:
    """Restore a snapshot, play 50 steps and return the outcome; unexpected errors propagate."""
    try:
        world = World.restore(data)
    except SnapshotError:
        return "refused"
    assert world.snapshot() == data
    for action in rng.choice(17, 50).tolist():
        if world.done:
            break
        try:
            world.step(action)
        except WorldFull:
            return "full"
    world.view()
    world.semantic()
    if case % 16 == 0:
        world.render(int(rng.integers(9, 100)))
    after = world.snapshot()
    again = World.restore(after)  # which checks it
    assert again.snapshot() == after
    # The tallies of grass, paths and creatures per chunk are kept up to date step by step.
    tallies = [
        section(candidate._block, "chunks").reshape(-1, 8)[:, 2:7]
        for candidate in (world, again)
    ]
    assert np.array_equal(tallies[0], tallies[1])
    for action in [] if world.done else rng.choice(17, 5).tolist():
        ends = [outcome(candidate, action) for candidate in (world, again)]
        assert ends[0] == ends[1]
        if isinstance(ends[0], str) or ends[0].done:
            break
    return "accepted"


def outcome(world: World, action: int) -> StepResult | str:
    try:
        return world.step(action)
    except WorldFull:
        return "full"


def fuzz(seed: int, first: int, count: int, progress: int | None) -> dict[str, Any]:
    """Try `count` damaged snapshots; return the number of outcomes by kind."""
    pool = Pool()
    tally: collections.Counter[str] = collections.Counter()
    kinds: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for case in range(first, first + count):
        if progress is not None:
            os.pwrite(progress, struct.pack("<q", case), 0)
        rng = np.random.default_rng([seed, case])
        damage = DAMAGES[case % len(DAMAGES)]
        try:
            end = play_on(rng, damage(rng, pool), case)
        except Exception as error:
            error.add_note(f"case {case} of seed {seed}: {damage.__name__}")
            raise
        tally[end] += 1
        kinds[damage.__name__][end] += 1
    return {"ends": tally, "kinds": kinds}


if __name__ == "__main__":
    faulthandler.enable()
    descriptor = os.environ.get("ASSAY_FUZZ_PROGRESS")
    seed, first, count = (int(argument) for argument in sys.argv[1:])
    print(json.dumps(fuzz(seed, first, count, int(descriptor) if descriptor else None)))

"""Snapshots restore every state exactly, and invalid ones are rejected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.crafter import DIFFICULTIES, World
from assay.crafter.snapshot import _RANGES
from assay.errors import SnapshotError

from .builders import COW, GRASS, PLANT, PLAYER, SCALARS_AT, arrange, full_health, with_int
from .saved import COUNTS_AT, INVENTORY_AT, SCALAR, THINGS_AT, Saved, chunk_of
from .streams import apply_to_ours, assisted


def sample() -> Saved:
    """A world in the middle of a game, with one thing of each kind."""
    world = World(3, length=500)
    for action in (1, 2, 3, 4, 5, 0, 7):
        world.step(action)
    saved = Saved.read(world.snapshot())
    saved.materials[10:30:4, 10] = GRASS
    saved.materials[0, 0] = 1
    saved.materials[1, 0] = 3
    others = zip(range(COW, PLANT + 1), range(10, 30, 4), strict=True)
    return arrange(saved, [saved.things[0], *(full_health(kind, x, 10) for kind, x in others)])


def refusal(data: Any) -> str:
    with pytest.raises(SnapshotError) as caught:
        World.restore(data)
    return str(caught.value)


def test_sample_snapshot_is_valid_and_complete() -> None:
    saved = sample()
    assert [thing[0] for thing in saved.things] == [1, 2, 3, 4, 5, 6]
    assert len({chunk_of(*thing[1:3]) for thing in saved.things}) > 2
    assert World.restore(saved.write()).snapshot() == saved.write()


def facts(world: World) -> Any:
    words, position = world.rng_state()
    return (
        (world.seed, world.difficulty, world.length, world.steps, world.done, world.ended),
        (world.inventory, world.achievements, world.player_pos, world.facing, world.sleeping),
        (world.daylight, world.semantic().tobytes(), words.tobytes(), position),
    )


def test_every_state_of_an_episode_is_restored_exactly() -> None:
    states = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        world = World(seed, list(DIFFICULTIES)[seed % 4], length=int(rng.integers(100, 400)))
        for edit, action in assisted(seed, 150, deadly=seed % 2 == 0):
            if edit is not None:
                world = apply_to_ours(edit, world)
            if rng.random() < 0.2:
                data = world.snapshot()
                assert Saved.read(data).write() == data
                again = World.restore(data)
                assert again.snapshot() == data
                assert again.digest() == world.digest()
                assert facts(again) == facts(world)
                actions = rng.integers(0, 17, 30).tolist()
                original, states = world.fork(), states + 1
                for future in actions:
                    if original.done:
                        break
                    assert again.step(future) == original.step(future)
                    assert again.digest() == original.digest()
            if world.step(action).done:
                assert World.restore(world.snapshot()).ended == world.ended
                break
    assert states > 300


def test_memoryview_is_accepted_as_snapshot() -> None:
    data = World(1).snapshot()
    spread = bytearray(2 * len(data))
    spread[::2] = data
    wide = memoryview(data).cast("I")
    for same in (bytearray(data), memoryview(data), memoryview(spread)[::2], wide):
        assert World.restore(same).snapshot() == data  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [None, 1, "text", [], np.zeros(9000, np.uint8), Path("world")],
    ids=lambda value: type(value).__name__,
)
def test_snapshot_must_be_bytes(value: Any) -> None:
    assert f"is bytes, not {type(value).__name__}" in refusal(value)


def with_scalar(data: bytes, name: str, value: int) -> bytes:
    return with_int(data, SCALARS_AT + 4 * SCALAR[name], value)


SIZE = 7232
"""How long the sample is, in bytes."""
BYTES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda good: b"", "0 bytes is too short"),
    "short": (lambda good: good[:THINGS_AT], f"{THINGS_AT} bytes is too short"),
    "truncated by a byte": (
        lambda good: good[:-1],
        f"says {SIZE} bytes, but it has {SIZE - 1}",
    ),
    "truncated by a block": (
        lambda good: good[:-32],
        f"says {SIZE} bytes, but it has {SIZE - 32}",
    ),
    "truncated, and it knows": (
        lambda good: with_int(good, 12, SIZE - 32)[:-32],
        f"{SIZE - 32} bytes do not fit 6 things",
    ),
    "longer by a byte": (
        lambda good: good + b"\0",
        f"says {SIZE} bytes, but it has {SIZE + 1}",
    ),
    "longer, and it knows": (
        lambda good: with_int(good + bytes(32), 12, SIZE + 32),
        f"{SIZE + 32} bytes do not fit 6 things",
    ),
    "far too long": (lambda good: good + bytes(20_000), "too long"),
    "another magic": (lambda good: b"ASSAYCRG" + good[8:], "does not start as one"),
    "a zip file": (lambda good: b"PK\3\4" + bytes(9_000), "does not start as one"),
    "version 0": (lambda good: with_int(good, 8, 0), "version 0; this assay reads version 1"),
    "version 2": (lambda good: with_int(good, 8, 2), "version 2; this assay reads version 1"),
    "a version with a high half": (lambda good: with_int(good, 10, 1, "<H"), "version 65537;"),
    "another length": (lambda good: with_int(good, 12, 0), f"says 0 bytes, but it has {SIZE}"),
    "a negative length": (lambda good: with_int(good, 12, -1), "says -1 bytes"),
    "something in the padding": (lambda good: good[:-1] + b"\1", "data after its end"),
    "more things than there are": (lambda good: with_scalar(good, "things", 7), "unknown kind"),
    "fewer things than there are": (
        lambda good: with_scalar(good, "things", 3),
        f"{SIZE} bytes do not fit 3 things",
    ),
    "fewer chunks than there are": (
        lambda good: with_scalar(good, "chunks", 1),
        "a chunk beyond those in use",
    ),
    "more chunks than there are": (
        lambda good: with_scalar(good, "chunks", 36),
        "an unknown chunk",
    ),
}


@pytest.mark.parametrize("case", BYTES)
def test_damaged_snapshot_is_rejected(case: str) -> None:
    damage, message = BYTES[case]
    good = sample().write()
    assert len(good) == SIZE
    found = refusal(damage(good))
    assert message in found
    assert found.startswith("not a valid saved world: ")


BEYOND = [
    (index, name, value)
    for index, (name, low, high) in _RANGES.items()
    for value in sorted({low - 1, high + 1, -(2**31), 2**31 - 1})
    if not low <= value <= high and -(2**31) <= value < 2**31
]


@pytest.mark.parametrize(("index", "name", "value"), BEYOND)
def test_out_of_range_number_is_named_in_the_error(index: int, name: str, value: int) -> None:
    found = refusal(with_int(sample().write(), SCALARS_AT + 4 * index, value))
    assert found == f"not a valid saved world: {name} {value}"


def test_every_scalar_has_a_range() -> None:
    assert sorted(_RANGES) == list(range(INVENTORY_AT))
    assert len(_RANGES) == len(SCALAR)


def put(field: str, **values: int) -> Callable[[Saved], None]:
    """Changes fields of one thing of the sample, by the name of its kind."""
    row = ("player", "cow", "zombie", "skeleton", "arrow", "plant").index(field)
    columns = ("kind", "x", "y", "health", "clock", "aim")

    def change(saved: Saved) -> None:
        for name, value in values.items():
            saved.things[row][columns.index(name)] = value

    return change


def ground(material: int, field: str) -> Callable[[Saved], None]:
    def change(saved: Saved) -> None:
        for kind, x, y, *_ in saved.things:
            if kind == 1 + ("player", "cow", "zombie", "skeleton", "arrow", "plant").index(
                field
            ):
                saved.materials[x, y] = material

    return change


def scalars(**values: int) -> Callable[[Saved], None]:
    def change(saved: Saved) -> None:
        for name, value in values.items():
            saved.scalars[SCALAR[name]] = value

    return change


def number(section: str, index: Any, value: float) -> Callable[[Saved], None]:
    def change(saved: Saved) -> None:
        getattr(saved, section)[index] = value

    return change


def both(*changes: Callable[[Saved], None]) -> Callable[[Saved], None]:
    def change(saved: Saved) -> None:
        for apply in changes:
            apply(saved)

    return change


def alter(what: str, function: Callable[[list[Any]], list[Any]]) -> Callable[[Saved], None]:
    def change(saved: Saved) -> None:
        setattr(saved, what, function(getattr(saved, what)))

    return change


def swapped(values: list[Any], a: int, b: int) -> list[Any]:
    values[a], values[b] = values[b], values[a]
    return values


ODD_HEALTH = [
    ("player", 1),
    ("cow", 4),
    ("zombie", 6),
    ("skeleton", 4),
    ("arrow", 1),
    ("plant", 2),
]
ODD_CLOCK = [
    ("player", 1),
    ("cow", 1),
    ("zombie", 6),
    ("skeleton", 5),
    ("arrow", 1),
    ("plant", 32_001),
]
ODD_GROUND = [
    *[("player", material) for material in (1, 3, 6, 8, 11, 12)],
    *[("cow", material) for material in (1, 3, 6, 7, 9)],
    *[("zombie", material) for material in (1, 7, 10)],
    *[("skeleton", material) for material in (1, 7)],
    *[("arrow", material) for material in (3, 6, 11)],
    *[("plant", material) for material in (4, 5, 7, 1)],
]
CHANGES: dict[str, tuple[Callable[[Saved], None], str]] = {
    **{
        f"material {m}": (number("materials", (40, 40), m), "an unknown material")
        for m in (0, 13, 255)
    },
    **{
        f"a cow at {x}, {y}": (put("cow", x=x, y=y), "outside the world")
        for x, y in ((64, 3), (3, 64), (-1, 3), (3, -1), (32_767, 0), (0, -32_768))
    },
    "the player outside": (put("player", x=-1), "outside the world"),
    "two on a cell": (put("cow", x=14, y=10), "two things on one cell"),
    **{f"kind {k}": (put("cow", kind=k), "unknown kind") for k in (-1, 0, 7, 32_767, -32_768)},
    "no player": (put("player", kind=COW, health=1), "not one player"),
    "two players": (put("arrow", kind=PLAYER, aim=4), "not one player"),
    "a player that is not first": (
        alter("things", lambda t: swapped(t, 0, 1)),
        "not one player",
    ),
    **{f"health {n} of a {k}": (put(k, health=n), "wrong health") for k, n in ODD_HEALTH},
    **{f"health -1 of a {k}": (put(k, health=-1), "wrong health") for k, _ in ODD_HEALTH},
    **{f"clock {n} of a {k}": (put(k, clock=n), "wrong clock") for k, n in ODD_CLOCK},
    **{f"clock -1 of a {k}": (put(k, clock=-1), "wrong clock") for k, _ in ODD_CLOCK},
    **{
        f"an arrow aimed {a}": (put("arrow", aim=a), "wrong direction") for a in (-1, 4, 5, 999)
    },
    **{f"a cow aimed {a}": (put("cow", aim=a), "wrong direction") for a in (0, 3, -1, 5)},
    **{
        f"a {k} on material {m}": (ground(m, k), "material it cannot be on")
        for k, m in ODD_GROUND
    },
    "a thing twice in the order": (alter("order", lambda o: [o[0], *o[:-1]]), "out of order"),
    "a thing beyond the last": (alter("order", lambda o: [len(o), *o[1:]]), "out of order"),
    "a negative thing": (alter("order", lambda o: [-1, *o[1:]]), "out of order"),
    "things of chunks mixed": (
        alter("order", lambda o: o[::-1]),
        "not in the order of their chunks",
    ),
    "a chunk twice": (alter("chunks", lambda c: [*c, c[0]]), "a chunk opened twice"),
    "chunk 36": (alter("chunks", lambda c: [*c, 36]), "an unknown chunk"),
    "chunk 255": (alter("chunks", lambda c: [*c, 255]), "an unknown chunk"),
    "a chunk that was not opened": (alter("chunks", lambda c: c[1:]), "never opened"),
    "no chunks": (alter("chunks", lambda c: []), "number of chunks 0"),
    "an empty generator": (number("words", slice(None), 0), "the random generator is empty"),
    **{
        f"start_radius {value}": (number("parameters", 0, value), f"start_radius = {value}")
        for value in (float("nan"), float("inf"), -float("inf"), -1.0, 64.5, 1e308)
    },
    "a chance of 1.5": (number("parameters", 1, 1.5), "tree_chance = 1.5"),
    "a last parameter of -1": (number("parameters", 16, -1), "skeletons_at_most = -1"),
    "a number too many": (number("parameters", 17, 1), "a number in an unused field"),
    "a number at the end": (number("parameters", 31, -0.0), "a number in an unused field"),
    "NaN where none belongs": (number("parameters", 20, float("nan")), "in an unused field"),
    **{
        f"{value} of item {item}": (number("inventory", item, value), "an inventory of")
        for item in (0, 4, 15)
        for value in (-1, 10, 2**31 - 1)
    },
    **{
        f"achievement {which} {value} times": (
            number("scalars", COUNTS_AT + which, value),
            "achievements reached",
        )
        for which in (0, 21)
        for value in (-1, 2**31 - 1, -(2**31))
    },
    "alive without health": (number("inventory", 0, 0), "contradicts its health"),
    "dead in good health": (scalars(status=1), "contradicts its health"),
    "late and running": (scalars(step=500), "contradicts its health"),
    "over too early": (scalars(status=2), "contradicts its health"),
    "late and dead in good health": (scalars(step=500, status=1), "contradicts its health"),
    "dead, and over by length": (
        both(number("inventory", 0, 0), scalars(step=500, status=2)),
        "contradicts its health",
    ),
    "later than its length": (scalars(step=501), "more steps than its length"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_impossible_state_is_rejected(case: str) -> None:
    change, message = CHANGES[case]
    saved = sample()
    change(saved)
    found = refusal(saved.write())
    assert message in found
    assert found.startswith("not a valid saved world: ")

"""Validation of saved worlds before compiled code reads them.

The format is described in `engine.packing`. Input bytes may be anything: data that passes
`validate` is a world the engine can step without reading or writing out of bounds.
"""

import dataclasses
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.crafter.difficulty import Difficulty
from assay.crafter.engine.grid import ARROW, FLY, PLAYER, PLAYER_WALK, STAY, WALK, material_mask
from assay.crafter.engine.layout import (
    CAPACITY,
    CHUNKS,
    CHUNKS_ACROSS,
    COUNTS,
    DIED,
    EPISODE,
    FACING,
    FATIGUE,
    FELT_HEALTH,
    HOLES,
    HUNGER,
    INVENTORY,
    LENGTH,
    NEW,
    OPENED,
    PAID_HEALTH,
    POSITION,
    RECOVER,
    RUNNING,
    SEED,
    SLEEPING,
    STATUS,
    STEP,
    THIRST,
    TIME_UP,
    USED,
)
from assay.crafter.engine.numerics import MAX_LENGTH
from assay.crafter.engine.packing import (
    MAGIC,
    MATERIALS_AT,
    MAX_SNAPSHOT,
    ORDER_AT,
    ORDER_ROOM,
    PARAMETERS_AT,
    PER_THING,
    SCALARS_AT,
    SNAPSHOT_VERSION,
    THING_FIELDS,
    THINGS_AT,
    UNUSED,
    WORDS_AT,
)
from assay.crafter.rules import (
    ACHIEVEMENTS,
    AREA,
    CHUNK,
    ITEMS,
    MATERIALS,
    MAX_ITEM,
    RECOVER_AFTER,
    REST_AFTER,
    SUFFER_AFTER,
    WEAR,
)
from assay.errors import SnapshotError, UsageError

# Allowed range of each scalar; the inventory and achievement counts are checked below.
_RANGES: Final = {
    SEED: ("seed", 0, 2**31 - 1),
    EPISODE: ("episode", 1, 2**31 - 1),
    STEP: ("step", 0, MAX_LENGTH),
    LENGTH: ("length", 1, MAX_LENGTH),
    STATUS: ("status", RUNNING, TIME_UP),
    FACING: ("facing", 0, 3),
    SLEEPING: ("sleeping", 0, 1),
    HUNGER: ("hunger", 0, 2 * WEAR["food"]),
    THIRST: ("thirst", 0, 2 * WEAR["drink"]),
    FATIGUE: ("fatigue", -REST_AFTER, WEAR["energy"]),
    RECOVER: ("recovery", -2 * SUFFER_AFTER, 2 * RECOVER_AFTER),
    FELT_HEALTH: ("felt health", 0, MAX_ITEM),
    PAID_HEALTH: ("paid health", 0, MAX_ITEM),
    POSITION: ("generator index", 0, 624),
    USED: ("number of things", 1, CAPACITY),
    HOLES: ("number of holes", 0, 0),
    OPENED: ("number of chunks", 1, CHUNKS),
    NEW: ("news", 0, 0),
}

# Per kind of thing: maximum health, maximum clock, materials it may be on.
_LIMITS: Final = {
    "player": (0, 0, PLAYER_WALK),
    "cow": (3, 0, WALK),
    "zombie": (5, 5, WALK),
    "skeleton": (3, 4, WALK),
    "arrow": (0, 0, FLY),
    "plant": (1, 32_000, material_mask("grass")),
}
_LIMIT_ROWS: Final = np.array([(0, 0, 0), *_LIMITS.values()])


def _require(condition: Any, what: str) -> None:
    if not condition:
        raise SnapshotError(f"not a valid saved world: {what}")


def validate(data: bytes) -> tuple[NDArray[np.uint8], Difficulty]:
    """Return the input for `unpack` and the difficulty; raise SnapshotError if invalid."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise SnapshotError(f"a saved world is bytes, not {type(data).__name__}")
    data = bytes(data)  # copies views with gaps, or with items wider than a byte
    raw = np.zeros(MAX_SNAPSHOT, np.uint8)
    size = len(data)
    _require(THINGS_AT < size <= MAX_SNAPSHOT, f"{size} bytes is too short or too long")
    raw[:size] = np.frombuffer(data, np.uint8)
    _require(raw[:8].tobytes() == MAGIC, "it does not start as one")
    version, length = raw[8:16].view(np.int32).tolist()
    _require(
        version == SNAPSHOT_VERSION,
        f"format version {version}; this assay reads version {SNAPSHOT_VERSION}",
    )
    _require(length == size, f"its header says {length} bytes, but it has {size}")
    scalars = raw[SCALARS_AT:MATERIALS_AT].view(np.int32)
    _check_scalars(scalars)
    count = int(scalars[USED])
    end = THINGS_AT + PER_THING * count
    _require(-(-end // 32) * 32 == size, f"{size} bytes do not fit {count} things")
    _require(not raw[end:size].any(), "data after its end")
    difficulty = _parse_difficulty(raw[PARAMETERS_AT:WORDS_AT].tobytes())
    _require(raw[WORDS_AT:SCALARS_AT].any(), "the random generator is empty")
    materials = raw[MATERIALS_AT:ORDER_AT]
    _require(materials.min() >= 1 and materials.max() < len(MATERIALS), "an unknown material")
    middle = THINGS_AT + 2 * THING_FIELDS * count
    things = raw[THINGS_AT:middle].view(np.int16).reshape(count, THING_FIELDS)
    _check_things(things.astype(np.int64), materials.reshape(AREA, AREA))
    opened = int(scalars[OPENED])
    chunks = raw[ORDER_AT : ORDER_AT + ORDER_ROOM].astype(np.int64)
    _require((chunks[opened:] == UNUSED).all(), "a chunk beyond those in use")
    _check_order(things, chunks[:opened], raw[middle:end].view(np.int16))
    return raw, difficulty


def _check_scalars(scalars: NDArray[np.int32]) -> None:
    values = scalars.tolist()
    for index, (name, low, high) in _RANGES.items():
        _require(low <= values[index] <= high, f"{name} {values[index]}")
    counts = values[INVENTORY : INVENTORY + len(ITEMS)]
    _require(all(0 <= n <= MAX_ITEM for n in counts), f"an inventory of {counts}")
    reached = values[COUNTS : COUNTS + len(ACHIEVEMENTS)]
    # At most one of a kind per step, so that the counts cannot overflow.
    most = values[STEP] + MAX_LENGTH
    _require(all(0 <= n <= most for n in reached), f"achievements reached {reached} times")
    _require(values[STEP] <= values[LENGTH], "more steps than its length")
    dead, time_up = values[INVENTORY] == 0, values[STEP] == values[LENGTH]
    status = DIED if dead else TIME_UP if time_up else RUNNING
    _require(values[STATUS] == status, "its status contradicts its health and steps")


@lru_cache(maxsize=256)
def _parse_difficulty(data: bytes) -> Difficulty:
    parameters = np.frombuffer(data, np.float64)
    names = [field.name for field in dataclasses.fields(Difficulty)]
    _require(not any(data[8 * len(names) :]), "a number in an unused field")
    try:
        return Difficulty(**dict(zip(names, parameters.tolist(), strict=False)))
    except UsageError as error:
        raise SnapshotError(f"not a valid saved world: {error}") from None


def _check_things(things: NDArray[np.int64], materials: NDArray[np.uint8]) -> None:
    kind, x, y, health, clock, aim = things.T
    known = (kind >= PLAYER) & (kind <= len(_LIMITS))
    _require(known.all(), "an unknown kind of thing")
    _require(
        kind[0] == PLAYER and (kind[1:] > PLAYER).all(), "not one player, as its first thing"
    )
    inside = (x >= 0) & (x < AREA) & (y >= 0) & (y < AREA)
    _require(inside.all(), "a thing outside the world")
    cells = x * AREA + y
    _require(np.bincount(cells).max() == 1, "two things on one cell")
    most_health, most_clock, ground = _LIMIT_ROWS[kind].T
    _require(((health >= 0) & (health <= most_health)).all(), "a thing with wrong health")
    _require(((clock >= 0) & (clock <= most_clock)).all(), "a thing with a wrong clock")
    aimed = np.where(kind == ARROW, (aim >= 0) & (aim < STAY), aim == STAY)
    _require(aimed.all(), "a thing with a wrong direction")
    is_allowed = ground >> materials[x, y] & 1
    _require(is_allowed.all(), "a thing on a material it cannot be on")


def _check_order(
    things: NDArray[np.int16], chunks: NDArray[np.int64], order: NDArray[np.int16]
) -> None:
    _require((chunks < CHUNKS).all(), "an unknown chunk")
    _require(np.bincount(chunks).max() == 1, "a chunk opened twice")
    _require(np.array_equal(np.sort(order), np.arange(len(things))), "things out of order")
    place = np.full(CHUNKS, -1)
    place[chunks] = np.arange(len(chunks))
    home = place[things[:, 1] // CHUNK * CHUNKS_ACROSS + things[:, 2] // CHUNK]
    _require((home >= 0).all(), "a thing in a chunk that was never opened")
    _require((np.diff(home[order]) >= 0).all(), "things not in the order of their chunks")

"""One Crafter world: a function of its seed, its difficulty and the actions so far."""

import dataclasses
import operator
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from assay.crafter.difficulty import DIFFICULTIES, Difficulty, resolve_difficulty
from assay.crafter.engine import jit
from assay.crafter.engine.digest import xxh64
from assay.crafter.engine.entries import (
    REASON_SHIFT,
    REFUSED,
    STATUS_SHIFT,
    UNLOCKED_SHIFT,
    reset,
    step,
)
from assay.crafter.engine.layout import (
    BROKEN,
    COUNTS,
    EPISODE,
    FACING,
    INVENTORY,
    LENGTH,
    POSITION,
    RUNNING,
    SEED,
    SLEEPING,
    STATUS,
    STEP,
    X,
    Y,
    new_blocks,
    section,
)
from assay.crafter.engine.look import VIEW_BYTES, look, semantic
from assay.crafter.engine.noise import geometry_address
from assay.crafter.engine.numerics import MAX_LENGTH, daylight
from assay.crafter.engine.packing import MAX_SNAPSHOT, pack, unpack
from assay.crafter.engine.player import REASONS
from assay.crafter.render import render
from assay.crafter.rules import ACHIEVEMENTS, ACTIONS, AREA, ITEMS, VIEW, WORLD_LENGTH, NoEffect
from assay.crafter.snapshot import validate
from assay.crafter.view import View
from assay.errors import EpisodeOver, UsageError, WorldFull

_DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))


class Ended(StrEnum):
    """How an episode ended."""

    DIED = "died"
    """The player's health is gone."""
    LENGTH = "length"
    """The player is alive and the world has reached its length."""


class StepResult(NamedTuple):
    """Result of one step."""

    reward: float
    """A tenth of the health gained or lost, plus 1 if an achievement was unlocked."""
    done: bool
    """Whether the episode has ended."""
    ended: Ended | None
    """How the episode ended, or None."""
    unlocked: tuple[str, ...]
    """Achievements unlocked for the first time."""
    no_effect: NoEffect | None
    """Reason why the action changed nothing, or None."""


_ENDINGS = (None, Ended.DIED, Ended.LENGTH)
_decoded: dict[int, StepResult] = {}


def _decode(code: int) -> StepResult:
    """Decode the engine's integer into a result, and cache it."""
    health, new = (code & 31) - 16, code >> UNLOCKED_SHIFT
    ended = _ENDINGS[code >> STATUS_SHIFT & 15]
    result = StepResult(
        reward=health / 10 + 1.0 if new else health / 10,
        done=ended is not None,
        ended=ended,
        unlocked=tuple(name for i, name in enumerate(ACHIEVEMENTS) if new >> i & 1),
        no_effect=REASONS[code >> REASON_SHIFT & 15],
    )
    return _decoded.setdefault(code, result)


def action_index(action: object) -> int:
    """Return the index of an action given by index or name."""
    if isinstance(action, str):
        if action in ACTIONS:
            return ACTIONS.index(action)
    elif not isinstance(action, (bool, np.bool_)):
        try:
            index = operator.index(action)  # type: ignore[arg-type]
        except TypeError:
            pass
        else:
            if 0 <= index < len(ACTIONS):
                return index
    raise UsageError(
        f"unknown action {action!r}; give an index from 0 to {len(ACTIONS) - 1} "
        f"or one of {', '.join(ACTIONS)}"
    )


def check_int(name: str, value: object, low: int, high: int) -> int:
    """Return an integer between two bounds; raise UsageError for anything else."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise UsageError(f"{name} {value!r} is not allowed; give an int from {low} to {high}")
    return number


def warmup() -> jit.CompileReport:
    """Load the engine from the cache, or compile it."""
    report = jit.load()
    geometry_address()
    return report


class World:
    """A world that is played one step at a time.

    `World(seed)` is the world created by the first `reset()` of `crafter.Env(seed=seed)`, and
    `World(seed, episode=e)` the one created by its e-th `reset()`. Viewing, rendering, saving
    and hashing a world never change it.
    """

    __slots__ = ("_address", "_block", "_difficulty", "_scalars")

    def __init__(
        self,
        seed: int,
        difficulty: str | Difficulty | Mapping[str, Any] = "classic",
        length: int = WORLD_LENGTH,
        *,
        episode: int = 1,
    ) -> None:
        seed = check_int("seed", seed, 0, 2**31 - 1)
        episode = check_int("episode", episode, 1, 2**31 - 1)
        length = check_int("length", length, 1, MAX_LENGTH)
        self._allocate(resolve_difficulty(difficulty))
        self._scalars[LENGTH] = length
        write_parameters(self._block, self._difficulty)
        reset(self._address, geometry_address(), seed, episode)
        self._raise_if_broken()

    def _allocate(self, difficulty: Difficulty) -> None:
        jit.load()
        self._difficulty = difficulty
        self._block = new_blocks(1)[0]
        self._address = self._block.ctypes.data
        self._scalars = section(self._block, "scalars")

    def step(self, action: int | str) -> StepResult:
        """Carry out an action, given by index or name."""
        if action.__class__ is not int or not 0 <= action < 17:
            action = action_index(action)
        code = step(self._address, action)
        return _decoded.get(code) or self._decode_or_raise(code)

    def _decode_or_raise(self, code: int) -> StepResult:
        self._raise_if_broken()
        if code == REFUSED:
            raise EpisodeOver(
                f"the episode ended after {self.steps} steps ({self.ended}); "
                "make a new World to continue"
            )
        return _decode(code)

    def _raise_if_broken(self) -> None:
        if int(self._scalars[STATUS]) == BROKEN:
            raise WorldFull(
                f"the world of seed {self.seed} has no room for more creatures and plants "
                "and cannot continue; restore an earlier snapshot, or choose a difficulty with "
                "fewer of them"
            )

    @property
    def seed(self) -> int:
        """The seed of the world."""
        return int(self._scalars[SEED])

    @property
    def episode(self) -> int:
        """Number of the episode within the seed, from 1."""
        return int(self._scalars[EPISODE])

    @property
    def difficulty(self) -> Difficulty:
        """The parameters of the world."""
        return self._difficulty

    @property
    def difficulty_name(self) -> str:
        """Name of the difficulty, or `custom`."""
        for name, known in DIFFICULTIES.items():
            if known == self._difficulty:
                return name
        return "custom"

    @property
    def length(self) -> int:
        """Number of steps after which the episode ends."""
        return int(self._scalars[LENGTH])

    @property
    def steps(self) -> int:
        """Number of steps made."""
        return int(self._scalars[STEP])

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return int(self._scalars[STATUS]) != RUNNING

    @property
    def ended(self) -> Ended | None:
        """How the episode ended, if it has."""
        status = int(self._scalars[STATUS])
        return _ENDINGS[status] if status < len(_ENDINGS) else None

    @property
    def inventory(self) -> dict[str, int]:
        """Count of each item the player has, vitals included."""
        counts = self._scalars[INVENTORY : INVENTORY + len(ITEMS)].tolist()
        return dict(zip(ITEMS, counts, strict=True))

    @property
    def achievements(self) -> dict[str, int]:
        """Number of times each achievement was reached."""
        counts = self._scalars[COUNTS : COUNTS + len(ACHIEVEMENTS)].tolist()
        return dict(zip(ACHIEVEMENTS, counts, strict=True))

    @property
    def player_pos(self) -> tuple[int, int]:
        """Position of the player: (x, y)."""
        things = section(self._block, "things")
        return int(things[X]), int(things[Y])

    @property
    def facing(self) -> tuple[int, int]:
        """Direction the player faces: (dx, dy)."""
        return _DIRECTIONS[int(self._scalars[FACING])]

    @property
    def sleeping(self) -> bool:
        """Whether the player is asleep."""
        return bool(self._scalars[SLEEPING])

    @property
    def daylight(self) -> float:
        """1 at noon, 0 in the deepest night."""
        return daylight(self.steps)

    def view(self) -> View:
        """Return what the player sees, and nothing else."""
        seen = np.empty(VIEW_BYTES, np.uint8)
        look(self._address, seen.ctypes.data)
        materials, objects, details = seen.reshape(3, *VIEW)
        return View(
            materials=materials,
            objects=objects,
            details=details,
            inventory=self.inventory,
            sleeping=self.sleeping,
            daylight=self.daylight,
            step=self.steps,
        )

    def semantic(self) -> NDArray[np.uint8]:
        """Return the whole map, (64, 64) indexed [x, y]: ids of objects, else of materials."""
        canvas = np.empty((AREA, AREA), np.uint8)
        semantic(self._address, canvas.ctypes.data)
        return canvas

    def materials(self) -> NDArray[np.uint8]:
        """Return the material of every cell, (64, 64) indexed [x, y]; ids into `MATERIALS`."""
        ringed = section(self._block, "materials").reshape(AREA + 2, AREA + 2)
        return ringed[1:-1, 1:-1].astype(np.uint8)

    def render(self, size: int | tuple[int, int] = 64) -> NDArray[np.uint8]:
        """Return an image of what the player sees, (height, width, 3)."""
        return render(self.view(), size, noise_seed=self.seed)

    def rng_state(self) -> tuple[NDArray[np.uint32], int]:
        """Return the state of the random generator: 624 words and the position of the next one.

        Used only for comparisons with the package `crafter`.
        """
        words = section(self._block, "words").astype(np.uint32)
        return words, int(self._scalars[POSITION])

    def snapshot(self) -> bytes:
        """Return the world as bytes for `restore`; equal states give equal bytes."""
        self._raise_if_broken()
        buffer = np.empty(MAX_SNAPSHOT, np.uint8)
        return buffer[: pack(self._address, buffer.ctypes.data)].tobytes()

    def digest(self) -> int:
        """Return a number in [0, 2^63), equal for equal states; see `DIGEST_VERSION`."""
        self._raise_if_broken()
        buffer = np.empty(MAX_SNAPSHOT, np.uint8)
        address = buffer.ctypes.data
        return int(xxh64(address, pack(self._address, address)))

    @classmethod
    def restore(cls, data: bytes) -> Self:
        """Return the world saved by `snapshot`; raise SnapshotError for any other data."""
        raw, difficulty = validate(data)
        world = cls.__new__(cls)
        world._allocate(difficulty)
        unpack(world._address, raw.ctypes.data)
        return world

    def fork(self, *, random_seed: int | None = None) -> Self:
        """Return an independent copy of the world in its current state.

        With `random_seed`, chance differs from then on: another possible future of this state.
        """
        world = self._from_block(self._block, self._difficulty)
        if random_seed is not None:
            words = np.random.RandomState(random_seed).get_state(legacy=False)["state"]["key"]
            section(world._block, "words")[:] = words
            world._scalars[POSITION] = len(words)
        return world

    @classmethod
    def _from_block(cls, block: NDArray[np.uint8], difficulty: Difficulty) -> Self:
        world = cls.__new__(cls)
        world._allocate(difficulty)
        world._block[:] = block
        return world

    def __copy__(self) -> Self:
        return self.fork()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.fork()

    def __reduce__(self) -> tuple[Any, ...]:
        # Memory addresses are not valid in another process.
        return self.restore, (self.snapshot(),)

    def __repr__(self) -> str:
        return f"<World seed={self.seed} {self.difficulty_name} step={self.steps}>"


def write_parameters(block: NDArray[np.uint8], difficulty: Difficulty) -> None:
    """Write the parameters of a difficulty into a world's block."""
    numbers = dataclasses.astuple(difficulty)
    section(block, "parameters")[: len(numbers)] = numbers

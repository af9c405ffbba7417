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
    """The player is alive and the world has made all its steps."""


class StepResult(NamedTuple):
    """What one step did."""

    reward: float
    """A tenth of the health gained or lost, plus 1 if something new was achieved."""
    done: bool
    """Whether the episode has ended."""
    ended: Ended | None
    """How, if it has."""
    unlocked: tuple[str, ...]
    """The achievements reached for the first time."""
    no_effect: NoEffect | None
    """Why the action changed nothing, if it did not."""


_ENDINGS = (None, Ended.DIED, Ended.LENGTH)
_results: dict[int, StepResult] = {}


def _decode(code: int) -> StepResult:
    """The result that the engine's integer stands for, kept for the next time."""
    health, new = (code & 31) - 16, code >> UNLOCKED_SHIFT
    ended = _ENDINGS[code >> STATUS_SHIFT & 15]
    result = StepResult(
        reward=health / 10 + 1.0 if new else health / 10,
        done=ended is not None,
        ended=ended,
        unlocked=tuple(name for i, name in enumerate(ACHIEVEMENTS) if new >> i & 1),
        no_effect=REASONS[code >> REASON_SHIFT & 15],
    )
    return _results.setdefault(code, result)


def action_index(action: object) -> int:
    """The index of an action given by index or name."""
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


def checked_int(name: str, value: object, low: int, high: int) -> int:
    """An integer between two bounds, or an error that says so."""
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
    """Make the engine ready: compile it, or read it from the cache."""
    report = jit.load()
    geometry_address()
    return report


class World:
    """A world that is played one step at a time.

    `World(seed)` is the world that the first `reset()` of `crafter.Env(seed=seed)` makes,
    and `World(seed, episode=e)` the one that its e-th `reset()` makes. Looking at a world,
    drawing it, saving it and hashing it never change it.
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
        seed = checked_int("seed", seed, 0, 2**31 - 1)
        episode = checked_int("episode", episode, 1, 2**31 - 1)
        length = checked_int("length", length, 1, MAX_LENGTH)
        self._adopt(resolve_difficulty(difficulty))
        self._scalars[LENGTH] = length
        write_parameters(self._block, self._difficulty)
        reset(self._address, geometry_address(), seed, episode)
        self._refuse_broken()

    def _adopt(self, difficulty: Difficulty) -> None:
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
        return _results.get(code) or self._unusual(code)

    def _unusual(self, code: int) -> StepResult:
        self._refuse_broken()
        if code == REFUSED:
            raise EpisodeOver(
                f"the episode ended after {self.steps} steps ({self.ended}); "
                "make a new World to go on"
            )
        return _decode(code)

    def _refuse_broken(self) -> None:
        if int(self._scalars[STATUS]) == BROKEN:
            raise WorldFull(
                f"the world of seed {self.seed} has no room for more creatures and plants "
                "and cannot go on; restore an earlier snapshot, or choose a difficulty with "
                "fewer of them"
            )

    @property
    def seed(self) -> int:
        """The seed the world was made from."""
        return int(self._scalars[SEED])

    @property
    def episode(self) -> int:
        """Which of the worlds of its seed this is, from 1."""
        return int(self._scalars[EPISODE])

    @property
    def difficulty(self) -> Difficulty:
        """The numbers the world was made with."""
        return self._difficulty

    @property
    def difficulty_name(self) -> str:
        """The name of its difficulty, or `custom`."""
        for name, known in DIFFICULTIES.items():
            if known == self._difficulty:
                return name
        return "custom"

    @property
    def length(self) -> int:
        """After how many steps the episode ends at the latest."""
        return int(self._scalars[LENGTH])

    @property
    def steps(self) -> int:
        """How many steps were made."""
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
        """How much the player has of each item, vitals included."""
        counts = self._scalars[INVENTORY : INVENTORY + len(ITEMS)].tolist()
        return dict(zip(ITEMS, counts, strict=True))

    @property
    def achievements(self) -> dict[str, int]:
        """How often each achievement was reached."""
        counts = self._scalars[COUNTS : COUNTS + len(ACHIEVEMENTS)].tolist()
        return dict(zip(ACHIEVEMENTS, counts, strict=True))

    @property
    def player_pos(self) -> tuple[int, int]:
        """Where the player is: (x, y)."""
        things = section(self._block, "things")
        return int(things[X]), int(things[Y])

    @property
    def facing(self) -> tuple[int, int]:
        """The direction the player looks in: (dx, dy)."""
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
        """What the player sees, and no more."""
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
        """The whole map, (64, 64) indexed [x, y]: ids of materials and what stands there."""
        canvas = np.empty((AREA, AREA), np.uint8)
        semantic(self._address, canvas.ctypes.data)
        return canvas

    def materials(self) -> NDArray[np.uint8]:
        """What every cell is made of, (64, 64) indexed [x, y]; ids into `MATERIALS`."""
        ringed = section(self._block, "materials").reshape(AREA + 2, AREA + 2)
        return ringed[1:-1, 1:-1].astype(np.uint8)

    def render(self, size: int | tuple[int, int] = 64) -> NDArray[np.uint8]:
        """A picture of what the player sees, (height, width, 3)."""
        return render(self.view(), size, noise_seed=self.seed)

    def rng_state(self) -> tuple[NDArray[np.uint32], int]:
        """The random generator: 624 words and the position of the next one.

        For comparisons with the package `crafter`; nothing else here looks at it.
        """
        words = section(self._block, "words").astype(np.uint32)
        return words, int(self._scalars[POSITION])

    def snapshot(self) -> bytes:
        """The world as bytes, for `restore`; equal states give equal bytes."""
        self._refuse_broken()
        buffer = np.empty(MAX_SNAPSHOT, np.uint8)
        return buffer[: pack(self._address, buffer.ctypes.data)].tobytes()

    def digest(self) -> int:
        """A number in [0, 2^63) that equal states share; see `DIGEST_VERSION`."""
        self._refuse_broken()
        buffer = np.empty(MAX_SNAPSHOT, np.uint8)
        address = buffer.ctypes.data
        return int(xxh64(address, pack(self._address, address)))

    @classmethod
    def restore(cls, data: bytes) -> Self:
        """The world that `snapshot` saved; anything else is a SnapshotError."""
        raw, difficulty = validate(data)
        world = cls.__new__(cls)
        world._adopt(difficulty)
        unpack(world._address, raw.ctypes.data)
        return world

    def fork(self) -> Self:
        """A copy that goes its own way from here."""
        return self._from_block(self._block, self._difficulty)

    @classmethod
    def _from_block(cls, block: NDArray[np.uint8], difficulty: Difficulty) -> Self:
        world = cls.__new__(cls)
        world._adopt(difficulty)
        world._block[:] = block
        return world

    def __copy__(self) -> Self:
        return self.fork()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.fork()

    def __reduce__(self) -> tuple[Any, ...]:
        # The address of a block means nothing in another process.
        return self.restore, (self.snapshot(),)

    def __repr__(self) -> str:
        return f"<World seed={self.seed} {self.difficulty_name} step={self.steps}>"


def write_parameters(block: NDArray[np.uint8], difficulty: Difficulty) -> None:
    """Put the numbers of a difficulty into a world's block."""
    numbers = dataclasses.astuple(difficulty)
    section(block, "parameters")[: len(numbers)] = numbers

"""An observation for a model as a value, independent of its wording.

Every valid `Observation` can be written as text and read back; others are rejected on creation.
"""

import operator
import reprlib
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import numpy as np

from assay.crafter.rules import (
    ACHIEVEMENTS,
    ACTIONS,
    ITEMS,
    MATERIALS,
    MAX_ITEM,
    OBJECTS,
    VIEW,
    NoEffect,
)
from assay.crafter.view import View
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.crafter.world import StepResult

ACROSS, DOWN = VIEW
CENTER: Final = ACROSS * DOWN // 2
"""Index of the player's cell among the cells, row by row."""

DIRECTIONS: Final = tuple(name.removeprefix("move_") for name in ACTIONS[1:5])
"""The four directions in the order of a view's details."""
STEPS: Final = dict(zip(DIRECTIONS, (-1, 1, -ACROSS, ACROSS), strict=True))
"""Change of a cell's index for a step in each direction."""

MAX_STEP: Final = 999_999_999
"""Maximum step number in an observation."""


class MapCell(NamedTuple):
    """One cell of the map."""

    material: str
    """One of `rules.MATERIALS`; below a thing if there is one."""
    thing: str | None = None
    """One of `rules.OBJECTS`, or None."""
    detail: str | None = None
    """Direction of the player or an arrow; `ripe` for a ripe plant."""

    @property
    def kind(self) -> str:
        """Short name of the content: `grass`, `zombie`, `ripe plant`."""
        if self.thing == "plant" and self.detail:
            return f"{self.detail} plant"
        return self.thing or self.material


def _possible_details(thing: str | None) -> tuple[str | None, ...]:
    """Return the possible details of a thing, in the order of a view's details."""
    if thing in ("player", "arrow"):
        return (None, *DIRECTIONS)
    return (None, "ripe") if thing == "plant" else (None,)


# By the three numbers of a view; the player and arrows always have a direction.
_CELL_BY_IDS: Final = {
    (m, len(MATERIALS) - 1 + o if thing else 0, d): MapCell(material, thing, detail)
    for (m, material), (o, thing) in product(enumerate(MATERIALS), enumerate((None, *OBJECTS)))
    if m or not thing
    for d, detail in enumerate(_possible_details(thing))
    if detail or thing not in ("player", "arrow")
}
_IDS: Final = {cell: bytes(ids) for ids, cell in _CELL_BY_IDS.items()}
CELLS: Final = tuple(_CELL_BY_IDS.values())
"""All possible cells."""
_PLAYERS: Final = frozenset(cell for cell in CELLS if cell.thing == "player")
_OTHERS: Final = frozenset(CELLS) - _PLAYERS
_NAMES: Final = frozenset(ACHIEVEMENTS)


def _can_fail(action: str, reason: NoEffect) -> bool:
    match reason:
        case NoEffect.BLOCKED:
            return action.startswith("move_")
        case NoEffect.NOTHING_THERE | NoEffect.NOT_RIPE | NoEffect.NEEDS_TOOL:
            return action == "do"
        case NoEffect.NO_ROOM:
            return action.startswith("place_")
        case NoEffect.NEEDS_NEARBY:
            return action.startswith("make_")
        case NoEffect.NEEDS_ITEMS:
            return action.startswith(("place_", "make_"))
        case NoEffect.ASLEEP:
            return action not in ("noop", "sleep")


FAILURES: Final = {
    action: tuple(reason for reason in NoEffect if _can_fail(action, reason))
    for action in ACTIONS
}
"""Possible reasons why each action had no effect."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the player sees, its own state, and the result of its last action."""

    step: int
    daylight: int
    """From 0 in the deepest night to 100 at noon."""
    sleeping: bool
    inventory: tuple[int, ...]
    """Counts of all `rules.ITEMS`, in their order."""
    cells: tuple[MapCell, ...]
    """The cells in view, row by row from the top left; the player is in the middle."""
    action: str | None = None
    """The last action, if given."""
    achieved: tuple[str, ...] = ()
    """Achievements that the last action unlocked for the first time."""
    no_effect: NoEffect | None = None
    """Reason why the last action changed nothing, or None."""

    def __post_init__(self) -> None:
        if not _is_count(self.step, MAX_STEP):
            _reject("step", self.step, f"an int from 0 to {MAX_STEP}")
        if not _is_count(self.daylight, 100):
            _reject("daylight", self.daylight, "an int from 0 to 100")
        if self.sleeping.__class__ is not bool:
            _reject("sleeping", self.sleeping, "a bool")
        if not _is_tuple(self.inventory, len(ITEMS)) or not all(
            count.__class__ is int and 0 <= count <= MAX_ITEM for count in self.inventory
        ):
            _reject("inventory", self.inventory, f"{len(ITEMS)} ints from 0 to {MAX_ITEM}")
        if not _is_tuple(self.cells, ACROSS * DOWN) or not (
            {*map(type, self.cells)} == {MapCell}
            and self.cells[CENTER] in _PLAYERS
            and _OTHERS.issuperset(self.cells[:CENTER])
            and _OTHERS.issuperset(self.cells[CENTER + 1 :])
        ):
            _reject("cells", self.cells, f"{ACROSS * DOWN} cells around one of the player")
        self._check_last_action()

    def _check_last_action(self) -> None:
        if self.action is None:
            if self.achieved != () or self.no_effect is not None:
                _reject("action", self.action, "the one that achieved something or failed")
            return
        if self.action not in ACTIONS:
            _reject("action", self.action, f"None or one of {', '.join(ACTIONS)}")
        if self.achieved.__class__ is not tuple or not _NAMES.issuperset(self.achieved):
            _reject("achieved", self.achieved, f"a tuple of {', '.join(ACHIEVEMENTS)}")
        reasons = FAILURES[self.action]
        if self.no_effect is not None and self.no_effect not in reasons:
            _reject("no_effect", self.no_effect, f"{', '.join(reasons) or None} there")

    @property
    def facing(self) -> str:
        """Direction the player faces: left, right, up or down."""
        return self.cells[CENTER].detail or ""

    @property
    def ahead(self) -> MapCell:
        """The cell in front of the player."""
        return self.cells[CENTER + STEPS[self.facing]]

    @property
    def around(self) -> tuple[MapCell, ...]:
        """The nine cells within one cell of the player."""
        rows = (CENTER - ACROSS, CENTER, CENTER + ACROSS)
        return tuple(cell for row in rows for cell in self.cells[row - 1 : row + 2])

    def count(self, item: str) -> int:
        """Return how many of an item the player has, vitals included."""
        return self.inventory[ITEMS.index(item)]


def _is_count(value: object, highest: int) -> bool:
    return value.__class__ is int and 0 <= value <= highest


def _is_tuple(value: object, length: int) -> bool:
    return isinstance(value, tuple) and len(value) == length


def _reject(name: str, value: object, allowed: str) -> NoReturn:
    # Shortened, because a map is long.
    found = reprlib.repr(value)
    raise UsageError(f"observation: {name} = {found} is not allowed; give {allowed}")


def observe(
    view: View, *, action: int | None = None, result: "StepResult | None" = None
) -> Observation:
    """Build an observation from a view, the last action and its result."""
    if action is not None:
        action = operator.index(action)
        if not 0 <= action < len(ACTIONS):
            _reject("action", action, f"an index from 0 to {len(ACTIONS) - 1}")
    if result is not None and action is None:
        raise UsageError("observation: a result was given without its action; give both")
    return Observation(
        step=int(view.step),
        daylight=round(100 * view.daylight),
        sleeping=bool(view.sleeping),
        inventory=tuple([int(view.inventory[item]) for item in ITEMS]),
        cells=_read_cells(view),
        action=None if action is None else ACTIONS[action],
        achieved=() if result is None else result.unlocked,
        no_effect=None if result is None else result.no_effect,
    )


def _read_cells(view: View) -> tuple[MapCell, ...]:
    planes = (view.materials, view.objects, view.details)
    # A view is indexed [x, y]; the cells are row by row.
    ids = zip(*(plane.T.tobytes() for plane in planes), strict=True)
    try:
        return tuple([_CELL_BY_IDS[seen] for seen in ids])
    except KeyError as error:
        raise UsageError(
            f"not a view: material, object and detail {error} do not go together"
        ) from None


def as_view(observation: Observation) -> View:
    """Return the observed view, with daylight rounded to a percent."""
    o = observation
    ids = np.frombuffer(b"".join([_IDS[cell] for cell in o.cells]), np.uint8)
    # The cells are row by row; a view is indexed [x, y].
    materials, objects, details = ids.reshape(DOWN, ACROSS, 3).transpose(2, 1, 0).copy()
    return View(
        materials=materials,
        objects=objects,
        details=details,
        inventory=dict(zip(ITEMS, o.inventory, strict=True)),
        sleeping=o.sleeping,
        daylight=o.daylight / 100,
        step=o.step,
    )

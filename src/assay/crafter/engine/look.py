"""Reading a world without changing it: the player's view and the whole map."""

from assay.crafter.engine.grid import ARROW, PLANT, cell_at
from assay.crafter.engine.jit import entry, kernel, threaded_entry
from assay.crafter.engine.layout import (
    AIM,
    BLOCK,
    CLOCK,
    FACING,
    FIELDS,
    KIND,
    State,
    X,
    Y,
    state,
    uint8_at,
)
from assay.crafter.rules import AREA, MATERIALS, RIPE_AFTER, VIEW

_ACROSS, _DOWN = VIEW
_VIEW_CELLS = _ACROSS * _DOWN
VIEW_BYTES = 3 * _VIEW_CELLS
"""Number of bytes `look` writes: materials, objects and details of the cells in view."""
_FIRST_OBJECT = len(MATERIALS) - 1
"""The id of a thing in a map is this plus its kind."""


@entry
def look(address: int, out: int) -> None:
    """Write what the player sees to the VIEW_BYTES at `out`; see `View`."""
    _look(state(address), out, _VIEW_CELLS)


@threaded_entry
def look_many(blocks: int, first: int, last: int, count: int, out: int) -> None:
    """Write the views of the worlds `first` to `last` of `count` to `out`, (3, count, 9, 7)."""
    for i in range(first, last):
        _look(state(blocks + i * BLOCK), out + i * _VIEW_CELLS, count * _VIEW_CELLS)


@kernel
def _look(s: State, out: int, plane: int) -> None:
    """Write materials, objects and details, each `plane` bytes after the previous one."""
    seen = uint8_at(out, 2 * plane + _VIEW_CELLS)
    left, top = s.things[X] - _ACROSS // 2, s.things[Y] - _DOWN // 2
    for i in range(_ACROSS):
        for j in range(_DOWN):
            x, y, at = left + i, top + j, i * _DOWN + j
            material = thing = detail = 0
            if 0 <= x < AREA and 0 <= y < AREA:
                cell = cell_at(x, y)
                material = s.materials[cell]
                if s.occupants[cell]:
                    base = (s.occupants[cell] - 1) * FIELDS
                    kind = s.things[base + KIND]
                    thing = _FIRST_OBJECT + kind
                    if base == 0:
                        detail = 1 + s.scalars[FACING]
                    elif kind == ARROW:
                        detail = 1 + s.things[base + AIM]
                    elif kind == PLANT and s.things[base + CLOCK] > RIPE_AFTER:
                        detail = 1
            seen[at] = material
            seen[plane + at] = thing
            seen[2 * plane + at] = detail


@entry
def semantic(address: int, out: int) -> None:
    """Write the object or material id of each cell to the 64x64 bytes at `out`, x-major."""
    s = state(address)
    canvas = uint8_at(out, AREA * AREA)
    for x in range(AREA):
        for y in range(AREA):
            cell = cell_at(x, y)
            thing = s.occupants[cell]
            if thing:
                canvas[x * AREA + y] = _FIRST_OBJECT + s.things[(thing - 1) * FIELDS + KIND]
            else:
                canvas[x * AREA + y] = s.materials[cell]

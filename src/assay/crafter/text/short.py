"""The short form: as few tokens as it can, for small models.

Numbers follow their word without a space, because tokenizers split digits off and would
spend a token on the space. The commonest ground has the glyph whose runs are the longest
single tokens. `docs/text.md` has the figures.
"""

import re
from typing import Final

from ..rules import ITEMS, MATERIALS, VITALS
from .lines import ACTION, Lines, assemble
from .observation import ACROSS, CELLS, CENTER, DIRECTIONS, MapCell, Observation
from .words import OFFSETS, last_action, nearest

__all__ = ["GLYPHS", "USUAL_GROUND", "read_short", "short_text"]

GLYPHS: Final = {
    "outside": "X",
    "water": "=",
    "grass": "-",
    "stone": "#",
    "path": ".",
    "sand": ":",
    "tree": "T",
    "lava": "!",
    "coal": "c",
    "iron": "i",
    "diamond": "d",
    "table": "t",
    "furnace": "f",
    "player": "@",
    "cow": "C",
    "zombie": "Z",
    "skeleton": "S",
    "arrow left": "<",
    "arrow right": ">",
    "arrow up": "^",
    "arrow down": "v",
    "plant": "p",
    "ripe plant": "P",
}
"""What each glyph of the short form's map stands for."""

USUAL_GROUND: Final = {
    "player": "grass",
    "cow": "grass",
    "zombie": "grass",
    "skeleton": "path",
    "arrow": "path",
    "plant": "grass",
}
"""What things stand on where the short form does not say it."""

_MAP: Final = {
    cell: GLYPHS[f"arrow {cell.detail}" if cell.thing == "arrow" else cell.kind]
    for cell in CELLS
}
_UNUSUAL: Final = frozenset(
    cell for cell in CELLS if cell.thing and cell.material != USUAL_GROUND[cell.thing]
)
_CELLS: Final = {
    glyph: cell
    for cell, glyph in _MAP.items()
    if cell not in _UNUSUAL and cell.thing != "player"
}
_PLACES: Final = tuple(" ".join(f"{way}{n}" for n, way in offset) for offset in OFFSETS)
_PLAIN: Final = frozenset(("grass", "sand", "path", "outside"))


def short_text(observation: Observation) -> str:
    """An observation in few tokens; `parse` reads it back."""
    o = observation
    counts = [*zip(ITEMS, o.inventory, strict=True)]
    words = [f"step{o.step} light{o.daylight}"]
    words += [f"{name}{count}" for name, count in counts[: len(VITALS)]]
    words += [f"{name}{count}" for name, count in counts[len(VITALS) :] if count]
    if o.sleeping:
        words.append("asleep")
    lines = [" ".join(words)]
    if o.action is not None:
        lines.append(last_action(o) if o.no_effect else f"did {o.action}")
    if o.achieved:
        lines.append(f"achieved {' '.join(o.achieved)}")
    lines.append(_surroundings(o))
    glyphs = "".join([_MAP[cell] for cell in o.cells])
    lines += [glyphs[i : i + ACROSS] for i in range(0, len(glyphs), ACROSS)]
    ground = [
        f"{cell.material} {_PLACES[i]}"
        for i, cell in enumerate(o.cells)
        if cell.thing and i != CENTER and cell in _UNUSUAL
    ]
    if ground:
        lines.append(f"ground {' '.join(ground)}")
    return "\n".join(lines)


def _surroundings(o: Observation) -> str:
    """What is underfoot, in front and near. What is in front is not said again."""
    you = o.cells[CENTER]
    words = [f"on {you.material}"] if you in _UNUSUAL else []
    found = nearest(o)
    in_front = next(iter(found))
    words.append(f"facing {o.facing} {in_front}{_flying(o.ahead)}")
    near = [
        f"{kind} {_PLACES[i]}{_flying(o.cells[i])}"
        for kind, i in found.items()
        if kind not in _PLAIN and kind != in_front
    ]
    if near:
        words.append(f"near {' '.join(near)}")
    return " ".join(words)


def _flying(cell: MapCell) -> str:
    return f" flying {cell.detail}" if cell.thing == "arrow" else ""


_ITEM, _GROUND, _WAY = (
    f"(?:{'|'.join(names)})" for names in (ITEMS[len(VITALS) :], MATERIALS[1:], DIRECTIONS)
)
_VITALS: Final = " ".join(rf"{name}(\d)" for name in VITALS)
_HEAD: Final = re.compile(
    rf"step(\d{{1,9}}) light(100|\d\d?) {_VITALS}((?: {_ITEM}\d)*)( asleep)?"
)
_LAST: Final = re.compile(f"(?:did )?{ACTION}")
_ACHIEVED: Final = re.compile("achieved (.+)")
_STAND: Final = re.compile(f"(?:on ({_GROUND}) )?facing ({_WAY}) .+")
_PLACE: Final = rf"{_WAY}\d(?: {_WAY}\d)?"
_UNDER: Final = re.compile(f"ground( {_GROUND} {_PLACE})+")
_UNDER_CELL: Final = re.compile(f" ({_GROUND}) ({_PLACE})")


def read_short(lines: Lines) -> Observation:
    """What a text of the short form says; what it says twice is read once."""
    like = "step12 light90 health9 food9 drink9 energy9 wood2"
    *head, carried, asleep = lines.take(_HEAD, like).groups()
    counts = dict(zip(VITALS, map(int, head[2:]), strict=True))
    counts |= {item[:-1]: int(item[-1]) for item in carried.split()}
    last = lines.maybe(_LAST)
    achieved = lines.maybe(_ACHIEVED) if last else None
    stand = lines.take(_STAND, "facing down grass near tree left2 up1")
    you = MapCell(stand[1] or USUAL_GROUND["player"], "player", stand[2])
    cells = lines.cells(_CELLS, (GLYPHS["player"], you), "")
    ground = lines.maybe(_UNDER)
    if ground:
        for material, place in _UNDER_CELL.findall(ground[0]):
            if place not in _PLACES:
                lines.wrong(f"{place!r} is not in view")
            i = _PLACES.index(place)
            cells[i] = cells[i]._replace(material=material)
    return assemble(
        lines,
        head=head,
        sleeping=asleep is not None,
        counts=counts,
        cells=cells,
        last=last,
        achieved=achieved[1].split() if achieved else (),
    )

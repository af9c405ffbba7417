"""The two text forms of an observation, and reading them back.

The full form has sentences and a map of words, for capable models. The short form has as few
tokens as possible, for small models. In it, numbers follow their word without a space, because
tokenizers split digits off and would spend a token on the space. The most common ground has the
glyph whose runs are the longest single tokens. `docs/text.md` has the numbers.

`parse` accepts a text only if writing the result again gives the same text. Redundant parts of
a text therefore cannot contradict each other.
"""

import re
from typing import Final

from assay.crafter.rules import ITEMS, MATERIALS, MAX_ITEM, VITALS
from assay.crafter.text.observation import (
    ACROSS,
    CELLS,
    CENTER,
    DIRECTIONS,
    DOWN,
    MapCell,
    Observation,
)
from assay.crafter.text.wording import ACTION, OFFSETS, Lines, assemble, last_action, nearest
from assay.errors import UsageError

_NEAR_TITLE: Final = "Nearest of each kind in view:"
_MAP_TITLE: Final = (
    f"Map, {ACROSS} wide and {DOWN} high, you in the middle; a/b means a stands on b:"
)
_FULL_PLACES: Final = tuple(", ".join(f"{n} {way}" for n, way in offset) for offset in OFFSETS)


def _map_word(cell: MapCell) -> str:
    match cell.thing:
        case None:
            return cell.material
        case "player":
            return f"you/{cell.material}"
        case "arrow":
            return f"arrow-{cell.detail}/{cell.material}"
        case _:
            return f"{cell.kind.replace(' ', '-')}/{cell.material}"


_WORDS: Final = {cell: _map_word(cell) for cell in CELLS}
_FULL_CELLS: Final = {word: cell for cell, word in _WORDS.items() if cell.thing != "player"}


def full_text(observation: Observation) -> str:
    """Return an observation as sentences; `parse` reads them back."""
    o = observation
    lines = [f"Step {o.step}, daylight {o.daylight}%."]
    if o.action is not None:
        lines.append(f"Last action: {last_action(o)}.")
    if o.achieved:
        lines.append(f"New achievement: {', '.join(o.achieved)}.")
    counts = [*zip(ITEMS, o.inventory, strict=True)]
    vitals = [f"{name} {count}/{MAX_ITEM}" for name, count in counts[: len(VITALS)]]
    lines.append(f"{', '.join(vitals).capitalize()}.")
    carried = [f"{count} {name}" for name, count in counts[len(VITALS) :] if count]
    lines.append(f"You carry {', '.join(carried) or 'nothing'}.")
    if o.sleeping:
        lines.append("You are asleep.")
    if not o.count("health"):
        lines.append("You are dead.")
    ground = o.cells[CENTER].material
    lines.append(f"You stand on {ground} and face {o.facing}, towards {_cell_text(o.ahead)}.")
    lines.append(_NEAR_TITLE)
    for kind, i in nearest(o).items():
        flying = f", flying {o.cells[i].detail}" if kind == "arrow" else ""
        lines.append(f"- {kind}: {_FULL_PLACES[i]}{flying}")
    lines.append(_MAP_TITLE)
    words = [_WORDS[cell] for cell in o.cells]
    lines += [" ".join(words[i : i + ACROSS]) for i in range(0, len(words), ACROSS)]
    return "\n".join(lines)


def _cell_text(cell: MapCell) -> str:
    if cell.thing is None:
        return cell.material
    flying = f" flying {cell.detail}" if cell.thing == "arrow" else ""
    return f"{cell.kind}{flying} on {cell.material}"


_FULL_HEAD: Final = re.compile(r"Step (\d{1,9}), daylight (100|\d\d?)%\.")
_FULL_LAST: Final = re.compile(rf"Last action: {ACTION}\.")
_FULL_ACHIEVED: Final = re.compile(r"New achievement: (.+)\.")
_FULL_VITALS: Final = re.compile(
    ", ".join(rf"{name} (\d)/{MAX_ITEM}" for name in VITALS).capitalize() + r"\."
)
_FULL_ITEM: Final = rf"\d (?:{'|'.join(ITEMS[len(VITALS) :])})"
_CARRIED: Final = re.compile(rf"You carry (nothing|{_FULL_ITEM}(?:, {_FULL_ITEM})*)\.")
_ASLEEP: Final = re.compile(r"You are asleep\.")
_DEAD: Final = re.compile(r"You are dead\.")
_FULL_STAND: Final = re.compile(
    rf"You stand on ({'|'.join(MATERIALS[1:])}) and face ({'|'.join(DIRECTIONS)}), towards .+\."
)
_NEAR_START: Final = re.compile(re.escape(_NEAR_TITLE))
_NEAR: Final = re.compile("- .+")
_MAP_START: Final = re.compile(re.escape(_MAP_TITLE))


def read_full(lines: Lines) -> Observation:
    """Parse a text in the full form; redundant parts are read once."""
    head = lines.expect(_FULL_HEAD, "Step 12, daylight 90%.").groups()
    last = lines.match_next(_FULL_LAST)
    achieved = lines.match_next(_FULL_ACHIEVED) if last else None
    vitals = lines.expect(_FULL_VITALS, "Health 9/9, food 9/9, drink 9/9, energy 9/9.").groups()
    counts = dict(zip(VITALS, map(int, vitals), strict=True))
    carried = lines.expect(_CARRIED, "You carry 2 wood, 1 sapling.")[1]
    if carried != "nothing":
        counts |= {item[2:]: int(item[0]) for item in carried.split(", ")}
    sleeping = lines.match_next(_ASLEEP) is not None
    lines.match_next(_DEAD)
    stand = lines.expect(_FULL_STAND, "You stand on grass and face down, towards tree.")
    lines.expect(_NEAR_START, _NEAR_TITLE)
    while lines.match_next(_NEAR):
        pass
    lines.expect(_MAP_START, _MAP_TITLE)
    you = MapCell(stand[1], "player", stand[2])
    return assemble(
        lines,
        head=head,
        sleeping=sleeping,
        counts=counts,
        cells=lines.read_cells(_FULL_CELLS, (_WORDS[you], you), " "),
        last=last,
        achieved=achieved[1].split(", ") if achieved else (),
    )


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
"""Glyph of each kind of cell in the map of the short form."""

USUAL_GROUND: Final = {
    "player": "grass",
    "cow": "grass",
    "zombie": "grass",
    "skeleton": "path",
    "arrow": "path",
    "plant": "grass",
}
"""Ground under each thing that the short form does not mention."""

_MAP: Final = {
    cell: GLYPHS[f"arrow {cell.detail}" if cell.thing == "arrow" else cell.kind]
    for cell in CELLS
}
_UNUSUAL: Final = frozenset(
    cell for cell in CELLS if cell.thing and cell.material != USUAL_GROUND[cell.thing]
)
_SHORT_CELLS: Final = {
    glyph: cell
    for cell, glyph in _MAP.items()
    if cell not in _UNUSUAL and cell.thing != "player"
}
_SHORT_PLACES: Final = tuple(" ".join(f"{way}{n}" for n, way in offset) for offset in OFFSETS)
_PLAIN: Final = frozenset(("grass", "sand", "path", "outside"))


def short_text(observation: Observation) -> str:
    """Return an observation in few tokens; `parse` reads it back."""
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
    lines.append(_describe_surroundings(o))
    glyphs = "".join([_MAP[cell] for cell in o.cells])
    lines += [glyphs[i : i + ACROSS] for i in range(0, len(glyphs), ACROSS)]
    ground = [
        f"{cell.material} {_SHORT_PLACES[i]}"
        for i, cell in enumerate(o.cells)
        if cell.thing and i != CENTER and cell in _UNUSUAL
    ]
    if ground:
        lines.append(f"ground {' '.join(ground)}")
    return "\n".join(lines)


def _describe_surroundings(o: Observation) -> str:
    """Describe the ground, the cell in front and near things, without repetition."""
    you = o.cells[CENTER]
    words = [f"on {you.material}"] if you in _UNUSUAL else []
    found = nearest(o)
    in_front = next(iter(found))
    words.append(f"facing {o.facing} {in_front}{_describe_flight(o.ahead)}")
    near = [
        f"{kind} {_SHORT_PLACES[i]}{_describe_flight(o.cells[i])}"
        for kind, i in found.items()
        if kind not in _PLAIN and kind != in_front
    ]
    if near:
        words.append(f"near {' '.join(near)}")
    return " ".join(words)


def _describe_flight(cell: MapCell) -> str:
    return f" flying {cell.detail}" if cell.thing == "arrow" else ""


_SHORT_ITEM, _GROUND, _WAY = (
    f"(?:{'|'.join(names)})" for names in (ITEMS[len(VITALS) :], MATERIALS[1:], DIRECTIONS)
)
_SHORT_VITALS: Final = " ".join(rf"{name}(\d)" for name in VITALS)
_SHORT_HEAD: Final = re.compile(
    rf"step(\d{{1,9}}) light(100|\d\d?) {_SHORT_VITALS}((?: {_SHORT_ITEM}\d)*)( asleep)?"
)
_SHORT_LAST: Final = re.compile(f"(?:did )?{ACTION}")
_SHORT_ACHIEVED: Final = re.compile("achieved (.+)")
_SHORT_STAND: Final = re.compile(f"(?:on ({_GROUND}) )?facing ({_WAY}) .+")
_PLACE: Final = rf"{_WAY}\d(?: {_WAY}\d)?"
_UNDER: Final = re.compile(f"ground( {_GROUND} {_PLACE})+")
_UNDER_CELL: Final = re.compile(f" ({_GROUND}) ({_PLACE})")


def read_short(lines: Lines) -> Observation:
    """Parse a text in the short form; redundant parts are read once."""
    like = "step12 light90 health9 food9 drink9 energy9 wood2"
    *head, carried, asleep = lines.expect(_SHORT_HEAD, like).groups()
    counts = dict(zip(VITALS, map(int, head[2:]), strict=True))
    counts |= {item[:-1]: int(item[-1]) for item in carried.split()}
    last = lines.match_next(_SHORT_LAST)
    achieved = lines.match_next(_SHORT_ACHIEVED) if last else None
    stand = lines.expect(_SHORT_STAND, "facing down grass near tree left2 up1")
    you = MapCell(stand[1] or USUAL_GROUND["player"], "player", stand[2])
    cells = lines.read_cells(_SHORT_CELLS, (GLYPHS["player"], you), "")
    ground = lines.match_next(_UNDER)
    if ground:
        for material, place in _UNDER_CELL.findall(ground[0]):
            if place not in _SHORT_PLACES:
                lines.fail(f"{place!r} is not in view")
            i = _SHORT_PLACES.index(place)
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


def parse(text: str) -> Observation:
    """Parse the output of `full_text` or `short_text`, or raise UsageError.

    The text must contain the whole observation and nothing else.
    """
    if not isinstance(text, str):
        raise UsageError(f"not an observation: {text!r}; give the text as a str")
    lines = Lines(text)
    if text.startswith("Step"):
        observation = read_full(lines)
        rewritten = full_text(observation)
    else:
        observation = read_short(lines)
        rewritten = short_text(observation)
    if rewritten != text:
        lines.compare(rewritten)
    return observation

"""The full form: sentences and a map of words, for models that read well."""

import re
from typing import Final

from ..rules import ITEMS, MATERIALS, MAX_ITEM, VITALS
from .lines import ACTION, Lines, assemble
from .observation import ACROSS, CELLS, CENTER, DIRECTIONS, DOWN, MapCell, Observation
from .words import OFFSETS, last_action, nearest

__all__ = ["full_text", "read_full"]

_NEAR_TITLE: Final = "Nearest of each kind in view:"
_MAP_TITLE: Final = (
    f"Map, {ACROSS} wide and {DOWN} high, you in the middle; a/b means a stands on b:"
)
_PLACES: Final = tuple(", ".join(f"{n} {way}" for n, way in offset) for offset in OFFSETS)


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
_CELLS: Final = {word: cell for cell, word in _WORDS.items() if cell.thing != "player"}


def full_text(observation: Observation) -> str:
    """An observation in sentences; `parse` reads it back."""
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
    lines.append(f"You stand on {ground} and face {o.facing}, towards {_in_words(o.ahead)}.")
    lines.append(_NEAR_TITLE)
    for kind, i in nearest(o).items():
        flying = f", flying {o.cells[i].detail}" if kind == "arrow" else ""
        lines.append(f"- {kind}: {_PLACES[i]}{flying}")
    lines.append(_MAP_TITLE)
    words = [_WORDS[cell] for cell in o.cells]
    lines += [" ".join(words[i : i + ACROSS]) for i in range(0, len(words), ACROSS)]
    return "\n".join(lines)


def _in_words(cell: MapCell) -> str:
    if cell.thing is None:
        return cell.material
    flying = f" flying {cell.detail}" if cell.thing == "arrow" else ""
    return f"{cell.kind}{flying} on {cell.material}"


_HEAD: Final = re.compile(r"Step (\d{1,9}), daylight (100|\d\d?)%\.")
_LAST: Final = re.compile(rf"Last action: {ACTION}\.")
_ACHIEVED: Final = re.compile(r"New achievement: (.+)\.")
_VITALS: Final = re.compile(
    ", ".join(rf"{name} (\d)/{MAX_ITEM}" for name in VITALS).capitalize() + r"\."
)
_ITEM: Final = rf"\d (?:{'|'.join(ITEMS[len(VITALS) :])})"
_CARRIED: Final = re.compile(rf"You carry (nothing|{_ITEM}(?:, {_ITEM})*)\.")
_ASLEEP: Final = re.compile(r"You are asleep\.")
_DEAD: Final = re.compile(r"You are dead\.")
_STAND: Final = re.compile(
    rf"You stand on ({'|'.join(MATERIALS[1:])}) and face ({'|'.join(DIRECTIONS)}), towards .+\."
)
_NEAR_START: Final = re.compile(re.escape(_NEAR_TITLE))
_NEAR: Final = re.compile("- .+")
_MAP_START: Final = re.compile(re.escape(_MAP_TITLE))


def read_full(lines: Lines) -> Observation:
    """What a text of the full form says; what it says twice is read once."""
    head = lines.take(_HEAD, "Step 12, daylight 90%.").groups()
    last = lines.maybe(_LAST)
    achieved = lines.maybe(_ACHIEVED) if last else None
    vitals = lines.take(_VITALS, "Health 9/9, food 9/9, drink 9/9, energy 9/9.").groups()
    counts = dict(zip(VITALS, map(int, vitals), strict=True))
    carried = lines.take(_CARRIED, "You carry 2 wood, 1 sapling.")[1]
    if carried != "nothing":
        counts |= {item[2:]: int(item[0]) for item in carried.split(", ")}
    sleeping = lines.maybe(_ASLEEP) is not None
    lines.maybe(_DEAD)
    stand = lines.take(_STAND, "You stand on grass and face down, towards tree.")
    lines.take(_NEAR_START, _NEAR_TITLE)
    while lines.maybe(_NEAR):
        pass
    lines.take(_MAP_START, _MAP_TITLE)
    you = MapCell(stand[1], "player", stand[2])
    return assemble(
        lines,
        head=head,
        sleeping=sleeping,
        counts=counts,
        cells=lines.cells(_CELLS, (_WORDS[you], you), " "),
        last=last,
        achieved=achieved[1].split(", ") if achieved else (),
    )

"""Words that the full and the short form share: the nearest of each kind, and reasons."""

from collections.abc import Iterable, Mapping
from typing import Final

from ..rules import COLLECT, MAKE, PLACE, WALKABLE, NoEffect
from .observation import ACROSS, CENTER, DIRECTIONS, DOWN, STEPS, Observation

__all__ = ["OFFSETS", "join", "last_action", "nearest", "why"]

OFFSETS: Final = tuple(
    tuple(
        (abs(away), DIRECTIONS[2 * axis + (away > 0)])
        for axis, away in enumerate((i % ACROSS - ACROSS // 2, i // ACROSS - DOWN // 2))
        if away
    )
    for i in range(ACROSS * DOWN)
)
"""How each cell is reached from the player's: so many steps in one or two directions."""

_BY_DISTANCE: Final = tuple(
    sorted(
        (i for i in range(ACROSS * DOWN) if i != CENTER),
        key=lambda i: sum(steps for steps, _ in OFFSETS[i]),
    )
)
# Of cells equally far away, the one in front needs no turn.
_SEARCH: Final = {way: (CENTER + STEPS[way], *_BY_DISTANCE) for way in DIRECTIONS}


def nearest(observation: Observation) -> dict[str, int]:
    """The index of the nearest cell of each kind in view, nearest first."""
    found: dict[str, int] = {}
    cells = observation.cells
    for i in _SEARCH[observation.facing]:
        cell = cells[i]
        kind = cell.kind if cell.detail else cell.thing or cell.material
        if kind not in found:
            found[kind] = i
    return found


def join(names: Iterable[str], word: str = "and") -> str:
    """Names as a list in a sentence: `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} {word} {last}" if most else last


def last_action(observation: Observation) -> str:
    """The last action and, where it changed nothing, why."""
    action, reason = observation.action, observation.no_effect
    if action is None or reason is None:
        return action or ""
    return f"{action} did nothing: {why(observation, action, reason)}"


def why(observation: Observation, action: str, reason: NoEffect) -> str:
    """Why an action had no effect, told after the step.

    Creatures have moved since then, so what is in front now is only blamed where no
    creature can have been the cause.
    """
    ahead = observation.ahead
    material = "the edge of the world" if ahead.material == "outside" else ahead.material
    name = action.partition("_")[2]
    match reason:
        case NoEffect.BLOCKED:
            open_ground = ahead.material in (*WALKABLE, "lava")
            return f"{'something' if open_ground else material} was in the way"
        case NoEffect.NOTHING_THERE:
            if ahead.thing or ahead.material in COLLECT:
                return "nothing there to collect, fight or eat"
            return f"{material} gives nothing"
        case NoEffect.NOT_RIPE:
            return "the plant was not ripe"
        case NoEffect.NEEDS_TOOL:
            rule = COLLECT.get(ahead.material)
            return f"{material} needs {(rule and rule.tool) or 'a tool'}"
        case NoEffect.NO_ROOM:
            return f"needs free {join(PLACE[name].where, 'or')} in front"
        case NoEffect.NEEDS_NEARBY:
            return _not_nearby(observation, MAKE[name].nearby)
        case NoEffect.NEEDS_ITEMS:
            recipe = PLACE[name] if action.startswith("place_") else MAKE[name]
            return _too_little(observation, recipe.uses)
        case NoEffect.ASLEEP:
            return "you were asleep"


def _too_little(observation: Observation, uses: Mapping[str, int]) -> str:
    lacking = {item: n for item, n in uses.items() if observation.count(item) < n}
    return "; ".join(
        f"needs {n} {item}, you have {observation.count(item)}"
        for item, n in (lacking or uses).items()
    )


def _not_nearby(observation: Observation, needed: tuple[str, ...]) -> str:
    around = {cell.material for cell in observation.around}
    lacking = [name for name in needed if name not in around]
    if lacking:
        return f"no {join(lacking, 'and no')} within one cell"
    # As in the reference, nothing counts as near in the first column and row.
    return f"no {join(needed, 'or')} counts at the left and top edge of the world"

"""The rules as text for system prompts. Every number comes from the data in `rules`."""

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from assay.crafter import rules as _rules
from assay.crafter.text.forms import GLYPHS, USUAL_GROUND
from assay.crafter.text.observation import DIRECTIONS
from assay.crafter.text.wording import join

_MOVES: Final = ", ".join(f"move_{way}" for way in DIRECTIONS)


def rules_text(*, short: bool = False) -> str:
    """Return the rules of the game, for the system prompt.

    The short version belongs to `short_text` and explains the glyphs of its map.
    """
    return describe_rules(_rules, short=short)


def describe_rules(rules: ModuleType, *, short: bool) -> str:
    """Describe the rules in a module like `assay.crafter.rules`."""
    return "\n".join(_write_short(rules) if short else _write_full(rules))


def _write_full(rules: Any) -> Iterator[str]:
    width, height = rules.VIEW
    yield (
        f"You play Crafter, a game of survival in a world of {rules.AREA} x {rules.AREA} "
        f"cells. You see the {width} x {height} cells around you. Reach as many of the "
        f"{len(rules.ACHIEVEMENTS)} achievements as you can, and stay alive."
    )
    yield f"\nAchievements: {', '.join(rules.ACHIEVEMENTS)}."
    yield "\nActions, one in each step:"
    yield from _full_actions(rules)
    yield "\nWhat the action do gives, by what is in front of you:"
    yield from _full_targets(rules)
    yield "\nStaying alive:"
    yield from _full_survival(rules)


def _full_actions(rules: Any) -> Iterator[str]:
    yield "- noop: wait."
    yield (
        f"- {_MOVES}: turn that way and walk one cell, if it is free "
        f"{join(rules.WALKABLE, 'or')}. Lava can be walked into, and kills you."
    )
    yield "- do: collect, fight or eat what is in front of you."
    yield f"- sleep: fall asleep, if your energy is below {rules.MAX_ITEM}."
    for name, place in rules.PLACE.items():
        yield (
            f"- place_{name}: uses {_amounts(place.uses)}; "
            f"needs free {join(place.where, 'or')} in front of you."
        )
    for name, make in rules.MAKE.items():
        yield f"- make_{name}: uses {_amounts(make.uses)}; needs {join(make.nearby)} near you."
    yield (
        "Near means within one cell, diagonals included. "
        "At the left and top edge of the world nothing is near."
    )


def _full_targets(rules: Any) -> Iterator[str]:
    for material, rule in rules.COLLECT.items():
        chance = f", with a chance of {rule.chance:.0%}" if rule.chance < 1 else ""
        tool = f", if you have {rule.tool}" if rule.tool else ""
        leaves = f"; it turns to {rule.leaves}" if rule.leaves != material else ""
        yield f"- {material}: {rule.item}{chance}{tool}{leaves}."
    yield (
        f"- ripe plant: {rules.FOOD['plant']} food; it then grows anew. "
        "Before it is ripe, a plant gives nothing."
    )
    yield f"- cow: {rules.FOOD['cow']} food, when its health is gone."
    blows = join(f"{n} with {weapon}" for weapon, n in rules.DAMAGE.items())
    yield f"Your blows take from a creature {blows}; the best counts."
    health = [f"{name} {creature.health}" for name, creature in rules.CREATURES.items()]
    yield f"Health of creatures: {', '.join(health)}."


def _full_survival(rules: Any) -> Iterator[str]:
    yield (
        f"- {join(rules.VITALS).capitalize()} start at {rules.MAX_ITEM}. "
        f"No count goes above {rules.MAX_ITEM}. Without health you are dead."
    )
    wear = join(f"{item} after {steps}" for item, steps in rules.WEAR.items())
    yield (
        f"- You lose one {wear} steps or so; in sleep food and drink last longer. While you "
        f"have all three, one health comes back after {rules.RECOVER_AFTER} steps or so; "
        f"while one is used up, one is lost after {rules.SUFFER_AFTER}."
    )
    yield (
        f"- Sleep gives one energy after {rules.REST_AFTER} steps or so. Asleep you carry "
        "out no other action. You wake when your energy is full, which achieves wake_up, or "
        "when you are hurt."
    )
    yield (
        f"- A blow of a zombie beside you costs {_damage(rules, 'zombie')}. Zombies walk on "
        "grassland, and there are more of them in the dark."
    )
    yield (
        f"- Skeletons live in tunnels and shoot. An arrow costs {_damage(rules, 'skeleton')}, "
        "and destroys a table or furnace that it hits."
    )
    yield (
        f"- A plant is ripe after more than {rules.RIPE_AFTER} steps. "
        f"A {join(rules.CREATURES, 'or')} beside it destroys it."
    )


def _write_short(rules: Any) -> Iterator[str]:
    yield f"Crafter: stay alive and achieve {' '.join(rules.ACHIEVEMENTS)}"
    yield from _short_actions(rules)
    yield f"your blow: {_counts(rules.DAMAGE)}"
    health = {name: creature.health for name, creature in rules.CREATURES.items()}
    yield f"creature health: {_counts(health)}"
    yield f"zombie beside you costs {_damage(rules, 'zombie')}"
    yield f"arrow costs {_damage(rules, 'skeleton')}"
    yield f"plant: ripe after more than {rules.RIPE_AFTER} steps; creatures beside destroy it"
    yield f"sleep: gives energy, if below {rules.MAX_ITEM}; no action until full or hurt"
    yield f"steps until one is lost: {_counts(rules.WEAR)}"
    yield f"counts: at most {rules.MAX_ITEM}; no food, drink or energy costs health"
    yield f"map: {', '.join(f'{glyph} {kind}' for kind, glyph in GLYPHS.items())}"
    ground = [f"{thing} on {material}" for thing, material in USUAL_GROUND.items()]
    yield f"unless told otherwise: {', '.join(ground)}"


def _short_actions(rules: Any) -> Iterator[str]:
    yield f"{_MOVES}: turn, then walk on {'/'.join(rules.WALKABLE)}; lava kills"
    yield "do: use what is in front"
    for material, rule in rules.COLLECT.items():
        chance = f" chance {rule.chance:.0%}" if rule.chance < 1 else ""
        tool = f" needs {rule.tool}" if rule.tool else ""
        leaves = f" leaves {rule.leaves}" if rule.leaves != material else ""
        yield f"do {material}: {rule.item}{tool}{chance}{leaves}"
    yield f"do ripe plant: food{rules.FOOD['plant']}"
    yield f"do cow: food{rules.FOOD['cow']}"
    for name, place in rules.PLACE.items():
        yield f"place_{name}: {_counts(place.uses)} on {'/'.join(place.where)}"
    for name, make in rules.MAKE.items():
        yield f"make_{name}: {_counts(make.uses)} near {' '.join(make.nearby)}"
    yield "near: within one cell"


def _amounts(uses: Mapping[str, int]) -> str:
    return join(f"{n} {item}" for item, n in uses.items())


def _counts(counts: Mapping[str, int]) -> str:
    """Format counts as in the short form."""
    return " ".join(f"{name}{n}" for name, n in counts.items())


def _damage(rules: Any, creature: str) -> str:
    harm = rules.CREATURES[creature]
    asleep = f", {harm.damage_asleep} if you sleep"
    return f"{harm.damage} health{asleep if harm.damage_asleep != harm.damage else ''}"

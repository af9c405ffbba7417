"""Streams of actions and of edits that take two worlds deep into the technology tree.

An edit is applied in the same way to the reference and to ours. Scenes are short
sequences that make the rare events of the game happen; between them the player acts at
random.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from assay.crafter import ACTIONS, ITEMS, MATERIALS, World

from .reference import Reference
from .saved import SCALAR, Saved

__all__ = ["Edit", "apply_to_ours", "apply_to_reference", "assisted", "plain"]

AROUND = [(-1, 0), (1, 0), (0, -1), (0, 1)]
WEIGHTS = np.array([1, 3, 3, 3, 3, 6, 0.5] + [0.4] * 10)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@dataclass(frozen=True)
class Edit:
    """An edit that is applied to both worlds."""

    inventory: dict[str, int] = field(default_factory=dict)
    cells: dict[tuple[int, int], str] = field(default_factory=dict)
    """Materials by offset from the player; cells that are taken stay as they are."""
    ripen: bool = False
    step: int | None = None
    beside: str | None = None
    """Put the player on a free cell next to the first thing of this kind, if any."""


def _target(edit: Edit, saved: Saved) -> tuple[int, int] | None:
    kinds = {"cow": 2, "zombie": 3, "skeleton": 4, "arrow": 5, "plant": 6}
    taken = {(x, y) for _, x, y, *_ in saved.things}
    for kind, x, y, *_ in saved.things:
        if edit.beside and kind == kinds[edit.beside]:
            for dx, dy in (*AROUND, (-3, 0), (0, 4)):
                cell = (x + dx, y + dy)
                inside = 0 <= cell[0] < 64 and 0 <= cell[1] < 64
                if inside and cell not in taken and saved.materials[cell] in (2, 4, 5):
                    return cell
    return None


def _free_cells(edit: Edit, saved: Saved) -> Iterator[tuple[int, int, str]]:
    taken = {(x, y) for _, x, y, *_ in saved.things}
    _, px, py, *_ = saved.things[0]
    for (dx, dy), material in edit.cells.items():
        x, y = px + dx, py + dy
        if 0 <= x < 64 and 0 <= y < 64 and (x, y) not in taken:
            yield x, y, material


def apply_to_ours(edit: Edit, world: World) -> World:
    """The edited world."""
    saved = Saved.read(world.snapshot())
    if target := _target(edit, saved):
        saved.move_player(*target)
    for x, y, material in _free_cells(edit, saved):
        saved.materials[x, y] = MATERIALS.index(material)
    for item, amount in edit.inventory.items():
        saved.inventory[ITEMS.index(item)] = amount
    if edit.ripen:
        for thing in saved.things:
            if thing[0] == 6:
                thing[4] = max(thing[4], 301)
    if edit.step is not None:
        saved.scalars[SCALAR["step"]] = edit.step
    return World.restore(saved.write())


def apply_to_reference(edit: Edit, env: Reference, before: Saved) -> None:
    """Apply the edit; `before` is our world before it, used to locate objects."""
    if target := _target(edit, before):
        env._world.move(env._player, np.array(target))
        before.move_player(*target)
    for x, y, material in _free_cells(edit, before):
        env._world[x, y] = material
    env._player.inventory.update(edit.inventory)
    if edit.ripen:
        for thing in env._world.objects:
            if hasattr(thing, "grown"):
                thing.grown = max(thing.grown, 301)
    if edit.step is not None:
        env._step = edit.step


TOOLS = {name: 1 for name in ITEMS if name.endswith("pickaxe")}
RICH = {"wood": 9, "stone": 9, "coal": 9, "iron": 9, "sapling": 9}
WELL = {"health": 9, "food": 9, "drink": 9, "energy": 9}


def _scene(rng: np.random.Generator, now: int) -> tuple[Edit, list[str]]:
    """A change of the world and what the player then does."""
    side = int(rng.integers(4))
    move = ACTIONS[1 + side]
    ahead = AROUND[side]
    other = AROUND[side ^ 1]
    scenes = [
        (  # mine whatever there is
            Edit(TOOLS | WELL, {ahead: str(rng.choice(MATERIALS[1:]))}),
            [move, "do", "do", move],
        ),
        (  # make everything, with or without the means
            Edit(
                {k: int(rng.integers(0, 3)) for k in ("wood", "stone", "coal", "iron")} | WELL,
                {other: "table", (other[0] + other[1], other[1] + other[0]): "furnace"},
            ),
            [str(name) for name in rng.permutation(ACTIONS[11:])],
        ),
        (Edit(RICH | WELL), [move, *(str(n) for n in rng.permutation(ACTIONS[7:11])), move]),
        (  # plant, wait for it to be ripe or eaten
            Edit(RICH | WELL | {"food": 3}, {ahead: "grass"}),
            [move, "place_plant", "do", *["noop"] * 3],
        ),
        (Edit(WELL, ripen=True, beside="plant"), [move, "do", *ACTIONS[1:5], "do", "do"]),
        (Edit(WELL, beside="zombie"), [*["do", move] * 6]),
        (Edit(WELL | {"iron_sword": 1}, beside="zombie"), [*ACTIONS[1:5], *["do"] * 3]),
        (Edit(WELL, beside="skeleton"), [move, "do", "noop", *["do", move] * 4]),
        (Edit(WELL | {"stone_sword": 1}, beside="skeleton"), [*ACTIONS[1:5] * 2, "do", "do"]),
        (Edit(WELL | {"food": 2}, beside="cow"), [move, *["do", move] * 4]),
        (  # sleep through part of a night
            Edit(WELL | {"energy": int(rng.integers(0, 9))}, step=now - now % 300 + 170),
            ["sleep", *["noop"] * 12, "do", move, "sleep"],
        ),
        (Edit({"food": 0, "drink": 0, "energy": 0}), ["noop"] * 9),
        (Edit({"energy": 8} | {"health": 5}), ["sleep", *["noop"] * 20]),
        (  # shoot at walls, tables and furnaces
            Edit(WELL, {(dx * 2, dy * 2): "table" for dx, dy in AROUND}, beside="skeleton"),
            ["noop"] * 10,
        ),
        (Edit(WELL | {"sapling": 1}, {ahead: "water", other: "tree"}), [move, "do", "do"]),
    ]
    return scenes[int(rng.integers(len(scenes)))]


def plain(seed: int, steps: int) -> Iterator[tuple[Edit | None, int]]:
    """Random actions, without help."""
    rng = np.random.default_rng([seed, 1])
    for _ in range(steps):
        yield None, int(rng.choice(17, p=WEIGHTS))


def assisted(
    seed: int, steps: int, *, deadly: bool = False, sturdy: bool = False
) -> Iterator[tuple[Edit | None, int]]:
    """Scenes with random actions between them; `deadly` ends in lava, `sturdy` lives long."""
    rng = np.random.default_rng([seed, 2])
    now = played = 0
    while played < steps:
        edit, actions = _scene(rng, now)
        if sturdy:
            dry = {cell: m for cell, m in edit.cells.items() if m != "lava"}
            hale = {k: max(v, 6) if k in WELL else v for k, v in edit.inventory.items()}
            edit = replace(edit, inventory={"health": 9} | hale, cells=dry)
        if edit.step is not None:
            now = max(now, edit.step)
        filler = [ACTIONS[i] for i in rng.choice(17, int(rng.integers(2, 9)), p=WEIGHTS)]
        for i, name in enumerate([*actions, *filler]):
            care = Edit({"health": 9}) if sturdy and i % 4 == 0 else None
            yield (edit if i == 0 else care), ACTIONS.index(name)
            now, played = now + 1, played + 1
    if deadly:
        yield Edit(WELL, dict.fromkeys(AROUND, "lava")), ACTIONS.index("move_left")
        for name in ("move_right", "move_up", "move_down"):
            yield None, ACTIONS.index(name)

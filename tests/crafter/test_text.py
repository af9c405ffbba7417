"""Text observations: both forms are complete, exact and parseable."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.crafter import rules
from assay.crafter.rules import ACHIEVEMENTS, ACTIONS, ITEMS, NoEffect
from assay.crafter.text.forms import GLYPHS, full_text, parse, short_text
from assay.crafter.text.guide import describe_rules, rules_text
from assay.crafter.text.observation import (
    CELLS,
    CENTER,
    DIRECTIONS,
    FAILURES,
    MapCell,
    Observation,
    observe,
)
from assay.crafter.view import View
from assay.crafter.world import StepResult, World
from assay.errors import UsageError

from .saved import Saved
from .streams import AROUND, RICH, Edit, apply_to_ours, assisted, plain

FORMS = pytest.mark.parametrize("form", [full_text, short_text], ids=["full", "short"])
PAGE = Path(__file__).parents[2] / "docs" / "text.md"

OTHERS = [cell for cell in CELLS if cell.thing != "player"]
PLAYERS = [cell for cell in CELLS if cell.thing == "player"]


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    # Bytes are drawn much faster than lists.
    cells = [OTHERS[i % len(OTHERS)] for i in draw(st.binary(min_size=63, max_size=63))]
    cells[CENTER] = draw(st.sampled_from(PLAYERS))
    counts = draw(st.binary(min_size=len(ITEMS), max_size=len(ITEMS)))
    action = draw(st.sampled_from([None, *ACTIONS]))
    return Observation(
        step=draw(st.integers(0, 999_999_999)),
        daylight=draw(st.integers(0, 100)),
        sleeping=draw(st.booleans()),
        inventory=tuple(count % (rules.MAX_ITEM + 1) for count in counts),
        cells=tuple(cells),
        action=action,
        achieved=tuple(draw(st.lists(st.sampled_from(ACHIEVEMENTS))) if action else ()),
        no_effect=draw(st.sampled_from([None, *FAILURES[action]])) if action else None,
    )


def read_or_error(text: str) -> tuple[Observation | None, str]:
    try:
        return parse(text), ""
    except UsageError as error:
        return None, str(error)


quick = settings(max_examples=200)


@quick
@given(observations())
def test_every_observation_can_be_read_back_from_both_forms(observation: Observation) -> None:
    assert parse(full_text(observation)) == observation
    assert parse(short_text(observation)) == observation


@pytest.mark.extras
@quick
@given(observations(), st.data())
def test_changed_text_is_rejected_or_round_trips(
    observation: Observation, data: st.DataObject
) -> None:
    form = data.draw(st.sampled_from([full_text, short_text]))
    text = form(observation)
    first = data.draw(st.integers(0, len(text)))
    last = data.draw(st.integers(first, min(len(text), first + 9)))
    patches = st.one_of(st.text(max_size=6), st.sampled_from(text.split()))
    changed = text[:first] + data.draw(patches) + text[last:]
    read, error = read_or_error(changed)
    assert re.search(r"line \d+ is ", error) if read is None else form(read) == changed


@quick
@given(st.text())
def test_invalid_text_is_rejected_with_its_line(text: str) -> None:
    with pytest.raises(
        UsageError, match=r"not an observation: line 1 is .*; expected one like"
    ):
        parse(text)


@dataclasses.dataclass(frozen=True)
class Told:
    """A step of a played world, with its observation."""

    before: World
    world: World
    result: StepResult
    observation: Observation


def played(seed: int, steps: int, *, deadly: bool = False) -> Iterator[Told]:
    """Play an assisted episode by day and night, observing every step."""
    world = World(seed)
    stream = plain(seed, steps) if seed % 4 == 0 else assisted(seed, steps, deadly=deadly)
    for edit, action in stream:
        if edit:
            world = apply_to_ours(edit, world)
        before = world.fork()
        result = world.step(action)
        yield Told(before, world, result, observe(world.view(), action=action, result=result))
        if result.done:
            return


@pytest.fixture(scope="module")
def told() -> list[Observation]:
    """Thousands of observations from worlds that were played."""
    seeds = range(20, 44)
    return [t.observation for seed in seeds for t in played(seed, 220, deadly=True)]


@pytest.mark.extras
def test_played_worlds_can_be_read_back_from_both_forms(
    told: list[Observation], record_property: Callable[[str, object], None]
) -> None:
    for observation in told:
        assert parse(full_text(observation)) == observation
        assert parse(short_text(observation)) == observation
    record_property("note", f"{len(told)} observations of played worlds were read back")
    assert len(told) > 2_000


def test_sampled_worlds_contain_rare_situations(told: list[Observation]) -> None:
    cells = {cell for observation in told for cell in observation.cells}
    assert {cell.detail for cell in cells if cell.thing == "arrow"} == {*DIRECTIONS}
    assert {cell.kind for cell in cells} == {*rules.MATERIALS, *rules.OBJECTS, "ripe plant"}
    assert {o.facing for o in told} == {*DIRECTIONS}
    assert {o.no_effect for o in told} == {None, *NoEffect}
    assert {o.action for o in told} == {*ACTIONS}
    assert min(o.daylight for o in told) < 10
    assert max(o.daylight for o in told) == 100
    assert any(o.sleeping for o in told)
    assert any(o.count("health") == 0 for o in told)
    assert len({name for o in told for name in o.achieved}) >= 18


@pytest.mark.parametrize("seed", [21, 24])
def test_text_describes_the_world_state(seed: int) -> None:
    names = (*rules.MATERIALS, *rules.OBJECTS)
    for step in played(seed, 60):
        world, lines = step.world, full_text(step.observation).split("\n")
        (x, y), (dx, dy) = world.player_pos, world.facing
        around = np.pad(world.semantic(), 4)[x : x + 9, y + 1 : y + 8]
        # Names without what is said of them: arrow-left/path is an arrow, you are the player.
        shown = [
            [
                re.sub("^ripe-|-.*|/.*", "", word).replace("you", "player")
                for word in row.split()
            ]
            for row in lines[-7:]
        ]
        assert [[names[i] for i in column] for column in around.T] == shown
        assert lines[0] == f"Step {world.steps}, daylight {round(100 * world.daylight)}%."
        for item in rules.VITALS:
            assert (
                f"{item} {world.inventory[item]}/9"
                in lines[2 + bool(step.result.unlocked)].lower()
            )
        for item in ITEMS[4:]:
            count = re.search(rf"(\d) {item}\b(?!_)", lines[3 + bool(step.result.unlocked)])
            assert int(count[1] if count else 0) == world.inventory[item]
        [stand] = [line for line in lines if line.startswith("You stand")]
        ahead = around[4 + dx, 3 + dy]
        assert re.search(rf"towards (ripe )?{names[ahead]}\b", stand)


@pytest.mark.parametrize("seed", [22, 25])
def test_nearest_object_of_each_kind_is_correct(seed: int) -> None:
    signs = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
    for step in played(seed, 60):
        found = dict(
            re.findall(
                r"^- ([a-z ]+): (.*?)(?:, flying.*)?$", full_text(step.observation), re.M
            )
        )
        distances: dict[str, int] = {}
        for i, cell in enumerate(step.observation.cells):
            far = abs(i % 9 - 4) + abs(i // 9 - 3)
            if far:
                distances[cell.kind] = min(far, distances.get(cell.kind, 99))
        assert {
            kind: sum(map(int, re.findall(r"\d", place))) for kind, place in found.items()
        } == distances
        for kind, place in found.items():
            at = np.array([4, 3])
            for count, way in re.findall(r"(\d) (\w+)", place):
                at += int(count) * np.array(signs[way])
            assert step.observation.cells[at[1] * 9 + at[0]].kind == kind


def test_reason_for_a_failed_action_was_true_at_the_time() -> None:
    checked = set()
    for seed in range(20, 40):
        for step in played(seed, 150):
            reason = step.result.no_effect
            if reason is None:
                continue
            told = full_text(step.observation).split("\n")[1]
            view = step.before.view()
            ways = dict(zip(DIRECTIONS, AROUND, strict=True))
            dx, dy = ways[step.observation.facing]
            material = rules.MATERIALS[view.materials[4 + dx, 3 + dy]]
            taken = bool(view.objects[4 + dx, 3 + dy])
            if found := re.search(r": (\w+) was in the way", told):
                assert found[1] == material or (found[1] == "something" and taken)
            elif found := re.search(r": (\w+) gives nothing", told):
                assert found[1] == material
            elif found := re.search(r": (\w+) needs (\w+_pickaxe)", told):
                assert found[1] == material
                assert step.before.inventory[found[2]] == 0
            for count, item, have in re.findall(r"needs (\d) (\w+), you have (\d)", told):
                assert step.before.inventory[item] == int(have) < int(count)
            for name in re.findall(r"no (\w+)", told.partition(" within one cell")[0]):
                if name in rules.MATERIALS:
                    near = view.materials[3:6, 2:5]
                    assert rules.MATERIALS.index(name) not in near
            checked.add(reason)
    assert checked == {*NoEffect}


def test_nothing_beyond_the_view_changes_the_text() -> None:
    world = World(167)
    saved = Saved.read(world.snapshot())
    x, y = world.player_pos
    seen = np.zeros((64, 64), bool)
    seen[x - 4 : x + 5, y - 3 : y + 4] = True
    taken = {(thing[1], thing[2]) for thing in saved.things}
    for cell in np.argwhere(~seen).tolist():
        if (*cell,) not in taken:
            saved.materials[*cell] = 7
    for thing in saved.things[1:]:
        thing[3] = 1  # health, which nobody sees
    other = World.restore(saved.write())
    assert not np.array_equal(world.semantic(), other.semantic())
    assert "cow" in full_text(observe(world.view()))
    for form in (full_text, short_text):
        assert form(observe(world.view())) == form(observe(other.view()))


FAILED: dict[str, tuple[Edit, list[str]]] = {
    "move_down did nothing: stone was in the way": (
        Edit(cells={(0, 1): "stone"}),
        ["move_down"],
    ),
    "do did nothing: sand gives nothing": (Edit(cells={(0, 1): "sand"}), ["do"]),
    "do did nothing: the plant was not ripe": (Edit(RICH), ["place_plant", "do"]),
    "do did nothing: iron needs stone_pickaxe": (
        Edit({"wood_pickaxe": 1}, {(0, 1): "iron"}),
        ["do"],
    ),
    "place_table did nothing: needs 2 wood, you have 1": (
        Edit({"wood": 1}),
        ["place_table"],
    ),
    "place_plant did nothing: needs free grass in front": (
        Edit(RICH, {(0, 1): "sand"}),
        ["place_plant"],
    ),
    "place_table did nothing: needs free grass, sand or path in front": (
        Edit(RICH, {(0, 1): "water"}),
        ["place_table"],
    ),
    "make_wood_pickaxe did nothing: no table within one cell": (
        Edit(RICH),
        ["make_wood_pickaxe"],
    ),
    "make_iron_sword did nothing: no table and no furnace within one cell": (
        Edit(RICH),
        ["make_iron_sword"],
    ),
    "make_iron_sword did nothing: no furnace within one cell": (
        Edit(RICH, {(1, 0): "table"}),
        ["make_iron_sword"],
    ),
    "make_iron_pickaxe did nothing: needs 1 coal, you have 0; needs 1 iron, you have 0": (
        Edit({"wood": 1}, {(1, 0): "table", (1, 1): "furnace"}),
        ["make_iron_pickaxe"],
    ),
    "move_left did nothing: you were asleep": (Edit({"energy": 3}), ["sleep", "move_left"]),
}


@pytest.mark.parametrize("sentence", FAILED)
def test_failed_action_lists_its_requirements(sentence: str) -> None:
    edit, actions = FAILED[sentence]
    world = apply_to_ours(Edit(cells=dict.fromkeys(AROUND, "grass")), World(3))
    world = apply_to_ours(edit, world)
    for name in actions:
        result = world.step(name)
    action = ACTIONS.index(actions[-1])
    observation = observe(world.view(), action=action, result=result)
    assert f"\nLast action: {sentence}.\n" in full_text(observation)
    assert f"\n{sentence}\n" in short_text(observation)


def test_a_table_that_does_not_count_at_the_edge_is_explained() -> None:
    saved = Saved.read(World(1).snapshot())
    taken = {(thing[1], thing[2]) for thing in saved.things}
    y = next(y for y in range(20, 40) if not taken & {(0, y), (1, y)})
    saved.move_player(0, y)
    saved.materials[0, y] = rules.MATERIALS.index("grass")
    saved.materials[1, y] = rules.MATERIALS.index("table")
    saved.inventory[ITEMS.index("wood")] = 5
    world = World.restore(saved.write())
    result = world.step("make_wood_sword")
    observation = observe(world.view(), action=14, result=result)
    assert "no table counts at the left and top edge of the world" in full_text(observation)


def a_view(**changes: Any) -> View:
    return dataclasses.replace(World(167).view(), **changes)


def test_text_reports_sleep_death_and_achievements() -> None:
    result = StepResult(1.0, False, None, ("collect_wood", "wake_up"), None)
    view = a_view(sleeping=True, inventory=dict.fromkeys(ITEMS, 0))
    observation = observe(view, action=5, result=result)
    assert "You are asleep." in full_text(observation)
    assert "You are dead." in full_text(observation)
    assert "New achievement: collect_wood, wake_up." in full_text(observation)
    assert "You carry nothing." in full_text(observation)
    assert short_text(observation).startswith("step0 light")
    assert "energy0 asleep\ndid do\nachieved collect_wood wake_up\n" in short_text(observation)


def test_ground_below_objects_is_in_both_forms() -> None:
    view = a_view()
    view.objects[2, 1], view.details[2, 1], view.materials[2, 1] = 17, 2, 1
    view.materials[4, 3] = 5
    observation = observe(view)
    assert observation.cells[1 * 9 + 2] == MapCell("water", "arrow", "right")
    full, short = full_text(observation), short_text(observation)
    assert "arrow-right/water" in full
    assert "You stand on sand and" in full
    assert "- arrow: 2 left, 2 up, flying right" in full
    assert "on sand facing" in short
    assert "arrow left2 up2 flying right" in short
    assert short.endswith("\nground water left2 up2")


def test_short_form_does_not_repeat_the_facing_cell() -> None:
    world = World(167)
    for _ in range(3):
        world.step("move_right")
    line = short_text(observe(world.view())).split("\n")[1]
    assert line.startswith("facing right tree near ")
    assert line.count("tree") == 1


def test_the_short_form_is_far_shorter(told: list[Observation]) -> None:
    lengths = [(len(short_text(o)), len(full_text(o))) for o in told]
    assert max(short / full for short, full in lengths) < 0.5


@FORMS
def test_a_line_that_contradicts_the_map_is_named(form: Any) -> None:
    text = form(observe(a_view()))
    changed = text.replace("tree", "iron", 1)
    assert changed != text
    with pytest.raises(UsageError, match=r"line \d+ is .*; by the rest of the text"):
        parse(changed)


@FORMS
def test_a_text_with_a_line_missing_doubled_or_added_is_refused(form: Any) -> None:
    result = StepResult(1.0, False, None, ("eat_cow",), None)
    lines = form(observe(a_view(), action=5, result=result)).split("\n")
    whole = "\n".join(lines)
    for i, line in enumerate(lines):
        for changed in (
            [*lines[:i], *lines[i + 1 :]],
            [*lines[:i], line, *lines[i:]],
            [*lines[:i], "", *lines[i:]],
        ):
            read, error = read_or_error("\n".join(changed))
            if read is None:
                assert re.search(r"line \d+ is", error)
            else:
                # Without the line of the achievement it is another text, and a good one.
                assert read.achieved == ()
                assert "eat_cow" in line
    assert parse(whole).achieved == ("eat_cow",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(
            "did do", "did jump", r"line 2 is 'did jump'; expected one like", id="action"
        ),
        pytest.param(
            "eat_cow", "eat_hay", r"line 3 .* 'eat_hay' is not an ach", id="achievement"
        ),
        pytest.param("health9", "health10", r"line 1 is 'step0", id="count"),
        pytest.param("facing", "on outside facing", r"line 4 .*expected one like", id="ground"),
        pytest.param("@", "-", r"line \d+ .*'-' cannot be the middle", id="player"),
        pytest.param("T", "Y", r"line \d+ .*'Y' cannot be a cell", id="cell"),
        pytest.param("did do", "do did nothing: bad luck", r"line 2 .*expected", id="reason"),
    ],
)
def test_unparsable_part_is_named_in_the_error(old: str, new: str, message: str) -> None:
    result = StepResult(1.0, False, None, ("eat_cow",), None)
    text = short_text(observe(a_view(), action=5, result=result))
    assert old in text
    with pytest.raises(UsageError, match=message):
        parse(text.replace(old, new))


@pytest.mark.parametrize(
    "around", ["\n{}", "{}\n", " {}", "{} ", "You see:\n{}", "{}\nWhat now?"]
)
@FORMS
def test_text_with_surrounding_lines_is_rejected(form: Any, around: str) -> None:
    with pytest.raises(UsageError, match=r"line \d+ is"):
        parse(around.format(form(observe(a_view()))))


def test_parser_accepts_only_text() -> None:
    with pytest.raises(UsageError, match="give the text as a str"):
        parse(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"step": -1},
        {"step": True},
        {"daylight": 101},
        {"daylight": 0.5},
        {"sleeping": 1},
        {"inventory": (10,) * 16},
        {"inventory": (1,) * 15},
        {"inventory": [1] * 16},
        {"cells": ()},
        {"cells": (MapCell("grass"),) * 63},
        {"cells": (MapCell("grass", "player", "up"),) * 63},
        {"cells": (("grass", None, None),) * 63},
        {"action": "jump"},
        {"action": 5},
        {"achieved": ("collect_wood",)},
        {"no_effect": NoEffect.BLOCKED},
        {"action": "do", "achieved": ["collect_wood"]},
        {"action": "do", "achieved": ("win",)},
        {"action": "do", "no_effect": NoEffect.BLOCKED},
        {"action": "noop", "no_effect": NoEffect.ASLEEP},
    ],
    ids=repr,
)
def test_unrepresentable_observation_is_rejected(changes: dict[str, Any]) -> None:
    observation = observe(a_view())
    with pytest.raises(UsageError, match=r"observation: \w+ = .* is not allowed; give"):
        dataclasses.replace(observation, **changes)


def test_observation_needs_an_action_with_result_and_a_valid_view() -> None:
    result = StepResult(0.0, False, None, (), None)
    assert observe(a_view(), action=3, result=result).action == "move_up"
    with pytest.raises(UsageError, match="a result was given without its action"):
        observe(a_view(), result=result)
    with pytest.raises(UsageError, match="action = 17 is not allowed"):
        observe(a_view(), action=17)
    with pytest.raises(UsageError, match="not a view: material, object and detail"):
        observe(a_view(details=np.full((9, 7), 9, np.uint8)))


BOTH = pytest.mark.parametrize("short", [False, True], ids=["full", "short"])


def with_other_numbers(value: Any, fresh: Iterator[int]) -> Any:
    """A copy of a rule with every number in it replaced by one that was not used before."""
    match value:
        case bool() | str() | None:
            return value
        case int():
            return next(fresh)
        case float():
            return next(fresh) / 100
        case MappingProxyType():
            return MappingProxyType({k: with_other_numbers(v, fresh) for k, v in value.items()})
        case tuple():
            parts = [with_other_numbers(part, fresh) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        case _:
            return value


def altered_rules(**changes: Any) -> ModuleType:
    other = ModuleType("other_rules")
    vars(other).update({k: v for k, v in vars(rules).items() if k[0] != "_"} | changes)
    return other


@BOTH
def test_numbers_in_the_rules_text_come_from_the_rules(short: bool) -> None:
    fresh = iter(range(1_000, 9_999))
    tables = {k: v for k, v in vars(rules).items() if k[0] != "_" and k.isupper()}
    other = altered_rules(**{k: with_other_numbers(v, fresh) for k, v in tables.items()})
    numbers = [int(n) for n in re.findall(r"\d+", describe_rules(other, short=short))]
    assert len(numbers) > 20
    assert {n for n in numbers if n < 1_000} <= {len(rules.ACHIEVEMENTS)}


NUMBERS_TOLD = {
    "a recipe": {
        "PLACE": {"table": rules.PlaceRule(MappingProxyType({"wood": 77}), ("grass",))}
    },
    "a tool": {"MAKE": {"wood_pickaxe": rules.Make(MappingProxyType({"coal": 77}), ("tree",))}},
    "a chance": {"COLLECT": {"grass": rules.Collect("sapling", None, "grass", 0.77)}},
    "a weapon": {"DAMAGE": {"stick": 77}},
    "a creature": {
        "CREATURES": dict(rules.CREATURES) | {"zombie": rules.Creature(77, 77, 77)},
    },
    "ripeness": {"RIPE_AFTER": 77},
    "the most of an item": {"MAX_ITEM": 77},
}


@BOTH
@pytest.mark.parametrize("change", NUMBERS_TOLD.values(), ids=NUMBERS_TOLD)
def test_changed_rule_appears_in_the_rules_text(change: dict[str, Any], short: bool) -> None:
    assert "77" not in rules_text(short=short)
    assert "77" in describe_rules(altered_rules(**change), short=short)


@BOTH
def test_the_rules_name_every_action_achievement_and_recipe(short: bool) -> None:
    text = rules_text(short=short)
    told = [*ACHIEVEMENTS, *rules.COLLECT, *rules.DAMAGE, *rules.CREATURES, *rules.VITALS]
    told += [name for name in ACTIONS if name != "noop"]
    assert [name for name in told if name not in text] == []


@pytest.mark.parametrize(
    "rule",
    [
        "place_table: uses 2 wood; needs free grass, sand or path",
        "place_furnace: uses 4 stone;",
        "place_stone: uses 1 stone; needs free grass, sand, path, water or lava",
        "place_plant: uses 1 sapling; needs free grass in front",
        "make_wood_sword: uses 1 wood; needs table near",
        "make_stone_pickaxe: uses 1 wood and 1 stone; needs table near",
        "make_iron_pickaxe: uses 1 wood, 1 coal and 1 iron; needs table and furnace near",
        "Near means within one cell",
        "tree: wood; it turns to grass",
        "diamond: diamond, if you have iron_pickaxe; it turns to path",
        "grass: sapling, with a chance of 10%",
        "5 with iron_sword, 3 with stone_sword, 2 with wood_sword and 1 with bare hands",
        "cow 3, zombie 5, skeleton 3",
        "zombie beside you costs 2 health, 7 if you sleep",
        "An arrow costs 2 health",
        "ripe after more than 300 steps",
        "Lava can be walked into, and kills you",
        "energy is below 9",
    ],
)
def test_rules_text_describes_the_implemented_rules(rule: str) -> None:
    assert rule in rules_text()


def test_the_legend_names_every_glyph_once() -> None:
    assert len({*GLYPHS.values()}) == len(GLYPHS)
    kinds = {cell.kind for cell in CELLS} - {"arrow"}
    assert kinds | {f"arrow {way}" for way in DIRECTIONS} == {*GLYPHS}
    legend = next(
        line for line in rules_text(short=True).split("\n") if line.startswith("map:")
    )
    assert [part.split(" ", 1) for part in legend[5:].split(", ")] == [
        [glyph, kind] for kind, glyph in GLYPHS.items()
    ]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```$", PAGE.read_text("utf-8"), re.M | re.S)


def test_docs_page_shows_the_output_of_its_program() -> None:
    program = next(block for block in blocks("python") if "print(full_text" in block)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(program, {})
    shown = [*blocks("text full"), *blocks("text short")]
    assert output.getvalue() == "".join(f"{block}\n" for block in shown)
    assert len(shown) == 2


def test_docs_page_contains_legend_and_rules() -> None:
    page = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| `(\S)` \| (.*?) \|", page, re.M)
    assert [(kind, glyph) for glyph, kind in rows] == [*GLYPHS.items()]
    assert blocks("text rules") == [rules_text(short=True)]


def test_docs_page_shows_the_error_for_a_changed_line() -> None:
    [text], [message] = blocks("text full"), blocks("text error")
    with pytest.raises(UsageError) as caught:
        parse(text.replace("- tree", "- iron"))
    assert str(caught.value) == message

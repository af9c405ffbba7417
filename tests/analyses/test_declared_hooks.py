"""Declared hooks: the meaning of each condition, error locations, and effects of firing."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import assay
from assay.analyses.enhanced_hooks import Sign, analyse_enhanced_hooks
from assay.analyses.hook_conditions import StepState
from assay.analyses.hook_files import SCHEMA, DeclaredHook, DeclaredHooks, read_hooks
from assay.errors import UsageError
from assay.stats.clusters import difference_within

from .facts import facts


def hook(when: Any, tmp_path: Path, **more: Any) -> DeclaredHook:
    path = tmp_path / "hooks.json"
    path.write_text(json.dumps({"hooks": [{"name": "x", "when": when, **more}]}))
    return read_hooks(path).hooks[0]


def states(*changes: dict[str, Any]) -> list[StepState]:
    """Return steps from 1 on, with defaults except for the given changes."""
    plain: dict[str, Any] = {
        "action": "noop",
        "no_effect": None,
        "reward": 0.0,
        "unlocked": frozenset(),
        "reached": frozenset(),
        "inventory": {},
        "sleeping": False,
        "night": False,
        "near": {},
        "text": "",
    }
    return [
        StepState(**{"step": step, "turn": step, **plain, **change})
        for step, change in enumerate(changes, 1)
    ]


WOOD = [{"inventory": {"wood": n}} for n in (0, 1, 3, 3, 0, 2)]


@pytest.mark.parametrize(
    ("when", "steps", "fires"),
    [
        pytest.param({"item": "wood", "at_least": 2}, WOOD, (3, 6), id="becomes true"),
        pytest.param({"item": "wood", "at_most": 0}, WOOD, (1, 5), id="at most"),
        pytest.param({"step": {"at_least": 2, "at_most": 3}}, WOOD, (2,), id="step"),
        pytest.param(
            {"action": ["do", "sleep"]}, [{"action": "do"}, {}, {"action": "sleep"}], (1, 3)
        ),
        pytest.param({"no_effect": True}, [{}, {"no_effect": "blocked"}], (2,), id="waste"),
        pytest.param({"no_effect": "no_room"}, [{}, {"no_effect": "blocked"}], (), id="why"),
        pytest.param(
            {"achievement": "eat_cow"}, [{}, {"unlocked": frozenset({"eat_cow"})}], (2,)
        ),
        pytest.param({"near": "zombie", "within": 2}, [{"near": {"zombie": 3}}] * 2, ()),
        pytest.param({"near": "zombie"}, [{"near": {"zombie": 3}}] * 2, (1,), id="in sight"),
        pytest.param({"text": "thir?st"}, [{"text": "I THIRST"}, {}], (1,), id="text"),
        pytest.param({"not": {"item": "wood", "at_least": 1}}, WOOD, (1, 5), id="not"),
        pytest.param(
            {"all": [{"item": "wood", "at_least": 1}, {"step": {"at_least": 4}}]}, WOOD, (4, 6)
        ),
        pytest.param({"any": [{"night": True}, {"sleeping": True}]}, [{"night": True}], (1,)),
    ],
)
def test_a_hook_fires_when_its_condition_becomes_true(
    when: Any, steps: list[dict[str, Any]], fires: tuple[int, ...], tmp_path: Path
) -> None:
    assert hook(when, tmp_path).firings(states(*steps)) == fires


def test_a_hook_with_every_fires_at_every_step(tmp_path: Path) -> None:
    when = {"item": "wood", "at_least": 2}
    assert hook(when, tmp_path, every=True).firings(states(*WOOD)) == (3, 4, 6)


@pytest.mark.parametrize(
    ("actions", "within", "fires"),
    [
        pytest.param("abc", None, (3,), id="in order"),
        pytest.param("axbxc", None, (5,), id="with others between"),
        pytest.param("cba", None, (), id="the wrong order"),
        pytest.param("axxbc", 3, (), id="too long ago"),
        pytest.param("axxabc", 3, (6,), id="begun again"),
        pytest.param("abcc", None, (3,), id="fires once"),
        pytest.param("aabc", 2, (4,), id="the latest beginning counts"),
    ],
)
def test_a_sequence_matches_if_its_parts_matched_in_order(
    actions: str, within: int | None, fires: tuple[int, ...], tmp_path: Path
) -> None:
    parts: dict[str, Any] = {"sequence": [{"action": letter} for letter in "abc"]}
    if within is not None:
        parts["within"] = within
    found = hook(parts, tmp_path)
    played = states(*({"action": letter} for letter in actions))
    assert found.firings(played) == fires
    # No state is carried over from one episode to the next.
    assert found.firings(states({"action": "c"})) == ()


def test_one_step_does_not_match_two_parts_of_a_sequence(tmp_path: Path) -> None:
    twice = hook({"sequence": [{"action": "a"}, {"action": "a"}]}, tmp_path)
    assert twice.firings(states({"action": "a"})) == ()
    assert twice.firings(states({"action": "a"}, {}, {"action": "a"})) == (3,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("{", "is no JSON", id="JSON"),
        pytest.param("[]", "the file is []; it has to be an object", id="no object"),
        pytest.param('{"hooks": []}', "list of 1 to 100 hooks", id="empty"),
        pytest.param('{"hoks": []}', "unknown key 'hoks'; did you mean 'hooks'?", id="key"),
        pytest.param('{"hooks": [{"name": "x"}]}', "hooks[0] lacks 'when'", id="lacks"),
        pytest.param(
            '{"hooks": [{"name": "x", "when": {"itm": "wood"}}]}',
            "hooks[0].when: unknown condition 'itm'; did you mean 'item'?",
            id="condition",
        ),
        pytest.param(
            '{"hooks": [{"name": "x", "when": {"all": [{"item": "wod", "at_least": 1}]}}]}',
            "hooks[0].when.all[0].item: unknown item 'wod'; did you mean 'wood'?",
            id="deep",
        ),
        pytest.param(
            '{"hooks": [{"name": "x", "when": {"item": "wood"}}]}',
            "hooks[0].when needs at_least, at_most or both",
            id="range",
        ),
        pytest.param(
            '{"hooks": [{"name": "x", "when": {"text": "("}}]}',
            "hooks[0].when.text is no regular expression",
            id="text",
        ),
        pytest.param(
            '{"hooks": [{"name": "x", "when": {"night": true, "sleeping": true}}]}',
            "has night and sleeping; a condition has one of them",
            id="two kinds",
        ),
        pytest.param(
            '{"hooks": [{"name": "x", "when": {"night": true}},'
            ' {"name": "x", "when": {"night": true}}]}',
            "two hooks are called 'x'",
            id="twice",
        ),
        pytest.param(
            '{"landmark": 0, "hooks": [{"name": "x", "when": {"night": true}}]}',
            "landmark is 0; give a whole number from 1 on",
            id="landmark",
        ),
    ],
)
def test_an_error_names_its_location_in_the_file(
    content: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "hooks.json"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        read_hooks(path)
    assert message in str(caught.value)


def test_the_schema_lists_every_condition() -> None:
    kinds = [
        next(iter(condition["properties"]))
        for condition in SCHEMA["$defs"]["condition"]["oneOf"]
    ]
    assert sorted(kinds) == sorted(
        [
            *("action", "no_effect", "item", "achievement", "reached", "step", "turn"),
            *("reward", "sleeping", "night", "near", "text", "all", "any", "not", "sequence"),
        ]
    )
    assert json.loads(json.dumps(assay.analyze.hook_schema()))["required"] == ["hooks"]


def test_the_difference_within_strata_is_weighted_like_least_squares() -> None:
    # Stratum a: marked 5, others 1 and 3: +3, weight 1 * 2 / 3. Stratum b: marked 10 and 12,
    # other 4: +7, weight 2 / 3. Stratum c has only marked ones and is not used.
    values = [5.0, 1, 3, 10, 12, 4, 99]
    marked = [True, False, False, True, True, False, True]
    found = difference_within(values, marked, "aaabbbc", range(7))
    assert found.point == pytest.approx(5)
    assert found.freedom == 6
    nothing = difference_within([1.0, 2.0], [True, True], "aa", "xy")
    assert math.isnan(nothing.point)


def test_the_interval_has_its_coverage_on_clustered_data() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        worlds = np.repeat(np.arange(20), 3)
        values = rng.normal(size=20)[worlds] + rng.normal(size=60) + np.tile([0, 5, 9], 20)
        marked = (rng.random(20) < 0.5)[worlds].tolist()
        interval = difference_within(values, marked, np.tile([0, 1, 2], 20), worlds).interval()
        held += interval.low <= 0 <= interval.high
    # 95 % of 200 are 190; 178 is beyond 3.5 standard deviations.
    assert held >= 178


def declared(tmp_path: Path, landmark: int = 50) -> DeclaredHooks:
    return DeclaredHooks((hook({"action": "do"}, tmp_path),), landmark)


def test_only_achievements_after_the_landmark_in_unfinished_episodes_count(
    tmp_path: Path,
) -> None:
    early = {"collect_wood": 10}
    late = {"collect_wood": 10, "place_table": 60, "eat_cow": 70}
    episodes = [
        *(facts("a", seed, steps=100, achievements=late) for seed in range(6)),
        *(facts("a", seed, steps=100, achievements=early) for seed in range(6, 12)),
        *(facts("a", seed, steps=30, achievements=early) for seed in range(12, 15)),
    ]
    firings = {
        episode.id: {"x": (5,) if number < 6 else (70,) if number < 12 else (5,)}
        for number, episode in enumerate(episodes)
    }
    (effect,) = analyse_enhanced_hooks(episodes, declared(tmp_path), firings).hooks
    assert (effect.alive, effect.fired_by) == (12, 6)
    assert effect.difference.point == pytest.approx(2)
    assert effect.sign is Sign.MORE
    assert "6 of 12 episodes that lasted beyond step 50" in effect.recommendation


def test_effects_are_estimated_within_each_model(tmp_path: Path) -> None:
    # The good model always fires and the bad one never: the effect cannot be estimated.
    episodes = [facts("good", seed, unlocked=15, steps=400) for seed in range(6)]
    episodes += [facts("bad", seed, unlocked=1, steps=400) for seed in range(6)]
    firings = {
        episode.id: {"x": (1,) if episode.group == "good" else ()} for episode in episodes
    }
    (effect,) = analyse_enhanced_hooks(episodes, declared(tmp_path), firings).hooks
    assert effect.sign is Sign.TOO_FEW
    assert math.isnan(effect.p_value)


@pytest.mark.extras
def test_hooks_on_real_episodes_match_the_trace_and_the_world(
    played: Path, tmp_path: Path
) -> None:
    path = tmp_path / "hooks.json"
    path.write_text(
        json.dumps(
            {
                "hooks": [
                    {"name": "sapling", "when": {"achievement": "collect_sapling"}},
                    {"name": "has_sapling", "when": {"item": "sapling", "at_least": 1}},
                    {"name": "wasted", "when": {"no_effect": True}, "every": True},
                    {"name": "grass", "when": {"near": "grass"}},
                    {"name": "said", "when": {"text": "."}},
                ]
            }
        )
    )
    found = assay.analyze.enhanced_hooks(database=played, enhancements=path, landmark=20)
    counts = {hook.name: hook.firings for hook in found.hooks}
    store = assay.open(played)

    def count(query: str) -> int:
        return int(store.sql(f"SELECT count(*) AS n FROM {query}")["n"][0])

    assert counts["sapling"] == count("achievements WHERE achievement = 'collect_sapling'") > 0
    assert counts["has_sapling"] >= counts["sapling"]
    assert counts["wasted"] == count("session_timesteps WHERE no_effect IS NOT NULL")
    assert counts["grass"] >= 6
    assert [hook.episodes for hook in found.hooks] == [6] * 5

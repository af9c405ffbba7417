"""Events of the built-in hooks, and limits on the reports of hooks."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from assay.crafter.rules import ACHIEVEMENTS, ITEMS, NoEffect
from assay.episodes.hook_runner import MAX_DATA, MAX_RESULTS
from assay.errors import HookError, UsageError
from assay.metrics import (
    DEFAULT_HOOKS,
    TIERS,
    BaseHook,
    Hook,
    HookRecord,
    StepSeen,
    Tier,
    Watch,
    hook,
)
from assay.store.records import PlayedRecord, StepRecord

from .episodes import play

EMPTY = dict.fromkeys(ITEMS, 0)


def seen(
    action: str = "do",
    *,
    unlocked: tuple[str, ...] = (),
    no_effect: str | None = None,
    before: dict[str, int] | None = None,
    after: dict[str, int] | None = None,
    index: int = 7,
) -> StepSeen:
    step = StepRecord(
        index=index,
        action=action,
        reward=0.0,
        digest=None,
        unlocked=unlocked,
        no_effect=no_effect,
    )
    return StepSeen(3, step, {**EMPTY, **(after or {})}, {**EMPTY, **(before or {})})


def test_every_achievement_has_one_tier() -> None:
    assert sorted(TIERS) == sorted(ACHIEVEMENTS)
    counts = {tier: list(TIERS.values()).count(tier) for tier in Tier}
    assert counts == {Tier.EASY: 8, Tier.MEDIUM: 7, Tier.HARD: 7}


def test_step_without_changes_reports_nothing() -> None:
    assert Watch().step(seen("noop")) == []


def test_an_achievement_is_reported_by_the_hook_of_its_tier() -> None:
    found = Watch().step(seen(unlocked=("collect_wood", "eat_cow", "wake_up", "defeat_zombie")))
    assert [(r.name, r.code, r.priority, r.step) for r in found] == [
        ("easy_achievement", "E", 3, 7),
        ("medium_achievement", "M", 4, 7),
        ("hard_achievement", "H", 5, 7),
    ]
    assert found[0].data == {"achievements": ["collect_wood", "wake_up"], "difficulty": "easy"}


def test_an_action_without_effect_is_reported_with_its_reason() -> None:
    [found] = Watch().step(seen("place_table", no_effect=NoEffect.NEEDS_ITEMS))
    assert (found.name, found.code, found.priority, found.step) == ("invalid_action", "X", 2, 7)
    assert found.data == {"action": "place_table", "reason": "needs_items"}


def test_action_ignored_during_sleep_is_not_invalid() -> None:
    assert Watch().step(seen("do", no_effect=NoEffect.ASLEEP)) == []


def test_every_unknown_action_of_a_turn_is_reported() -> None:
    played = PlayedRecord(turn=1, at=0.0, asked=("a", "do", "a"), unknown=("a", "a"))
    found = Watch().turn(played)
    assert [(r.step, r.data) for r in found] == [
        (None, {"action": "a", "reason": "unknown_action"})
    ] * 2


def test_long_unknown_action_is_cut_and_escaped() -> None:
    played = PlayedRecord(turn=1, at=0.0, unknown=("\x1b[2J" + "x" * 10_000_000,))
    [found] = Watch().turn(played)
    assert len(found.data["action"]) == 200
    assert found.description.isprintable()


def test_item_gains_are_reported_and_vitals_are_not() -> None:
    before = {"wood": 2, "stone": 5, "food": 3}
    after = {"wood": 3, "stone": 1, "food": 9, "wood_pickaxe": 1}
    found = Watch().step(seen(before=before, after=after))
    assert [(r.name, r.code, r.priority, r.data) for r in found] == [
        ("inventory_increase", "I", 1, {"item": "wood", "from": 2, "to": 3}),
        ("inventory_increase", "I", 1, {"item": "wood_pickaxe", "from": 0, "to": 1}),
    ]


def test_built_in_hooks_stay_within_the_limits_for_user_hooks() -> None:
    class Ours(BaseHook):
        """All built-in hooks, in an untrusted class."""

        def __init__(self) -> None:
            self._hooks = [kind() for kind in DEFAULT_HOOKS]

        def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
            return [found for hook in self._hooks for found in hook.on_step(seen)]

        def on_turn(self, played: PlayedRecord) -> Iterable[HookRecord]:
            return [found for hook in self._hooks for found in hook.on_turn(played)]

    trusted, checked = play(turns=60), play(turns=60, hooks=(Ours,))
    assert sum(len(turn.hooks) for turn in trusted.played) > 20
    assert trusted == checked


def test_hook_results_of_real_episodes_agree_with_their_steps() -> None:
    for seed in range(5):
        session = play(seed, turns=80)
        steps = [step for turn in session.played for step in turn.steps]
        noticed = [found for turn in session.played for found in turn.hooks]
        named = [n for r in noticed for n in r.data.get("achievements", ())]
        assert sorted(named) == sorted(n for step in steps for n in step.unlocked)
        invalid = [r.step for r in noticed if r.name == "invalid_action"]
        assert invalid == [s.index for s in steps if s.no_effect not in (None, NoEffect.ASLEEP)]


def test_hook_state_is_separate_for_each_episode() -> None:
    class Counting(BaseHook):
        def __init__(self) -> None:
            self.steps = 0

        def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
            self.steps += 1
            yield HookRecord(
                name="n", code="n", priority=0, step=seen.step.index, data={"n": self.steps}
            )

    watches = [Watch([Counting]), Watch([Counting])]
    counts = [watch.step(seen())[0].data["n"] for watch in (*watches, *watches)]
    assert counts == [1, 1, 2, 2]


def reporting(result: Any) -> type[Hook]:
    class Reporting(BaseHook):
        def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
            return result

    return Reporting


def record(**changes: Any) -> HookRecord:
    fields = {"name": "mine", "code": "m", "priority": 1, "step": 7, "data": {}, **changes}
    return HookRecord(**fields)


def test_valid_result_is_kept_in_its_stored_form() -> None:
    given = record(data={"t": (1, 2), "n": {3: None}, "half": "\ud800"}, description="a\udfff")
    [kept] = Watch([reporting([given])]).step(seen())
    assert kept.data == {"t": [1, 2], "n": {"3": None}, "half": "\ufffd"}
    assert kept.description == "a\ufffd"
    assert json.loads(json.dumps(kept.data)) == kept.data


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        pytest.param(None, "None instead of a list", id="nothing"),
        pytest.param("mine", "'mine' instead of a list", id="a string"),
        pytest.param(record(), "instead of a list", id="a record alone"),
        pytest.param([{"name": "mine"}], "not a HookRecord", id="a dictionary"),
        pytest.param([record()] * (MAX_RESULTS + 1), "more than 100", id="too many"),
        pytest.param([record(name="")], "name ''", id="no name"),
        pytest.param([record(name="n" * 101)], "1 to 100 characters", id="a long name"),
        pytest.param([record(code="XY")], "one character", id="two letters"),
        pytest.param([record(code="\x1b")], "one character", id="an escape"),
        pytest.param([record(priority=True)], "priority True", id="a bool"),
        pytest.param([record(priority=10**9)], "priority 1000000000", id="a huge priority"),
        pytest.param([record(step=8)], "step 8", id="a step of the future"),
        pytest.param([record(description=3)], "description 3", id="a number"),
        pytest.param([record(description="d" * 1001)], "at most 1000", id="a long text"),
        pytest.param([record(data=[1])], "give a dictionary", id="a list of data"),
        pytest.param([record(data={"x": {1}})], "not JSON", id="a set"),
        pytest.param([record(data={"x": float("nan")})], "not JSON", id="not a number"),
        pytest.param([record(data={"x": LOOP})], "not JSON", id="a loop"),
        pytest.param([record(data={"x": "y" * MAX_DATA})], "at most 16384", id="too much"),
    ],
)
def test_result_that_cannot_be_stored_is_rejected(result: Any, words: str) -> None:
    with pytest.raises(HookError, match="hook 'Reporting': on_step returned") as error:
        Watch([reporting(result)]).step(seen())
    assert words in str(error.value)
    assert len(str(error.value)) < 300


def test_an_endless_hook_is_cut_off() -> None:
    class Endless(BaseHook):
        def on_turn(self, played: PlayedRecord) -> Iterable[HookRecord]:
            while True:
                yield record(step=None)

    with pytest.raises(HookError, match="on_turn returned more than 100 results"):
        Watch([Endless]).turn(PlayedRecord(turn=1, at=0.0))


def test_hook_that_raises_is_named_with_its_error() -> None:
    class Broken(BaseHook):
        def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
            yield record(step=seen.inventory["gold"])

    with pytest.raises(HookError, match=r"'Broken' raised KeyError in on_step: 'gold'") as e:
        Watch([Broken]).step(seen())
    assert isinstance(e.value.__cause__, KeyError)


def test_hook_that_cannot_be_created_is_named() -> None:
    class Unmade(BaseHook):
        def __init__(self) -> None:
            raise OSError("no disk")

    with pytest.raises(HookError, match="'Unmade' raised OSError in __init__: no disk"):
        Watch([Unmade])


class NoTurn:
    def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:
        return ()


class Late(BaseHook):
    async def on_step(self, seen: StepSeen) -> Iterable[HookRecord]:  # type: ignore[override]
        return ()


class Narrow(BaseHook):
    def on_turn(self) -> Iterable[HookRecord]:  # type: ignore[override]
        return ()


class Needy(BaseHook):
    def __init__(self, threshold: int) -> None:
        self.threshold = threshold


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        pytest.param(len, "not a class", id="a function"),
        pytest.param(NoTurn, r"no on_turn\(self, played\)", id="one method"),
        pytest.param(Late, "on_step is async", id="async"),
        pytest.param(Narrow, r"must take \(self, played\)", id="arguments"),
        pytest.param(Needy, r"without arguments: Needy\(\)", id="constructor"),
    ],
)
def test_class_that_cannot_be_a_hook_is_rejected_by_the_decorator(
    kind: Any, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        hook(kind)

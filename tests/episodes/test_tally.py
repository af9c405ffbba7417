"""Running totals and outcomes."""

from assay.crafter.rules import ACHIEVEMENTS, NoEffect
from assay.metrics import OUTCOMES, EpisodeTotals
from assay.store.records import PlayedRecord, StepRecord

from .episodes import call, play


def step(index: int, **changes: object) -> StepRecord:
    fields = {"index": index, "action": "do", "reward": 0.0, "digest": None, **changes}
    return StepRecord(**fields)  # type: ignore[arg-type]


def test_empty_episode_has_no_reward() -> None:
    earned = EpisodeTotals().outcomes(0.0)
    assert set(earned) == set(OUTCOMES)
    assert set(earned.values()) == {0.0}


def test_kinds_of_waste_are_counted_separately() -> None:
    tally = EpisodeTotals()
    steps = (
        step(1, no_effect=NoEffect.BLOCKED),
        step(2, no_effect=NoEffect.ASLEEP),
        step(3),
    )
    asked = ("do", "do", "do", "fly", "swim")
    tally.add_played(
        PlayedRecord(turn=1, at=0.0, asked=asked, unknown=("fly", "swim"), steps=steps)
    )
    tally.add_played(PlayedRecord(turn=2, at=0.0, malformed="no tool call"))
    assert (tally.asked, tally.unknown, tally.no_effect) == (5, 2, 1)
    assert (tally.asleep, tally.malformed, tally.invalid) == (1, 1, 3)
    assert tally.outcomes(0.0)["invalid_rate"] == 0.6


def test_rewards_are_summed_exactly_in_tenths() -> None:
    tally = EpisodeTotals()
    for index in range(1, 31):
        tally.add_played(PlayedRecord(turn=index, at=0.0, steps=(step(index, reward=0.1),)))
    assert tally.reward == 3.0


def test_an_achievement_counts_once_with_its_first_step() -> None:
    tally = EpisodeTotals()
    steps = tuple(step(index, unlocked=("wake_up",)) for index in (4, 5))
    tally.add_played(PlayedRecord(turn=1, at=0.0, steps=steps))
    assert tally.achievements == 1
    assert tally.unlocked == {"wake_up": 4}
    earned = tally.outcomes(0.0)
    assert earned["unlocked/wake_up"] == 1.0
    assert sum(earned[f"unlocked/{name}"] for name in ACHIEVEMENTS) == 1.0


def test_call_without_a_price_makes_the_cost_unknown() -> None:
    tally = EpisodeTotals()
    tally.add_call(call(1, cost=0.5))
    assert tally.outcomes(1.0)["cost_usd"] == 0.5
    tally.add_call(call(2, cost=None))
    tally.add_call(call(3, cost=0.5))
    earned = tally.outcomes(1.0)
    assert "cost_usd" not in earned
    assert (earned["turns"], earned["tokens"], earned["duration_s"]) == (3.0, 300.0, 1.0)


def test_outcomes_are_recomputed_from_a_trace() -> None:
    session = play(turns=30)
    assert session.end is not None
    assert EpisodeTotals.of(session).outcomes(2.5) == session.end.outcomes
    assert session.end.outcomes["turns"] == 30.0

"""The built-in metrics of every episode, against numbers computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.crafter.rules import ACHIEVEMENTS, NoEffect
from assay.metrics import (
    OUTCOMES,
    SHIPPED,
    Episode,
    EpisodeTotals,
    achievement_rate,
    efficiency_score,
    rule_understanding,
    time_efficiency,
    time_management,
)
from assay.store.records import PlayedRecord, SessionRecord, StepRecord
from tests.store.sessions import make_run, make_session


def played(
    *unlocked: str | None,
    turn: int = 1,
    first: int = 1,
    no_effect: tuple[str | None, ...] = (),
    unknown: int = 0,
    malformed: bool = False,
) -> PlayedRecord:
    """Return a turn with a step for each of `unlocked`."""
    reasons = (*no_effect, *[None] * (len(unlocked) - len(no_effect)))
    steps = tuple(
        StepRecord(
            index=first + at,
            action="do",
            reward=0.0,
            digest=None,
            unlocked=(name,) if name else (),
            no_effect=reason,
        )
        for at, (name, reason) in enumerate(zip(unlocked, reasons, strict=True))
    )
    strange = tuple(f"fly{number}" for number in range(unknown))
    return PlayedRecord(
        turn=turn,
        at=0.0,
        asked=(*(step.action for step in steps), *strange),
        unknown=strange,
        malformed="no tool call" if malformed else None,
        steps=steps,
    )


def tally_of(*turns: PlayedRecord) -> EpisodeTotals:
    tally = EpisodeTotals()
    for turn in turns:
        tally.add_played(turn)
    return tally


def test_five_metrics_of_a_small_episode_equal_hand_computed_values() -> None:
    # Ten actions: one unknown, one without effect, one ignored asleep; one malformed reply.
    episode = Episode.of(make_session(make_run(), turns=4))
    unlocked = episode.achievements
    steps = len(episode.steps)
    assert (steps, episode.tally.asked, episode.tally.waste) == (9, 10, 4)
    assert achievement_rate(episode) == len(unlocked) / 22
    assert rule_understanding(episode) == pytest.approx(8 / 10)
    assert time_efficiency(episode) == pytest.approx(7 / 11)
    assert efficiency_score(episode) == pytest.approx(len(unlocked) / 22 * 7 / 11)
    # The definition: the mean over steps of the achievements unlocked so far.
    held = [sum(at <= step for at in unlocked.values()) / 22 for step in range(1, steps + 1)]
    assert unlocked
    assert time_management(episode) == pytest.approx(sum(held) / steps)


def test_action_ignored_during_sleep_wastes_time_and_breaks_no_rule() -> None:
    asleep = tally_of(played(None, None, no_effect=(NoEffect.ASLEEP,)))
    assert (asleep.rule_understanding, asleep.time_efficiency) == (1.0, 0.5)


def test_a_malformed_reply_wastes_time_and_breaks_no_rule() -> None:
    garbled = tally_of(played(None), played(turn=2, malformed=True))
    assert (garbled.rule_understanding, garbled.time_efficiency) == (1.0, 0.5)


def test_episode_without_actions_has_no_metrics() -> None:
    nothing = tally_of(played(malformed=True))
    assert [getattr(nothing, name) for name in SHIPPED] == [0.0] * 5


def test_all_achievements_in_the_first_step_give_the_maximum() -> None:
    step = StepRecord(index=1, action="do", reward=0.0, digest=None, unlocked=ACHIEVEMENTS)
    best = tally_of(PlayedRecord(turn=1, at=0.0, asked=("do",), steps=(step,)))
    assert [getattr(best, name) for name in SHIPPED] == [1.0] * 5


def test_the_same_achievement_earlier_and_one_more_later_both_raise_time_management() -> None:
    late = tally_of(played(None, None, "collect_wood", None)).time_management
    early = tally_of(played(None, "collect_wood", None, None)).time_management
    more = tally_of(played(None, "collect_wood", None, "place_table")).time_management
    assert (late, early, more) == pytest.approx((2 / 88, 3 / 88, 4 / 88))


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([None, *ACHIEVEMENTS]), max_size=4),
            st.lists(st.sampled_from([None, *NoEffect]), max_size=4),
            st.integers(0, 3),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_metrics_are_always_between_0_and_1(
    turns: list[tuple[list[str | None], list[str | None], int, bool]],
) -> None:
    tally = EpisodeTotals()
    for turn, (unlocked, reasons, unknown, malformed) in enumerate(turns, start=1):
        tally.add_played(
            played(
                *unlocked,
                turn=turn,
                first=tally.steps + 1,
                no_effect=tuple(reasons[: len(unlocked)]),
                unknown=unknown,
                malformed=malformed,
            )
        )
    for name in SHIPPED:
        assert 0.0 <= getattr(tally, name) <= 1.0, name
    assert tally.time_management <= tally.achievement_rate + 1e-12


def test_built_in_metrics_are_outcomes_of_every_episode() -> None:
    session: SessionRecord = make_session(make_run())
    episode, earned = Episode.of(session), EpisodeTotals.of(session).outcomes(1.0)
    assert set(SHIPPED) <= set(OUTCOMES)
    for name, each in SHIPPED.items():
        assert each.function(episode) == earned[name]
        assert each.higher_is_better
        assert each.function.__doc__

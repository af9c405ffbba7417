"""Recorded episodes, played again."""

from dataclasses import replace
from typing import Any

import pytest

from assay.crafter import DIFFICULTIES, World
from assay.errors import ReplayError
from assay.metrics import Finding, Replay, replay_session, verify_session
from assay.store.records import SessionRecord, StepRecord

from .episodes import play


@pytest.fixture(scope="module")
def session() -> SessionRecord:
    return play(3, turns=40)


def changed_step(session: SessionRecord, at: int, **changes: Any) -> SessionRecord:
    def change(step: StepRecord) -> StepRecord:
        return replace(step, **changes) if step.index == at else step

    played = [replace(t, steps=tuple(map(change, t.steps))) for t in session.played]
    return replace(session, played=played)


def changed_header(session: SessionRecord, **changes: Any) -> SessionRecord:
    return replace(session, header=replace(session.header, **changes))


@pytest.mark.parametrize("difficulty", list(DIFFICULTIES))
@pytest.mark.parametrize("seed", [0, 11])
def test_real_episode_is_reproduced(seed: int, difficulty: str) -> None:
    session = play(seed, difficulty=difficulty, turns=120)
    found = verify_session(session)
    assert (found.finding, found.difference, found.reason) == (Finding.SAME, None, None)
    assert found.steps == sum(len(turn.steps) for turn in session.played) > 20


def test_episode_that_ended_at_its_length_is_reproduced() -> None:
    session = play(2, length=33)
    assert session.end is not None
    assert session.end.stop_reason == "length"
    assert verify_session(session).finding is Finding.SAME


def test_difficulty_can_be_given_by_numbers_or_name(session: SessionRecord) -> None:
    numbers = {n: getattr(DIFFICULTIES["easy"], n) for n in DIFFICULTIES["easy"].__slots__}
    metadata = {**session.header.metadata, "difficulty": numbers}
    assert verify_session(changed_header(session, metadata=metadata)).finding is Finding.SAME
    metadata["difficulty"] = {**numbers, "tree_chance": 0.5}
    found = verify_session(changed_header(session, metadata=metadata))
    assert found.finding is Finding.DIFFERENT


def test_a_replay_shows_every_step_with_its_turn_and_ends_in_the_same_state(
    session: SessionRecord,
) -> None:
    moments = list(replay_session(session))
    assert [(m.turn, m.recorded) for m in moments] == [
        (turn.turn, step) for turn in session.played for step in turn.steps
    ]
    replay = Replay(session)
    for _ in replay:
        pass
    assert session.end is not None
    assert replay.steps == len(moments) == replay.world.steps
    assert replay.reward == session.end.outcomes["reward"]
    assert len(replay.unlocked) == session.end.outcomes["achievements"]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"digest": "0" * 16}, "digest", id="digest"),
        pytest.param({"action": "noop"}, "digest", id="another action"),
        pytest.param({"reward": 5.0}, "reward", id="reward"),
        pytest.param({"unlocked": ("collect_diamond",)}, "unlocked", id="unlocked"),
        pytest.param({"no_effect": "because"}, "no_effect", id="no effect"),
        pytest.param({"terminated": True}, "terminated", id="terminated"),
        pytest.param({"index": 900}, "index", id="index"),
    ],
)
def test_the_first_difference_is_named(
    changes: dict[str, Any], field: str, session: SessionRecord
) -> None:
    # A move with an effect, so that replacing it by noop gives a different result.
    steps = [step for turn in session.played for step in turn.steps]
    moves = [s for s in steps if s.action.startswith("move") and s.no_effect is None]
    index = moves[5].index
    found = verify_session(changed_step(session, index, **changes))
    assert found.finding is Finding.DIFFERENT
    assert found.difference is not None
    assert found.difference.field == field
    assert found.difference.step == changes.get("index", index)
    assert found.steps == index - 1
    assert f"{field} was " in str(found.difference)


def test_wrong_seed_differs_at_the_first_step(session: SessionRecord) -> None:
    found = verify_session(changed_header(session, seed=4))
    assert found.difference is not None
    assert found.difference.step == 1


def test_steps_beyond_the_end_of_the_world_are_a_difference() -> None:
    session = play(2, turns=10)
    metadata = {**session.header.metadata, "length": 33}
    found = verify_session(changed_header(session, metadata=metadata))
    assert found.finding is Finding.DIFFERENT


def test_outcome_that_does_not_follow_from_the_steps_is_a_difference(
    session: SessionRecord,
) -> None:
    assert session.end is not None
    outcomes = {**session.end.outcomes, "unlocked/collect_diamond": 1.0}
    found = verify_session(replace(session, end=replace(session.end, outcomes=outcomes)))
    assert str(found.difference) == "outcome unlocked/collect_diamond was 1, is 0"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"seed": None}, "no seed", id="no seed"),
        pytest.param({"task": "my-task"}, "only episodes of Crafter", id="another task"),
        pytest.param({"metadata": {}, "difficulty": None}, "its difficulty", id="rules"),
        pytest.param({"metadata": {"difficulty": "soft"}}, "'soft'", id="unknown rules"),
        pytest.param(
            {"metadata": {"difficulty": "easy", "length": "x"}}, "length", id="length"
        ),
        pytest.param({"seed": -1}, "seed -1", id="bad seed"),
    ],
)
def test_session_with_missing_data_is_unverifiable_with_the_reason(
    changes: dict[str, Any], words: str, session: SessionRecord
) -> None:
    found = verify_session(changed_header(session, **changes))
    assert found.finding is Finding.UNVERIFIABLE
    assert words in (found.reason or "")
    with pytest.raises(ReplayError, match=words):
        Replay(changed_header(session, **changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"digest": None}, "step 9 has no digest", id="digest"),
        pytest.param({"action": "fly"}, "step 9 is 'fly'", id="action"),
    ],
)
def test_a_step_that_cannot_be_compared_makes_a_session_unverifiable(
    changes: dict[str, Any], words: str, session: SessionRecord
) -> None:
    found = verify_session(changed_step(session, 9, **changes))
    assert found.finding is Finding.UNVERIFIABLE
    assert words in (found.reason or "")


def test_digests_of_another_version_are_not_compared(session: SessionRecord) -> None:
    metadata = {**session.header.metadata, "digest_version": 0}
    found = verify_session(changed_header(session, metadata=metadata))
    assert found.finding is Finding.UNVERIFIABLE
    assert "version 0" in (found.reason or "")


def test_an_episode_without_steps_agrees_with_its_world(session: SessionRecord) -> None:
    found = verify_session(SessionRecord(session.header, [], [], [], None))
    assert (found.finding, found.steps) == (Finding.SAME, 0)
    assert World(3, "easy").steps == 0

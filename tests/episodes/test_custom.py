"""Metrics of stored episodes, and their values as outcomes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.episodes.metrics import find_metric, measure, measure_all
from assay.errors import UsageError
from assay.judge.outcomes import Direction
from assay.judge.subjects import SUBJECT_METRICS
from assay.metrics import (
    SHIPPED,
    Applied,
    Episode,
    Metric,
    MetricSet,
    apply_metrics,
    ensure_metrics,
    load_metrics,
    metric,
    rule_understanding,
)
from assay.store.load import load_experiment, load_outcomes, load_session
from assay.store.metric_outcomes import declared_outcomes, made_by
from assay.store.store import Store
from assay.store.subjects import load_subjects
from assay.types import TrialState
from tests.store.sessions import make_run, make_session, make_sessions
from tests.store.stores import fill, ids, rows_of

RUN = make_run(episodes=3)
SESSIONS = [
    *make_sessions(RUN, 3),
    make_session(RUN, episode=3, state=TrialState.INFRASTRUCTURE),
]
EXPERIMENTS = [experiment.id for experiment in RUN.experiments]
FIRST = ids(SESSIONS)[:3]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("filled") / "traces.duckdb"
    fill(path, RUN, SESSIONS)
    return path.read_bytes()


@pytest.fixture
def store(filled: bytes, tmp_path: Path) -> Store:
    path = tmp_path / "traces.duckdb"
    path.write_bytes(filled)
    return Store(path)


def marked(function: Callable[..., Any]) -> Metric:
    found = find_metric(metric(function))
    assert found is not None
    return found


def metrics(*functions: Callable[..., Any], sha: str = "0" * 32) -> MetricSet:
    return MetricSet(
        tuple(find_metric(function) or marked(function) for function in functions), sha
    )


def returning(value: object) -> Metric:
    def given(episode: Episode) -> object:
        return value

    return marked(given)


def earned(store: Store, name: str) -> dict[str, float]:
    """Return the values of a metric, by trial."""
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT trial_id, value FROM outcomes WHERE metric = ? ORDER BY ALL", [name]
        ).fetchall()
    return dict(rows)


EPISODE = Episode.of(SESSIONS[0])


def test_episode_has_the_data_of_its_session() -> None:
    session = SESSIONS[0]
    assert session.end is not None
    assert EPISODE.id == session.header.session_id
    assert (EPISODE.model, EPISODE.seed, EPISODE.task) == (
        "builtin/forager",
        42,
        "crafter/easy",
    )
    assert (EPISODE.state, EPISODE.stop_reason) == (TrialState.RESULT, "max_turns")
    assert [step.index for step in EPISODE.steps] == list(range(1, 10))
    assert [turn.number for turn in EPISODE.turns] == [1, 2, 3, 4]
    assert EPISODE.turns[1].unknown == ("fly",)
    assert EPISODE.turns[2].malformed == "the reply calls no tool"
    assert EPISODE.reward == pytest.approx(session.end.outcomes["reward"])
    assert EPISODE.tokens == session.end.outcomes["tokens"]
    assert EPISODE.cost_usd == pytest.approx(0.004)
    assert sum(turn.usage.total for turn in EPISODE.turns) == EPISODE.tokens
    assert set(EPISODE.achievements) == {
        name for step in EPISODE.steps for name in step.unlocked
    }
    assert EPISODE.messages[0].message.text == "You play a game."
    assert "steps" not in repr(EPISODE)


def test_unfinished_session_is_not_an_episode() -> None:
    with pytest.raises(UsageError, match="has not ended"):
        Episode.of(make_session(RUN, state=None))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        pytest.param(3, 3.0, id="int"),
        pytest.param(Fraction(1, 4), 0.25, id="fraction"),
        pytest.param(np.float32(0.5), 0.5, id="numpy"),
        pytest.param(np.int64(7), 7.0, id="numpy integer"),
    ],
)
def test_any_real_number_is_accepted(value: object, number: float) -> None:
    found = measure(returning(value), EPISODE)
    assert found.trials == {EPISODE.id: {"given": number}}
    assert found.problems == []


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param(float("nan"), "returned nan, which is not finite", id="nan"),
        pytest.param(-float("inf"), "returned -inf, which is not finite", id="inf"),
        pytest.param("0.5", "returned '0.5', a str; return a number", id="text"),
        pytest.param(None, "returned None; return a number, or {}", id="nothing"),
        pytest.param(10**400, "does not fit into a float", id="huge"),
        pytest.param([1.0], "returned [1.0], a list", id="list"),
        pytest.param(Rude(), "returned <Rude>, a Rude", id="rude"),
        pytest.param("\x1b[2J" * 99, r"\x1b[2J", id="escapes"),
        pytest.param({"a": "b"}, "key 'a': returned 'b', a str", id="dictionary"),
        pytest.param({3: 1.0}, "metric name 3 is not allowed", id="key"),
        pytest.param({"a\n": 1.0}, "is not allowed; give letters", id="line end"),
    ],
)
def test_invalid_number_is_a_problem_with_episode_and_line(value: object, words: str) -> None:
    found = measure(returning(value), EPISODE)
    assert not any(found.trials.values())
    (problem,) = found.problems
    assert words in str(problem)
    assert str(problem).isprintable()
    assert str(problem).startswith(f"{__file__}:")
    assert f"episode {EPISODE.id} (builtin/forager, seed 42)" in str(problem)


def test_valid_numbers_of_a_dictionary_are_kept_despite_an_invalid_one() -> None:
    found = measure(returning({"good": 1, "bad": float("nan")}), EPISODE)
    assert found.trials == {EPISODE.id: {"good": 1.0}}
    assert [problem.what for problem in found.problems] == [
        "key 'bad': returned nan, which is not finite"
    ]


def test_empty_dictionary_means_no_value() -> None:
    found = measure(returning({}), EPISODE)
    assert (found.trials, found.problems) == ({EPISODE.id: {}}, [])


@pytest.mark.parametrize("make", [list, tuple, np.array], ids=lambda make: make.__name__)
def test_list_metric_can_return_one_number_per_episode(make: Any) -> None:
    def rewards(episodes: list[Episode]) -> object:
        return make([episode.reward for episode in episodes])

    both = [EPISODE, Episode.of(SESSIONS[1])]
    found = measure_all(marked(rewards), both, "e")
    assert found.trials == {episode.id: {"rewards": episode.reward} for episode in both}
    assert found.whole == {}


def test_list_of_the_wrong_length_is_a_problem() -> None:
    def short(episodes: Sequence[Episode]) -> list[float]:
        return [1.0]

    found = measure_all(marked(short), [EPISODE, EPISODE], "e")
    assert found.trials == {}
    assert "returned 1 values for 2 episodes; return one for each" in str(found.problems[0])


def seconds(episode: Episode) -> float:
    return episode.duration_s


def parts(episode: Episode) -> dict[str, float]:
    return {"noops": sum(step.action == "noop" for step in episode.steps), "turns_made": 4}


def test_metric_values_become_outcomes_next_to_existing_ones(store: Store) -> None:
    before = rows_of(store)["outcomes"]
    done = apply_metrics(store, [*EXPERIMENTS, EXPERIMENTS[0]], metrics(seconds, parts))
    assert done == Applied({"seconds": 6, "noops": 6, "turns_made": 6})
    after = rows_of(store)["outcomes"]
    assert set(before) < set(after)
    assert len(after) == len(before) + 18
    with store.reading() as connection:
        subject = load_subjects(connection, EXPERIMENTS)[1]
        stored = load_session(connection, FIRST[0])
    assert [trial.values["seconds"] for trial in subject.trials] == [1.5] * 3
    assert stored.end is not None
    assert stored.end.outcomes["turns_made"] == 4.0
    assert replace(stored, end=None) == replace(SESSIONS[0], end=None)


def test_applying_metrics_again_changes_nothing(store: Store) -> None:
    apply_metrics(store, EXPERIMENTS[:1], metrics(seconds, parts))
    before = rows_of(store)
    apply_metrics(store, EXPERIMENTS[:1], metrics(seconds, parts))
    assert rows_of(store) == before


def test_single_number_of_a_list_metric_belongs_to_the_experiment(store: Store) -> None:
    def overall(episodes: list[Episode]) -> dict[str, float]:
        return {"episodes_seen": len(episodes), "seeds": sum(e.seed or 0 for e in episodes)}

    apply_metrics(store, EXPERIMENTS, metrics(overall))
    assert earned(store, "episodes_seen") == dict.fromkeys(EXPERIMENTS, 3.0)
    with store.reading() as connection:
        subjects = load_subjects(connection, EXPERIMENTS)
    assert subjects[0].facts[SUBJECT_METRICS] == {"episodes_seen": 3.0, "seeds": 129.0}
    assert len(subjects[0].trials) == 4
    assert all("seeds" not in trial.values for trial in subjects[0].trials)


def test_messages_are_loaded_on_demand(store: Store) -> None:
    def said(episodes: list[Episode]) -> list[int]:
        return [len(episode.messages) for episode in episodes]

    def heard(episode: Episode) -> int:
        return len(episode.messages)

    apply_metrics(store, EXPERIMENTS[:1], metrics(said, heard))
    assert earned(store, "said") == earned(store, "heard") == dict.fromkeys(FIRST, 10.0)


BROKEN = """
import assay.metrics

def inner(episode):
    if episode.seed == 43:
        raise KeyError("no such thing")
    return episode.seed

@assay.metrics.metric
def seeds(episode):
    return inner(episode)

@assay.metrics.metric
def fine(episode):
    return 1

@assay.metrics.metric
def leaves(episodes):
    raise SystemExit(3)
"""


def test_exception_names_episode_and_line_and_other_episodes_continue(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    notices: list[str] = []
    done = apply_metrics(store, EXPERIMENTS, load_metrics(path), notices.append)
    assert done.counts == {"seeds": 4, "fine": 6}
    assert set(earned(store, "seeds").values()) == {42.0, 44.0}
    assert len(done.problems) == 4
    assert notices[0] == (
        f"{path}:6: metric 'seeds', episode {FIRST[1]} (builtin/forager, seed 43): "
        "KeyError: 'no such thing'"
    )
    assert notices[1:] == [
        f"{path}:19: metric 'leaves', experiment {EXPERIMENTS[0]!r}: SystemExit: 3",
        f"{path}:6: metric 'seeds' has 2 such problems in total",
        f"{path}:19: metric 'leaves' has 2 such problems in total",
    ]


def test_value_that_a_metric_no_longer_returns_is_removed(store: Store) -> None:
    @metric(name="mine")
    def old(episode: Episode) -> dict[str, float]:
        return {"a": 1.0, "b": 1.0}

    @metric(name="mine")
    def younger(episode: Episode) -> dict[str, float]:
        return {"b": 2.0} if episode.seed == 42 else {}

    apply_metrics(store, EXPERIMENTS, metrics(old, sha="1" * 32))
    apply_metrics(store, EXPERIMENTS[:1], metrics(younger, sha="2" * 32))
    assert {*earned(store, "a")} == {*ids(SESSIONS[3:6])}
    assert earned(store, "b")[FIRST[0]] == 2.0
    assert len(earned(store, "b")) == 4
    with store.reading() as connection:
        noted = made_by(connection, EXPERIMENTS[0])
    assert {name: each.sha for name, each in noted.items()} == {"b": "2" * 32}


def test_experiment_records_the_source_and_direction_of_metrics(store: Store) -> None:
    @metric(name="hurry", higher_is_better=False)
    def slow(episode: Episode) -> float:
        return episode.duration_s

    with store.reading() as connection:
        before = load_experiment(connection, EXPERIMENTS[0])
    apply_metrics(store, EXPERIMENTS[:1], metrics(slow, seconds))
    with store.reading() as connection:
        after = load_experiment(connection, EXPERIMENTS[0])
        declared = declared_outcomes(after.tags)
        noted = made_by(connection, EXPERIMENTS[0])
    assert {name: one.direction for name, one in declared.items()} == {
        "hurry": Direction.LOWER,
        "seconds": Direction.NEITHER,
    }
    assert noted["seconds"] == ("seconds", "0" * 32, True, {})
    assert replace(after, tags={}, updated_at=0) == replace(before, tags={}, updated_at=0)


def test_metric_name_in_use_is_a_problem(store: Store) -> None:
    @metric
    def grades(episode: Episode) -> dict[str, float]:
        return {"reward": -1.0, "shared": 1.0, "unlocked/mine": 1.0}

    @metric
    def rivals(episodes: list[Episode]) -> dict[str, float]:
        return {"shared": 2.0, "own": 1.0}

    with store.writing() as connection:
        connection.execute(
            "UPDATE outcomes SET metric = 'unlocked/mine' WHERE metric = 'unlocked/wake_up'"
        )
    rewards = earned(store, "reward")
    notices: list[str] = []
    done = apply_metrics(store, EXPERIMENTS[:1], metrics(grades, rivals), notices.append)
    assert done.counts == {"shared": 3, "own": 1}
    assert earned(store, "reward") == rewards
    assert [line.split(": ", 2)[2].split("; ")[0] for line in notices[:3]] == [
        "'reward' is an outcome of every episode, with another value",
        "'unlocked/mine' was recorded with these episodes and is not from a metric",
        "'shared' is also a result of metric 'grades'",
    ]


def test_dictionary_may_repeat_an_existing_outcome(store: Store) -> None:
    @metric
    def summary(episode: Episode) -> dict[str, float]:
        return {"rule_understanding": rule_understanding(episode), "mine": 1.0}

    chosen = EXPERIMENTS[:1]
    done = ensure_metrics(store, chosen, ["rule_understanding"], extra=metrics(summary))
    assert done == Applied({"rule_understanding": 3, "mine": 3})


def test_missing_built_in_metrics_are_computed(store: Store) -> None:
    done = ensure_metrics(store, EXPERIMENTS, ["reward", "rule_understanding", *SHIPPED])
    assert done == Applied(dict.fromkeys(SHIPPED, 6))
    with store.reading() as connection:
        stored = load_outcomes(connection, FIRST)
    for session in SESSIONS[:3]:
        for name, each in SHIPPED.items():
            value = each.function(Episode.of(session))
            assert stored[session.header.session_id][name] == value
    before = rows_of(store)
    again = ensure_metrics(store, EXPERIMENTS, [*SHIPPED])
    assert again == Applied()
    assert rows_of(store) == before
    assert "metrics" not in str(before["experiments"])


def test_sessions_without_the_needed_data_get_no_built_in_metric(store: Store) -> None:
    with store.writing() as connection:
        connection.execute(
            "UPDATE session_traces SET source = 'balrog' WHERE session_id = ?", FIRST[:1]
        )
        connection.execute(
            "UPDATE session_traces SET task = 'chess' WHERE session_id = ?", FIRST[1:2]
        )
    notices: list[str] = []
    names = ["time_efficiency"]
    done = ensure_metrics(store, EXPERIMENTS[:1], names, notice=notices.append)
    assert done == Applied({"time_efficiency": 1})
    assert notices == [
        f"2 episodes of experiment {EXPERIMENTS[0]} were not played by assay in Crafter, "
        "so they have no time_efficiency"
    ]


def test_metrics_are_not_called_for_an_experiment_without_results(tmp_path: Path) -> None:
    run = make_run(models=["builtin/forager"])
    failed = make_session(run, state=TrialState.FAILURE)
    store = fill(tmp_path / "traces.duckdb", run, [failed])

    def explode(episodes: list[Episode]) -> float:
        raise AssertionError

    done = apply_metrics(store, [run.experiments[0].id], metrics(explode, seconds))
    assert done == Applied()


def test_missing_experiment_is_named(store: Store) -> None:
    with pytest.raises(UsageError, match="experiment 'nobody' not found"):
        apply_metrics(store, ["nobody"], metrics(seconds))


def test_two_metrics_with_the_same_name_are_rejected(store: Store) -> None:
    with pytest.raises(UsageError, match="metric 'seconds' is also defined at"):
        apply_metrics(store, EXPERIMENTS, MetricSet((marked(seconds),) * 2, ""))


@pytest.mark.parametrize("value", [True, False, np.True_])
def test_boolean_value_is_stored_as_one_or_zero(value: object) -> None:
    found = measure(returning(value), EPISODE)
    assert found.trials == {EPISODE.id: {"given": float(bool(value))}}
    assert found.problems == []

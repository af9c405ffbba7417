"""Experiments of a database as subjects of a comparison."""

import pickle
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.judge.subjects import SUBJECT_METRICS, Subject
from assay.store.records import SessionRecord
from assay.store.store import Store
from assay.store.subjects import load_subjects, resolve_subjects, series_experiments
from assay.types import TrialState
from tests.store.sessions import START, make_run, make_session, make_sessions
from tests.store.stores import fill

RUN = replace(
    make_run(baselines=["builtin/expert"]), provenance={"commit": "abc123", "dirty": True}
)
LATER = make_run("run-2", ("builtin/forager",), fingerprint="f2", created_at=START + 100)
FORAGER, EXPERT = (experiment.id for experiment in RUN.experiments)


def again(session: SessionRecord, replicate: int) -> SessionRecord:
    """Return a replicate of a session."""
    header = replace(
        session.header,
        session_id=f"{session.header.session_id}-{replicate}",
        replicate=replicate,
    )
    return replace(session, header=header)


SESSIONS = [
    *make_sessions(RUN, 3),
    again(make_session(RUN, episode=1), 1),
    make_session(RUN, episode=3, state=TrialState.FAILURE),
    make_session(RUN, episode=4, state=TrialState.INFRASTRUCTURE),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    path = tmp_path_factory.mktemp("outcomes") / "t.duckdb"
    fill(path, RUN, SESSIONS)
    return fill(path, LATER, make_sessions(LATER, 1))


def subjects_of(store: Store, *ids: str) -> list[Subject]:
    with store.reading() as connection:
        return load_subjects(connection, ids)


def test_subjects_are_loaded_once_in_the_requested_order(store: Store) -> None:
    found = subjects_of(store, EXPERT, FORAGER, EXPERT)
    assert [subject.id for subject in found] == [EXPERT, FORAGER]
    expert, forager = found
    assert (expert.name, expert.series, expert.version) == (
        *("builtin/expert v1.0", "builtin/expert", "v1.0"),
    )
    assert (expert.baseline, forager.baseline) == (True, False)
    assert (expert.run_id, expert.commit, expert.source) == ("run-1", "abc123+", "store")
    assert expert.created_at == datetime.fromtimestamp(START, UTC)
    assert expert.facts["difficulty"] == "easy"


def test_all_trials_are_loaded_and_only_results_have_values(store: Store) -> None:
    (forager,) = subjects_of(store, FORAGER)
    assert [(trial.seed, trial.replicate, trial.state.value) for trial in forager.trials] == [
        (42, 0, "result"),
        (43, 0, "result"),
        (43, 1, "result"),
        (44, 0, "result"),
        (45, 0, "failure"),
        (46, 0, "infrastructure"),
    ]
    for trial, session in zip(forager.trials, [0, 1, 1, 2], strict=False):
        end = SESSIONS[session].end
        assert end is not None
        assert trial.values == end.outcomes
        assert set(trial.values) == set(end.outcomes)
    assert [dict(trial.values) for trial in forager.trials[4:]] == [{}, {}]


def test_replicates_share_a_pair_and_models_share_worlds(store: Store) -> None:
    forager, expert = subjects_of(store, FORAGER, EXPERT)
    assert [trial.pair for trial in forager.trials[:4]] == [
        *("crafter/easy 42", "crafter/easy 43", "crafter/easy 43", "crafter/easy 44"),
    ]
    assert [trial.pair for trial in expert.trials] == [
        f"crafter/easy {seed}" for seed in (42, 43, 44)
    ]


def written(path: Path, statement: str) -> Store:
    store = fill(path, RUN, make_sessions(RUN, 1))
    with store.writing() as connection:
        connection.execute(statement)
    return store


def test_trials_without_sessions_and_whole_subject_values_are_separate(
    tmp_path: Path,
) -> None:
    store = written(
        tmp_path / "t.duckdb",
        "INSERT INTO outcomes VALUES "
        f"('task-1', '{FORAGER}', 'a', 'fix', 7, 0, 'score', 0.5), "
        f"('task-2', '{FORAGER}', 'a', 'fix', NULL, NULL, 'score', 'nan'), "
        f"('{FORAGER}', '{FORAGER}', 'a', NULL, NULL, NULL, 'spread', 2.5)",
    )
    (subject,) = subjects_of(store, FORAGER)
    _, first, second = subject.trials
    assert (first.trial_id, first.pair, first.values) == ("task-1", "fix 7", {"score": 0.5})
    assert (second.pair, second.replicate, dict(second.values)) == (None, 0, {})
    assert subject.facts[SUBJECT_METRICS] == {"spread": 2.5}


def test_looks_are_loaded_with_their_design(tmp_path: Path) -> None:
    rows = ", ".join(
        f"('run-1', '{FORAGER}', '{EXPERT}', 'reward', {look}, {look + 4}, 1.5, 0.5, 2.5, "
        f"{decision}, '{{\"alpha\": 0.05}}', NULL)"
        for look, decision in ((2, "'better'"), (1, "NULL"))
    )
    store = written(tmp_path / "t.duckdb", f"INSERT INTO looks VALUES {rows}")
    forager, expert = subjects_of(store, FORAGER, EXPERT)
    assert [(look.look, look.pairs, look.decision) for look in forager.looks] == [
        (1, 5, None),
        (2, 6, "better"),
    ]
    assert forager.looks[0].baseline_id == EXPERT
    assert forager.looks[0].design == {"alpha": 0.05}
    assert expert.looks == ()


def test_values_behave_like_a_mapping(store: Store) -> None:
    values = subjects_of(store, FORAGER)[0].trials[0].values
    assert values.get("nothing") is None
    assert "reward" in values
    assert len(values) == len(list(values))
    assert pickle.loads(pickle.dumps(values)) == values
    assert repr(values) == repr(dict(values))


def test_an_experiment_without_trials_is_a_subject_without_trials(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, [])
    assert [subject.trials for subject in subjects_of(store, FORAGER)] == [()]
    assert subjects_of(store) == []


def test_an_unknown_id_is_named(store: Store) -> None:
    with pytest.raises(UsageError, match="experiment 'nobody' not found"):
        subjects_of(store, "nobody")


def test_experiments_are_found_by_name_id_prefix_or_run(store: Store) -> None:
    with store.reading() as connection:
        latest = LATER.experiments[0].id
        assert resolve_subjects(connection, ["builtin/expert"]) == [EXPERT]
        assert resolve_subjects(connection, ["builtin/forager v1.1", FORAGER[:8]]) == [
            *(latest, FORAGER),
        ]
        assert resolve_subjects(connection, ["run-1"]) == [FORAGER, EXPERT]
        assert resolve_subjects(connection, ["latest"]) == [latest]
        assert resolve_subjects(connection, ["run-2", "latest", "run-1"]) == [
            *(latest, FORAGER, EXPERT),
        ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("builtin/forager", "ambiguous"),
        ("run", "ambiguous"),
        ("builtin/expret v1.0", "did you mean 'builtin/expert v1.0'"),
        ("", "unknown experiment or run ''"),
    ],
)
def test_unknown_or_ambiguous_name_is_explained(store: Store, name: str, words: str) -> None:
    with store.reading() as connection, pytest.raises(UsageError) as caught:
        resolve_subjects(connection, [name])
    assert words in str(caught.value)


def test_series_is_ordered_by_time_and_found_by_prefix(store: Store) -> None:
    both = [FORAGER, LATER.experiments[0].id]
    with store.reading() as connection:
        assert series_experiments(connection, "builtin/forager") == both
        assert series_experiments(connection, "builtin/f") == both
        with pytest.raises(UsageError, match="ambiguous"):
            series_experiments(connection, "builtin/")
        with pytest.raises(UsageError, match="did you mean 'builtin/expert'"):
            series_experiments(connection, "builtin/exprt")


def test_empty_database_error_suggests_the_first_command(tmp_path: Path) -> None:
    with Store(tmp_path / "t.duckdb").writing() as connection:
        for resolve in (series_experiments, resolve_subjects):
            with pytest.raises(UsageError, match="start with 'assay run'"):
                resolve(connection, "x")
        with pytest.raises(UsageError, match="assay run"):
            resolve_subjects(connection, ["latest"])

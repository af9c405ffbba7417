"""Versions: assigned automatically, tagged manually, and listed in the log."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from duckdb import DuckDBPyConnection

from assay.episodes.config import UNLOGGED
from assay.errors import UsageError
from assay.judge.design import Change, changes_between
from assay.store.ingest import Ingestion, ensure_run
from assay.store.records import RunRecord
from assay.store.rows import session_rows
from assay.store.store import Store
from assay.store.versions import experiment_log, list_experiments, series_log, tag_experiment
from assay.types import TrialState
from tests.store.sessions import START, make_run, make_session, make_sessions
from tests.store.stores import fill

SERIES = "builtin/forager"


def make(number: int, fingerprint: str = "f1", **configuration: Any) -> RunRecord:
    """Return the run with this number; `configuration` extends the default."""
    run = make_run(
        f"run-{number}", (SERIES,), fingerprint=fingerprint, created_at=START + 100 * number
    )
    return replace(run, configuration={**run.configuration, **configuration})


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[DuckDBPyConnection]:
    path = tmp_path / "t.duckdb"
    fill(path, make(1), [])
    with Store(path).writing() as connection:
        yield connection


def experiment(run: RunRecord) -> str:
    return run.experiments[0].id


def versions(connection: DuckDBPyConnection) -> list[str]:
    return [entry.version for entry in list_experiments(connection)]


def names(connection: DuckDBPyConnection) -> list[str]:
    return [entry.name for entry in list_experiments(connection)]


def test_changed_settings_create_a_new_version(
    connection: DuckDBPyConnection,
) -> None:
    for number, fingerprint in enumerate(["f1", "f2", "f2", "f1", "f1"], start=2):
        ensure_run(connection, make(number, fingerprint))
    assert versions(connection) == ["v1.0", "v1.0", "v1.1", "v1.1", "v1.2", "v1.2"]


def test_tag_names_a_version_and_later_versions_continue_from_it(
    connection: DuckDBPyConnection,
) -> None:
    tagged = tag_experiment(connection, experiment(make(1)), version="v2.0", note=" faster ")
    assert (tagged.old_version, tagged.version) == ("v1.0", "v2.0")
    assert (tagged.old_name, tagged.name) == (f"{SERIES} v1.0", f"{SERIES} v2.0")
    assert (tagged.old_note, tagged.note, tagged.others) == (None, "faster", ())
    ensure_run(connection, make(2))
    ensure_run(connection, make(3, "f2"))
    assert names(connection) == [f"{SERIES} {part}" for part in ("v2.0", "v2.0 #2", "v2.1")]
    assert [entry.note for entry in list_experiments(connection)] == ["faster", None, None]


def test_resumed_run_keeps_its_tagged_version(
    connection: DuckDBPyConnection,
) -> None:
    tag_experiment(connection, experiment(make(1)), version="v3.1")
    ensure_run(connection, make(1))
    assert versions(connection) == ["v3.1"]


def test_duplicate_version_gets_a_number_and_a_notice(
    connection: DuckDBPyConnection,
) -> None:
    ensure_run(connection, make(2, "f2"))
    tagged = tag_experiment(connection, experiment(make(2)), version="v1.0")
    assert tagged.name == f"{SERIES} v1.0 #2"
    assert tagged.others == (f"{SERIES} v1.0",)
    again = tag_experiment(connection, experiment(make(2)), version="v1.0")
    assert (again.name, again.old_name) == (tagged.name, tagged.name)


def test_note_does_not_change_the_version_and_an_empty_note_removes_it(
    connection: DuckDBPyConnection,
) -> None:
    tagged = tag_experiment(connection, experiment(make(1)), note="first")
    assert (tagged.name, tagged.version, tagged.note) == (f"{SERIES} v1.0", "v1.0", "first")
    assert tag_experiment(connection, experiment(make(1)), note="").note is None


def test_invalid_version_is_rejected(connection: DuckDBPyConnection) -> None:
    for version in ("2.0", "v2", "v2.0.1", "v02.0", "V2.0", "v2.x", "", "v2.0\n"):
        with pytest.raises(UsageError, match=r"give v<major>\.<minor>, such as v2\.0"):
            tag_experiment(connection, experiment(make(1)), version=version)
    assert versions(connection) == ["v1.0"]


def test_tag_without_a_change_or_experiment_is_rejected(
    connection: DuckDBPyConnection,
) -> None:
    with pytest.raises(UsageError, match="nothing to change"):
        tag_experiment(connection, experiment(make(1)))
    with pytest.raises(UsageError, match="experiment 'x' not found"):
        tag_experiment(connection, "x", version="v2.0")
    with pytest.raises(UsageError, match="10,001 characters"):
        tag_experiment(connection, experiment(make(1)), note="x" * 10_001)


def test_experiment_list_has_trials_results_and_mean(
    connection: DuckDBPyConnection,
) -> None:
    sessions = [
        *make_sessions(make(1), 3),
        make_session(make(1), episode=3, state=TrialState.FAILURE),
    ]
    rows = [session_rows(session) for session in sessions]
    Ingestion(connection, rows).store(*rows)
    connection.execute(
        "INSERT INTO outcomes VALUES (?, ?, 'x', NULL, NULL, NULL, 'achievements', 1e9)",
        2 * [experiment(make(1))],
    )
    ensure_run(connection, make_run("run-9", ("builtin/expert",), baselines=["builtin/expert"]))
    expert, forager = list_experiments(connection)
    earned = [session.end.outcomes["achievements"] for session in sessions[:3] if session.end]
    assert (forager.trials, forager.results) == (4, 3)
    assert forager.mean == pytest.approx(sum(earned) / 3)
    assert (expert.trials, expert.results, expert.mean, expert.baseline) == (0, 0, None, True)
    assert [entry.id for entry in list_experiments(connection, series=SERIES)] == [forager.id]
    assert list_experiments(connection, metric="nothing")[1].mean is None
    with pytest.raises(UsageError, match="unknown series"):
        list_experiments(connection, series="nobody")


def test_experiment_log_shows_changes_and_results(connection: DuckDBPyConnection) -> None:
    prompt = "Play well. " * 20
    second = make(2, "f2", agent={"prompt": prompt, "view": "full"}, episodes=5)
    third = make(3, "f2", agent={"prompt": prompt, "view": "full"}, episodes=5, database="x")
    fourth = make(4, "f3", agent={"prompt": prompt + "!", "view": "full"}, episodes=5)
    fourth = replace(fourth, provenance={"commit": "abc", "dirty": True})
    for run in (second, third, fourth):
        ensure_run(connection, run)
    rows = [session_rows(session) for session in make_sessions(second, 3)]
    Ingestion(connection, rows).store(*rows)
    first, *rest = series_log(connection, SERIES, unlogged=UNLOGGED)
    assert (first.previous, first.same, first.changes) == (None, False, ())
    assert [entry.version for entry in rest] == ["v1.1", "v1.1", "v1.2"]
    assert [change.what for change in rest[0].changes] == ["episodes", "agent"]
    assert str(rest[0].changes[0]) == "episodes: 2 -> 5"
    assert (rest[1].same, rest[1].changes) == (True, ())
    (change,) = rest[2].changes
    assert change.what == "agent.prompt"
    assert change.before.startswith("Play well. Play well.")
    assert change.before != change.after
    assert (rest[2].commit, rest[2].dirty) == ("abc", True)
    ends = [session.end for session in make_sessions(second, 3)]
    assert rest[0].values == tuple(end.outcomes["achievements"] for end in ends if end)
    assert experiment_log(connection, experiment(second), unlogged=UNLOGGED) == rest[0]


def test_different_model_in_a_series_is_a_change(connection: DuckDBPyConnection) -> None:
    run = make_run("run-2", ("gpt-4o",), series=SERIES, created_at=START + 200)
    ensure_run(connection, run)
    assert series_log(connection, SERIES, unlogged=UNLOGGED)[1].changes == (
        Change("model", SERIES, "gpt-4o"),
    )


def test_changes_are_short_printable_and_omit_irrelevant_settings() -> None:
    before = {"database": "a", "a": None, "b": "x\x1b[2J", "c": [1, 2], "d": {"e": 1}}
    after = {"database": "b", "a": "", "b": "\ud800" * 100, "c": [1, 3], "d": {"e": 2}}
    changes = changes_between(before, after, UNLOGGED)
    assert [change.what for change in changes] == ["a", "b", "c", "d.e"]
    assert str(changes[0]) == "a: none -> ''"
    assert str(changes[2]) == "c: [1,2] -> [1,3]"
    assert all(str(change).isprintable() and len(str(change)) < 400 for change in changes)
    assert changes_between(before, before, UNLOGGED) == []

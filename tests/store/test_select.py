"""Selecting sessions by names of sessions, experiments or runs."""

from pathlib import Path

import pytest

from assay.errors import AmbiguousName, UsageError
from assay.store.names import resolve_experiment
from assay.store.queries import select_sessions
from assay.store.store import Store

from .sessions import START, make_run, make_session, make_sessions
from .stores import fill, ids

FIRST = make_run("first", ("z", "a"))
SECOND = make_run("second", ("a",), created_at=START + 100)
SESSIONS = {run.id: make_sessions(run, turns=2) for run in (FIRST, SECOND)}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    for run in (SECOND, FIRST):
        fill(tmp_path / "t.duckdb", run, reversed(SESSIONS[run.id]))
    return Store(tmp_path / "t.duckdb")


def test_selection_without_names_returns_all_in_order(store: Store) -> None:
    with store.reading() as connection:
        assert select_sessions(connection) == ids(SESSIONS["first"] + SESSIONS["second"])


def test_name_may_select_a_run_experiment_or_session(store: Store) -> None:
    session = SESSIONS["first"][3].header
    with store.reading() as connection:
        assert select_sessions(connection, ["sec"]) == ids(SESSIONS["second"])
        assert select_sessions(connection, ["z v1.0"]) == ids(SESSIONS["first"][:2])
        assert select_sessions(connection, [session.experiment_id]) == ids(
            SESSIONS["first"][2:]
        )
        assert select_sessions(connection, [session.session_id[:12]]) == [session.session_id]
        both = select_sessions(connection, ["second", "z v1.0"])
    assert both == ids(SESSIONS["first"][:2] + SESSIONS["second"])


def test_keywords_select_sessions_of_the_latest_run(store: Store) -> None:
    with store.reading() as connection:
        best = select_sessions(connection, ["best"])
    assert best[0] in ids(SESSIONS["second"])


def test_options_restrict_the_selection(store: Store) -> None:
    with store.reading() as connection:
        assert select_sessions(connection, run="first", model="a") == ids(SESSIONS["first"][2:])
        assert select_sessions(connection, experiment="z") == ids(SESSIONS["first"][:2])
        assert select_sessions(connection, ["second"], model="z") == []


def test_unknown_name_is_named_in_the_error(store: Store) -> None:
    with store.reading() as connection, pytest.raises(UsageError, match=r"'nope'.*traces list"):
        select_sessions(connection, ["nope"])


def test_ambiguous_name_error_asks_for_more_characters(store: Store) -> None:
    third = make_run("third", ("first model",), created_at=START + 200)
    fill(store.path, third, [make_session(third)])
    with store.reading() as connection:
        with pytest.raises(UsageError, match=r"experiment .* or run first; give a longer part"):
            select_sessions(connection, ["firs"])
        assert select_sessions(connection, ["first"]) == ids(SESSIONS["first"])


def test_exact_name_takes_precedence_over_prefixes(store: Store) -> None:
    third = make_run("a v1.0 and more", ("b",), created_at=START + 200)
    fill(store.path, third, [make_session(third)])
    with store.reading() as connection:
        assert select_sessions(connection, ["a v1.0"]) == ids(SESSIONS["second"])


def test_name_matching_several_of_one_kind_has_its_own_error(store: Store) -> None:
    said = r"'a v1' is ambiguous: a v1.0 \(.*give a longer part"
    with store.reading() as connection, pytest.raises(AmbiguousName, match=said):
        resolve_experiment(connection, "a v1")

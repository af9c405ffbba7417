"""Loaded records equal the stored ones."""

from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.store.journal import Journal, read_journal
from assay.store.load import (
    load_experiment,
    load_outcomes,
    load_session,
    load_sessions,
    load_stored_run,
    load_traces,
)
from assay.store.records import SessionRecord
from assay.types import TrialState

from .sessions import make_run, make_session, make_sessions, uneven_session
from .stores import fill, ids

RUN = make_run()


def journaled(session: SessionRecord, path: Path) -> SessionRecord:
    """Return a session written to a journal and read back."""
    journal = Journal.create(path, session.header)
    told = 0
    for played in session.played:
        for call in session.calls:
            if call.turn == played.turn:
                journal.append_call(call, session.messages[told : call.reply + 1])
                told = call.reply + 1
        journal.append_played(played)
    journal.append_messages(session.messages[told:])
    assert session.end is not None
    journal.append_end(session.end)
    return read_journal(path)


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(make_session(RUN), id="result"),
        pytest.param(make_session(RUN, state=TrialState.FAILURE), id="failure"),
        pytest.param(make_session(RUN, state=TrialState.INFRASTRUCTURE), id="infrastructure"),
        pytest.param(make_session(RUN, turns=0), id="no turns"),
        pytest.param(uneven_session(RUN), id="no and several calls a turn"),
        pytest.param(make_session(RUN, digests=False, price=None), id="no digests or prices"),
        pytest.param(make_session(RUN, text="\x00 \x1b[31m ü 🙂 ' \" \\"), id="odd text"),
    ],
)
def test_session_round_trips_through_journal_and_database(
    session: SessionRecord, tmp_path: Path
) -> None:
    written = journaled(session, tmp_path / "s.jsonl")
    assert written == session
    store = fill(tmp_path / "t.duckdb", RUN, [written])
    with store.reading() as connection:
        assert load_session(connection, session.header.session_id) == session


def test_run_round_trips_with_its_experiments_in_order(tmp_path: Path) -> None:
    run = make_run(models=("z", "a", "m"), baselines=["a"])
    with fill(tmp_path / "t.duckdb", run, []).reading() as connection:
        stored = load_stored_run(connection, run.id)
        experiments = [
            load_experiment(connection, experiment.id) for experiment in run.experiments
        ]
    assert (stored.command, stored.created_at) == (run.command, run.created_at)
    assert (stored.configuration, stored.provenance) == (run.configuration, run.provenance)
    assert [
        (experiment.position, experiment.model, experiment.tags) for experiment in experiments
    ] == [
        (position, experiment.model, experiment.tags)
        for position, experiment in enumerate(run.experiments)
    ]


def test_sessions_are_loaded_in_the_requested_order(tmp_path: Path) -> None:
    sessions = make_sessions(RUN, 40, turns=1)
    with fill(tmp_path / "t.duckdb", RUN, sessions).reading() as connection:
        wanted = ids(sessions)[::-1]
        assert ids(load_sessions(connection, wanted)) == wanted
        sources = [trace.source for trace in load_traces(connection, wanted[:2])]
    assert sources == ["assay", "assay"]


def test_loaded_outcomes_equal_the_results(tmp_path: Path) -> None:
    good, bad = make_session(RUN), make_session(RUN, episode=1, state=TrialState.FAILURE)
    with fill(tmp_path / "t.duckdb", RUN, [good, bad]).reading() as connection:
        found = load_outcomes(connection, ids([good, bad]))
    assert good.end is not None
    assert found == {good.header.session_id: good.end.outcomes}


def test_missing_session_or_run_is_named_in_the_error(tmp_path: Path) -> None:
    with fill(tmp_path / "t.duckdb", RUN, []).reading() as connection:
        with pytest.raises(UsageError, match="episode 'nope'"):
            load_session(connection, "nope")
        with pytest.raises(UsageError, match="run 'nope'"):
            load_stored_run(connection, "nope")

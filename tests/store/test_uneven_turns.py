"""Turns with zero or several calls keep their order in every format."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from assay.cli import main
from assay.metrics import Episode, EpisodeTotals, Finding, verify_session
from assay.store.export import ExportFormat, export_sessions
from assay.store.imports import ImportReport, import_traces, trace_files
from assay.store.load import load_session
from assay.store.store import Store
from tests.episodes.episodes import play
from tests.store.sessions import make_run, uneven_session
from tests.store.stores import fill, rows_of
from tests.support import query

from .test_atif import check

RUN = make_run()
SESSION = uneven_session(RUN)
NAME = SESSION.header.session_id


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return fill(tmp_path_factory.mktemp("uneven") / "t.duckdb", RUN, [SESSION])


@pytest.mark.parametrize("kind", [ExportFormat.JSON, ExportFormat.JSONL])
def test_export_and_import_give_the_same_rows(
    kind: ExportFormat, store: Store, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    export_sessions(store, [NAME], kind, out)
    other = Store(tmp_path / "other.duckdb")
    assert import_traces(other, trace_files([out])) == ImportReport(1, 0, ())
    assert {**rows_of(other), "experiments": ()} == {**rows_of(store), "experiments": ()}


def test_trajectory_has_every_call_and_step_once(store: Store, tmp_path: Path) -> None:
    export_sessions(store, [NAME], ExportFormat.ATIF, tmp_path / "out")
    (path,) = (tmp_path / "out").glob("*.json")
    trajectory = json.loads(path.read_bytes())
    check(trajectory)
    steps = [step for step in trajectory["steps"] if step["source"] == "agent"]
    assert [
        (step["extra"]["turn"], step["llm_call_count"], "asked" in step["extra"])
        for step in steps
    ] == [
        (1, 1, False),
        (1, 1, True),
        (2, 0, True),
        (3, 1, True),
        (4, 1, False),
        (4, 1, False),
        (4, 1, True),
    ]
    other = Store(tmp_path / "other.duckdb")
    assert import_traces(other, trace_files([tmp_path / "out"])) == ImportReport(1, 0, ())
    with other.reading() as connection:
        read = load_session(connection, NAME)
    assert [call.turn for call in read.calls] == [1, 1, 3, 4, 4, 4]
    assert [played.steps for played in read.played] == [
        played.steps for played in SESSION.played
    ]
    assert read.header.replicate == 2
    assert [record.message for record in read.messages] == [
        record.message for record in SESSION.messages
    ]


def test_turns_view_sums_calls_and_shows_the_last_reply(store: Store) -> None:
    rows = query(
        store,
        "SELECT turn, calls, prompt_tokens, cost_usd, latency_ms, retries, reply_text, steps"
        " FROM turns ORDER BY turn",
    )
    assert rows == [
        (1, 2, 200, pytest.approx(0.003), 500.0, 2, "turn 1, answer 2", 2),
        (2, 0, None, None, None, None, None, 2),
        (3, 1, 300, pytest.approx(0.001), 250.0, 1, "turn 3, answer 1", 2),
        (4, 3, 1200, pytest.approx(0.006), 750.0, 0, "turn 4, answer 3", 2),
    ]
    assert query(store, "SELECT calls FROM model_usage") == [(6,)]
    assert query(store, "SELECT turns, replicate FROM episodes") == [(4, 2)]
    assert query(store, "SELECT DISTINCT replicate FROM outcomes") == [(2,)]


def test_message_between_two_calls_precedes_the_steps_of_its_turn(store: Store) -> None:
    rows = query(
        store,
        "SELECT text, step_index FROM messages m LEFT JOIN session_timesteps t"
        " ON t.id = m.timestep_id AND t.session_id = m.session_id"
        " WHERE role = 'user' ORDER BY position",
    )
    assert rows == [
        ("Think again 2.", None),
        ("Turn 1 is over.", 2),
        ("Turn 2 is over.", 4),
        ("Turn 3 is over.", 6),
        ("Think again 2.", 6),
        ("Think again 3.", 6),
        ("Turn 4 is over.", 8),
    ]


def test_metrics_count_turns_and_sum_calls() -> None:
    episode = Episode.of(SESSION)
    assert [(turn.number, turn.calls) for turn in episode.turns] == [
        *((1, 2), (2, 0), (3, 1), (4, 3)),
    ]
    assert episode.turns[3].usage.prompt == 1200
    assert episode.turns[3].cost_usd == pytest.approx(0.006)
    assert episode.turns[1].cost_usd == 0.0
    assert EpisodeTotals.of(SESSION).turns == 4
    *others, last = SESSION.calls
    unpriced = replace(SESSION, calls=[*others, replace(last, cost_usd=None)])
    assert Episode.of(unpriced).turns[3].cost_usd is None


def test_an_episode_played_without_a_model_is_verified() -> None:
    session = play(seed=1, turns=3)
    assert verify_session(replace(session, calls=[], messages=[])).finding is Finding.SAME


def test_show_names_every_call_of_a_turn(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["traces", "show", NAME, "--database", str(store.path)]) == 0
    output = capsys.readouterr().out
    assert "after 4 turns and 8 steps" in output
    assert output.count("another call") == 3
    for call in SESSION.calls:
        assert output.count(SESSION.messages[call.reply].message.text) == 1

"""ATIF trajectories: those of Harbor's agents, and our own coming back."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.store.export import ExportFormat, export_sessions
from assay.store.imports import ImportReport, import_traces, trace_files
from assay.store.store import Store
from assay.types import TrialState
from tests.store.sessions import make_run, make_session
from tests.store.stores import fill, ids, rows_of
from tests.support import query


def trajectory(**changes: Any) -> dict[str, Any]:
    """What an agent of Harbor leaves."""
    call = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "session-1",
        "agent": {"name": "terminus-2", "version": "2.0", "model_name": "openai/gpt-4o"},
        "steps": [
            {
                "step_id": 1,
                "timestamp": "2026-01-02T03:04:05Z",
                "source": "user",
                "message": [{"type": "text", "text": "Make it so."}],
            },
            {
                "step_id": 2,
                "timestamp": "2026-01-02T03:04:15.5Z",
                "source": "agent",
                "message": "I look around.",
                "reasoning_content": "hm",
                "tool_calls": [call],
                "observation": {"results": [{"source_call_id": "c1", "content": "a b"}]},
                "metrics": {
                    "prompt_tokens": 100,
                    "completion_tokens": 20,
                    "cached_tokens": 10,
                    "cost_usd": 0.002,
                },
            },
            {"step_id": 3, "source": "agent", "message": "Done.", "metrics": {}},
        ],
        "final_metrics": {
            "total_prompt_tokens": 300,
            "total_completion_tokens": 50,
            "total_cost_usd": 0.01,
        },
        **changes,
    }


def imported(store: Path, *paths: Path) -> tuple[Store, ImportReport]:
    made = Store(store)
    return made, import_traces(made, trace_files(paths))


def test_turns_tokens_cost_and_messages_are_imported(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(trajectory()))
    store, report = imported(tmp_path / "store.duckdb", path)
    assert (report.added, report.damaged) == (1, ())
    assert report.unverifiable[0].sessions == 1
    assert query(
        store,
        "SELECT model, turns, actions_asked, prompt_tokens, completion_tokens, cost_usd,"
        " duration_s, verifiable, source, state FROM episodes",
    ) == [("openai/gpt-4o", 2, 1, 300, 50, 0.01, 10.5, False, "atif", "result")]
    assert query(store, "SELECT role, text FROM messages ORDER BY position") == [
        ("user", "Make it so."),
        ("assistant", "I look around."),
        ("tool", "a b"),
        ("assistant", "Done."),
    ]
    assert query(store, "SELECT calls, cost_usd, provider FROM model_usage") == [
        (2, 0.002, "openai")
    ]
    assert dict(query(store, "SELECT metric, value FROM outcomes")) == {
        "turns": 2.0,
        "tokens": 350.0,
        "cost_usd": 0.01,
    }


@pytest.mark.extras
def test_exported_trajectories_are_imported_completely(tmp_path: Path) -> None:
    run = make_run()
    sessions = [make_session(run), make_session(run, episode=1, state=TrialState.FAILURE)]
    source = fill(tmp_path / "source.duckdb", run, sessions)
    export_sessions(source, ids(sessions), ExportFormat.ATIF, tmp_path / "out")
    other, report = imported(tmp_path / "other.duckdb", tmp_path / "out")
    assert report == ImportReport(2, 0, ())
    for sql in (
        "FROM session_timesteps ORDER BY ALL",
        "SELECT * EXCLUDE (experiment_id) FROM outcomes ORDER BY ALL",
        "SELECT session_id, role, text FROM messages ORDER BY ALL",
    ):
        assert query(other, sql) == query(source, sql)
    same = (
        "SELECT session_id, seed, state, stop_reason, reward, actions_asked, unknown_actions,"
        " malformed_replies, prompt_tokens, cost_usd, verifiable FROM episodes ORDER BY ALL"
    )
    assert query(other, same) == query(source, same)


def test_exported_trajectories_are_recognised_in_their_database(tmp_path: Path) -> None:
    run = make_run()
    sessions = [make_session(run)]
    store = fill(tmp_path / "source.duckdb", run, sessions)
    before = rows_of(store)
    export_sessions(store, ids(sessions), ExportFormat.ATIF, tmp_path / "out")
    assert imported(store.path, tmp_path / "out")[1] == ImportReport(0, 1, ())
    assert rows_of(store) == before


def test_copied_steps_are_not_turns(tmp_path: Path) -> None:
    value = trajectory()
    value["steps"][1]["is_copied_context"] = True
    (tmp_path / "one.jsonl").write_text(json.dumps(value) + "\n")
    store, _ = imported(tmp_path / "store.duckdb", tmp_path / "one.jsonl")
    assert query(store, "SELECT turns FROM episodes") == [(1,)]
    assert query(store, "SELECT calls FROM model_usage") == [(1,)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": []}, "at least one step"),
        ({"steps": [3]}, "steps.0: must be an object"),
        ({"steps": [{"source": "robot"}]}, "steps.0.source"),
        ({"final_metrics": {"total_cost_usd": -5}}, "a cost of -5 dollars; correct it to 0"),
    ],
    ids=["no steps", "no object", "no source", "negative cost"],
)
def test_damaged_trajectory_is_reported_with_the_field(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(trajectory(**changes)))
    _, report = imported(tmp_path / "store.duckdb", path)
    assert report.damaged[0].where == str(path)
    assert said in report.damaged[0].reason
    assert report.added == 0


def test_implausible_values_are_omitted(tmp_path: Path) -> None:
    value = trajectory(
        agent={"name": "\x1b[31m" + "x" * 500, "model_name": None},
        final_metrics={"total_prompt_tokens": -5, "total_cost_usd": 1e300},
        extra={"seed": "x", "episode": 10**30},
    )
    value["steps"][0] |= {"timestamp": "9999999-01-01", "message": None}
    value["steps"][1] |= {"metrics": {"prompt_tokens": 10**25, "cost_usd": True}}
    value["steps"][1]["tool_calls"] = [None, {"arguments": "\ud800"}]
    text = json.dumps(value).replace("1e+300", "NaN")
    (tmp_path / "one.json").write_text(text)
    store, report = imported(tmp_path / "store.duckdb", tmp_path / "one.json")
    assert report.damaged == ()
    row = query(store, "SELECT model, prompt_tokens, seed, episode FROM episodes")
    assert row[0][0].startswith("\\x1b[31mxxx")
    assert row[0][1:] == (0, None, 0)


def test_deeply_nested_values_do_not_exhaust_the_reader(tmp_path: Path) -> None:
    text = json.dumps(trajectory()).replace('"ls"', "[" * 100_000 + "]" * 100_000)
    (tmp_path / "one.json").write_text(text)
    _, report = imported(tmp_path / "store.duckdb", tmp_path / "one.json")
    assert (report.added, len(report.damaged)) == (0, 1)

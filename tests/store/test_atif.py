"""ATIF exports follow the documented rules of the format."""

import json
from datetime import datetime
from typing import Any

import pytest

from assay.store.formats.atif import dump_atif
from assay.store.records import MessageRecord, SessionRecord
from assay.types import Message, TrialState
from tests.store.sessions import make_run, make_session

from .test_trace_json import trace_of

RUN = make_run()
ROOT = {
    *("schema_version", "session_id", "trajectory_id", "agent", "steps", "notes"),
    *("final_metrics", "continued_trajectory_ref", "subagent_trajectories", "extra"),
}
AGENT_ONLY = {
    *("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"),
    "llm_call_count",
}
STEP = {
    *("step_id", "timestamp", "source", "message", "observation", "is_copied_context"),
    *("extra", *AGENT_ONLY),
}
METRICS = {
    *("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "logprobs"),
    *("prompt_token_ids", "completion_token_ids", "extra"),
}
TOTALS = {
    *("total_prompt_tokens", "total_completion_tokens", "total_cached_tokens"),
    *("total_cost_usd", "total_steps", "extra"),
}


def check(trajectory: dict[str, Any]) -> None:
    """Check all requirements of the format for a trajectory."""
    assert set(trajectory) <= ROOT
    assert trajectory["schema_version"] == "ATIF-v1.7"
    assert set(trajectory["agent"]) <= {
        *("name", "version", "model_name", "tool_definitions", "extra")
    }
    assert {"name", "version"} <= set(trajectory["agent"])
    assert trajectory["steps"]
    assert set(trajectory["final_metrics"]) <= TOTALS
    assert trajectory["final_metrics"]["total_steps"] == len(trajectory["steps"])
    for number, step in enumerate(trajectory["steps"], start=1):
        assert step["step_id"] == number
        check_step(step)


def check_step(step: dict[str, Any]) -> None:
    assert set(step) <= STEP
    assert step["source"] in ("system", "user", "agent")
    assert isinstance(step["message"], str)
    if step["source"] != "agent":
        assert not AGENT_ONLY & set(step)
    if "timestamp" in step:
        datetime.fromisoformat(step["timestamp"])
    assert set(step.get("metrics", ())) <= METRICS
    calls = step.get("tool_calls", [])
    for call in calls:
        assert set(call) == {"tool_call_id", "function_name", "arguments"}
        assert isinstance(call["arguments"], dict)
    known = {None, *(call["tool_call_id"] for call in calls)}
    for result in step.get("observation", {}).get("results", ()):
        assert set(result) <= {"source_call_id", "content"}
        assert result.get("source_call_id") in known


@pytest.mark.parametrize(
    "session",
    [
        pytest.param(make_session(RUN), id="result"),
        pytest.param(make_session(RUN, state=TrialState.FAILURE), id="failure"),
        pytest.param(make_session(RUN, turns=0, price=None), id="no turns"),
        pytest.param(
            SessionRecord(make_session(RUN).header, [], [], [], make_session(RUN).end),
            id="no messages",
        ),
    ],
)
def test_trajectory_follows_the_atif_rules(session: SessionRecord) -> None:
    check(json.loads(dump_atif(trace_of(session))))


def test_calls_and_their_results_are_in_one_step() -> None:
    trajectory = json.loads(dump_atif(trace_of(make_session(RUN))))
    step = next(step for step in trajectory["steps"] if step["source"] == "agent")
    assert step["tool_calls"][0]["function_name"] == "interact"
    assert len(step["tool_calls"][0]["arguments"]["actions"]) == 3
    assert step["observation"]["results"][0]["source_call_id"] == "call_1"
    assert step["metrics"]["prompt_tokens"] == 100
    assert [entry["index"] for entry in step["extra"]["steps"]] == [1, 2, 3]
    assert trajectory["final_metrics"]["total_completion_tokens"] == 80
    assert trajectory["extra"]["seed"] == 42


def test_unknown_price_is_omitted() -> None:
    trajectory = json.loads(dump_atif(trace_of(make_session(RUN, price=None))))
    assert "total_cost_usd" not in trajectory["final_metrics"]


@pytest.mark.parametrize(
    "arguments", ["", "{", "[1]", '{"a": NaN}', None, 3, "[" * 5000], ids=repr
)
def test_non_object_arguments_follow_the_atif_rules(arguments: Any) -> None:
    call = {"id": "a", "function": {"name": "interact", "arguments": arguments}}
    reply = Message({"role": "assistant", "content": None, "tool_calls": [call, "b", {}]})
    told = Message({"role": "tool", "tool_call_id": "z", "content": [{"text": "part"}]})
    session = make_session(RUN, turns=0)
    messages = [MessageRecord(0, 1, reply, "reply", 1.0), MessageRecord(1, 1, told, "o", 2.0)]
    odd = SessionRecord(session.header, messages, [], [], session.end)
    trajectory = json.loads(dump_atif(trace_of(odd)))
    check(trajectory)
    assert trajectory["steps"][0]["observation"]["results"] == [{"content": "part"}]

"""ATIF, the trajectory format of Harbor, version 1.7, as it is written.

A message of the system or the user is a step of its own; an answer of the model is an agent
step, and what the tools said to it is the observation of that step. What was played stands
with the last answer of its turn, or, if the model was not asked, in an agent step without a
call. What ATIF has no field for stands in `extra`: actions, rewards, digests, hooks, outcomes.
Of an imported session the totals are those that its log counted. `ATIF_DROPS` is left out.
"""

import json
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from assay.core.canonical_json import canonical_json
from assay.store.records import (
    CallRecord,
    MessageRecord,
    PlayedRecord,
    SessionRecord,
    Trace,
)

ATIF_VERSION: Final = "ATIF-v1.7"
"""The version that every file names."""

ATIF_DROPS: Final = (
    "which messages each call was sent, its sampling parameters and waiting time, pictures in"
    " messages, and codes and priorities of hooks"
)
"""What no field of ATIF holds, and `extra` neither."""

_SOURCES: Final = {"system": "system", "developer": "system"}


def dump_atif(trace: Trace) -> bytes:
    """A session as one ATIF trajectory."""
    session = trace.session
    header = session.header
    steps = _steps(session)
    trajectory: dict[str, Any] = {
        "schema_version": ATIF_VERSION,
        "session_id": header.session_id,
        "trajectory_id": header.session_id,
        "agent": _agent(trace),
        "steps": steps,
        **_notes(session),
        "final_metrics": {"total_steps": len(steps), **_final_metrics(session)},
        "extra": _about(trace),
    }
    return canonical_json(trajectory) + b"\n"


def _agent(trace: Trace) -> dict[str, Any]:
    header, made_by = trace.session.header, trace.run.provenance
    agent: dict[str, Any] = {
        "name": trace.source,
        "version": str(made_by.get("assay") or made_by.get("version") or "unknown"),
        "model_name": header.subject,
    }
    if header.tools is not None and header.tools.value:
        agent["tool_definitions"] = header.tools.value
    return agent


def _notes(session: SessionRecord) -> dict[str, str]:
    """How many pictures are left out, if any."""
    contents = [record.message.value.get("content") for record in session.messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    left_out = sum(not isinstance(part, dict) or "text" not in part for part in parts)
    return {"notes": f"{left_out} pictures or other parts left out"} if left_out else {}


def _steps(session: SessionRecord) -> list[dict[str, Any]]:
    calls = {call.reply: call for call in session.calls}
    last = {call.turn: call.reply for call in session.calls}
    played = {record.turn: record for record in session.played}
    for record in session.messages:
        # A log may hold answers and no calls.
        if record.message.role == "assistant" and not calls:
            last[record.turn] = record.position
    silent = deque(record for record in session.played if record.turn not in last)
    steps: list[dict[str, Any]] = []
    for record in session.messages:
        call = calls.get(record.position)
        while silent and silent[0].turn < (call or record).turn:
            steps.append(_silent(silent.popleft()))
        if record.message.role == "assistant":
            step = _answer(record, call)
            turn = record.turn if call is None else call.turn
            if last.get(turn) == record.position and turn in played:
                step["extra"] = _played(played[turn])
            elif call is not None and last[turn] != record.position:
                step["extra"] = {"turn": turn}
            steps.append(step)
        elif record.message.role == "tool" and steps and steps[-1]["source"] == "agent":
            _observe(steps[-1], record)
        else:
            source = _SOURCES.get(record.message.role, "user")
            steps.append({"source": source, **_said(record)})
    steps += map(_silent, silent)
    if not steps:
        # A trajectory has at least one step, even if nothing was ever said.
        steps.append({"source": "system", "message": ""})
    return [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]


def _said(record: MessageRecord) -> dict[str, Any]:
    return {"timestamp": _time(record.at), "message": _text(record.message.value)}


def _text(value: Mapping[str, Any]) -> str:
    content = value.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _silent(played: PlayedRecord) -> dict[str, Any]:
    """A turn in which the model was not asked."""
    return {
        "source": "agent",
        "timestamp": _time(played.at),
        "message": "",
        "llm_call_count": 0,
        "extra": _played(played),
    }


def _answer(record: MessageRecord, call: CallRecord | None) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", **_said(record)}
    tool_calls = record.message.value.get("tool_calls")
    if isinstance(tool_calls, list) and tool_calls:
        step["tool_calls"] = [_tool_call(each, i) for i, each in enumerate(tool_calls)]
    reasoning = record.message.value.get("reasoning_content")
    if isinstance(reasoning, str):
        step["reasoning_content"] = reasoning
    if call is not None:
        step |= {"model_name": call.model, "metrics": _metrics(call), "llm_call_count": 1}
    return step


def _tool_call(value: Any, place: int) -> dict[str, Any]:
    call = value if isinstance(value, dict) else {}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    return {
        "tool_call_id": str(call.get("id") or f"call_{place}"),
        "function_name": str(function.get("name") or ""),
        "arguments": _arguments(function.get("arguments")),
    }


def _arguments(value: Any) -> dict[str, Any]:
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        canonical_json(parsed)
    except (ValueError, RecursionError):
        parsed = None
    # ATIF asks for an object; a model may have written anything.
    return parsed if isinstance(parsed, dict) else {"unreadable": str(value)}


def _observe(step: dict[str, Any], record: MessageRecord) -> None:
    result: dict[str, Any] = {"content": _text(record.message.value)}
    known = [call["tool_call_id"] for call in step.get("tool_calls", ())]
    name = record.message.value.get("tool_call_id")
    if name in known:
        result["source_call_id"] = name
    step.setdefault("observation", {"results": []})["results"].append(result)


def _metrics(call: CallRecord) -> dict[str, Any]:
    metrics: dict[str, Any] = {
        "prompt_tokens": call.usage.prompt,
        "completion_tokens": call.usage.completion,
        "cached_tokens": call.usage.cached,
        "extra": {
            "reasoning_tokens": call.usage.reasoning,
            "latency_s": call.latency_s,
            "retries": call.retries,
            "finish_reason": call.finish_reason,
        },
    }
    if call.cost_usd is not None:
        metrics["cost_usd"] = call.cost_usd
    return metrics


def _played(played: PlayedRecord) -> dict[str, Any]:
    extra: dict[str, Any] = {
        "turn": played.turn,
        "asked": played.asked,
        "unknown": played.unknown,
        "steps": [
            {
                "index": step.index,
                "action": step.action,
                "reward": step.reward,
                "digest": step.digest,
                "unlocked": step.unlocked,
                "no_effect": step.no_effect,
            }
            for step in played.steps
        ],
        "hooks": [
            {
                "name": hook.name,
                "step": hook.step,
                "description": hook.description,
                "data": hook.data,
            }
            for hook in played.hooks
        ],
    }
    if played.malformed is not None:
        extra["malformed"] = played.malformed
    return extra


def _final_metrics(session: SessionRecord) -> dict[str, Any]:
    usages = [call.usage for call in session.calls]
    costs = [call.cost_usd for call in session.calls]
    totals: dict[str, Any] = {
        "prompt_tokens": sum(usage.prompt for usage in usages),
        "completion_tokens": sum(usage.completion for usage in usages),
        "cached_tokens": sum(usage.cached for usage in usages),
        "cost_usd": None if None in costs else sum(filter(None, costs)),
        **session.imported_totals,
    }
    metrics: dict[str, Any] = {
        f"total_{name}": totals[name]
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
        if totals[name] is not None
    }
    if session.end is not None and session.end.outcomes:
        metrics["extra"] = {"outcomes": session.end.outcomes}
    return metrics


def _about(trace: Trace) -> dict[str, Any]:
    header, end = trace.session.header, trace.session.end
    about: dict[str, Any] = {
        "run": trace.run.id,
        "experiment": trace.experiment.name,
        "task": header.task,
        "seed": header.seed,
        "episode": header.episode,
        "difficulty": header.difficulty,
        "world": header.metadata,
    }
    if header.replicate:
        about["replicate"] = header.replicate
    if end is not None:
        about |= {"state": end.state, "stop_reason": end.stop_reason}
        if end.error is not None:
            about["error"] = {"type": end.error.type, "message": end.error.message}
    return about


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")

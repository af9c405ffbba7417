"""Export to ATIF 1.7, the trajectory format of Harbor.

A system or user message is a step; a model reply is an agent step, and the tool results for it
are the observation of that step. The actions played in a turn are in the step of its last reply
or, if the model was not called, in an agent step without a call. Data without a field in ATIF
is in `extra`: actions, rewards, digests, hooks, outcomes. The totals of an imported session are
those of its log. `ATIF_DROPS` is not exported.
"""

import json
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from assay.core.canonical_json import canonical_json
from assay.store.records import (
    CallRecord,
    HookRecord,
    MessageRecord,
    PlayedRecord,
    SessionRecord,
    StepRecord,
    Trace,
)

ATIF_VERSION: Final = "ATIF-v1.7"
"""Schema version in every file."""

ATIF_DROPS: Final = (
    "which messages each call was sent, its sampling parameters and waiting time, pictures in"
    " messages, and codes and priorities of hooks"
)
"""Data that is not exported."""

_SOURCES: Final = {"system": "system", "developer": "system"}


def dump_atif(trace: Trace) -> bytes:
    """Convert a session to one ATIF trajectory."""
    session = trace.session
    header = session.header
    steps = _make_steps(session)
    trajectory: dict[str, Any] = {
        "schema_version": ATIF_VERSION,
        "session_id": header.session_id,
        "trajectory_id": header.session_id,
        "agent": _make_agent(trace),
        "steps": steps,
        **_make_notes(session),
        "final_metrics": {"total_steps": len(steps), **_make_final_metrics(session)},
        "extra": _make_about(trace),
    }
    return canonical_json(trajectory) + b"\n"


def _make_agent(trace: Trace) -> dict[str, Any]:
    header = trace.session.header
    agent: dict[str, Any] = {
        "name": trace.source,
        "version": str(_get_version(trace.run.provenance) or "unknown"),
        "model_name": header.subject,
    }
    if header.tools is not None and header.tools.value:
        agent["tool_definitions"] = header.tools.value
    return agent


def _make_notes(session: SessionRecord) -> dict[str, str]:
    """Return a note about the number of omitted pictures, if any."""
    contents = [record.message.value.get("content") for record in session.messages]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    left_out = sum(not isinstance(part, dict) or "text" not in part for part in parts)
    return {"notes": f"{left_out} pictures or other parts left out"} if left_out else {}


def _get_version(provenance: Mapping[str, Any]) -> Any:
    return provenance.get("assay") or provenance.get("version")


def _make_steps(session: SessionRecord) -> list[dict[str, Any]]:
    calls = {call.reply: call for call in session.calls}
    last = {call.turn: call.reply for call in session.calls}
    played = {record.turn: record for record in session.played}
    for record in session.messages:
        # An imported log may have replies but no calls.
        if record.message.role == "assistant" and not calls:
            last[record.turn] = record.position
    silent = deque(record for record in session.played if record.turn not in last)
    steps: list[dict[str, Any]] = []
    for record in session.messages:
        call = calls.get(record.position)
        while silent and silent[0].turn < (call or record).turn:
            steps.append(_make_silent_step(silent.popleft()))
        if record.message.role == "assistant":
            step = _make_reply_step(record, call)
            turn = record.turn if call is None else call.turn
            if last.get(turn) == record.position and turn in played:
                step["extra"] = _make_extra(played[turn])
            elif call is not None and last[turn] != record.position:
                step["extra"] = {"turn": turn}
            steps.append(step)
        elif record.message.role == "tool" and steps and steps[-1]["source"] == "agent":
            _add_observation(steps[-1], record)
        else:
            source = _SOURCES.get(record.message.role, "user")
            steps.append({"source": source, **_make_text(record)})
    steps += map(_make_silent_step, silent)
    if not steps:
        # A trajectory needs at least one step, even if the session has no messages.
        steps.append({"source": "system", "message": ""})
    return [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]


def _make_text(record: MessageRecord) -> dict[str, Any]:
    return {"timestamp": _format_time(record.at), "message": _join_text(record.message.value)}


def _join_text(value: Mapping[str, Any]) -> str:
    content = value.get("content")
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _make_silent_step(played: PlayedRecord) -> dict[str, Any]:
    return {
        "source": "agent",
        "timestamp": _format_time(played.at),
        "message": "",
        "llm_call_count": 0,
        "extra": _make_extra(played),
    }


def _make_reply_step(record: MessageRecord, call: CallRecord | None) -> dict[str, Any]:
    step: dict[str, Any] = {"source": "agent", **_make_text(record)}
    tool_calls = record.message.value.get("tool_calls")
    if isinstance(tool_calls, list) and tool_calls:
        step["tool_calls"] = [_make_tool_call(call, i) for i, call in enumerate(tool_calls)]
    reasoning = record.message.value.get("reasoning_content")
    if isinstance(reasoning, str):
        step["reasoning_content"] = reasoning
    if call is not None:
        step |= {"model_name": call.model, "metrics": _make_metrics(call), "llm_call_count": 1}
    return step


def _make_tool_call(value: Any, place: int) -> dict[str, Any]:
    call = value if isinstance(value, dict) else {}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    return {
        "tool_call_id": str(call.get("id") or f"call_{place}"),
        "function_name": str(function.get("name") or ""),
        "arguments": _parse_arguments(function.get("arguments")),
    }


def _parse_arguments(value: Any) -> dict[str, Any]:
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        canonical_json(parsed)
    except (ValueError, RecursionError):
        parsed = None
    # ATIF requires an object, but a model may have written anything.
    return parsed if isinstance(parsed, dict) else {"unreadable": str(value)}


def _add_observation(step: dict[str, Any], record: MessageRecord) -> None:
    result: dict[str, Any] = {"content": _join_text(record.message.value)}
    known = [call["tool_call_id"] for call in step.get("tool_calls", ())]
    name = record.message.value.get("tool_call_id")
    if name in known:
        result["source_call_id"] = name
    step.setdefault("observation", {"results": []})["results"].append(result)


def _make_metrics(call: CallRecord) -> dict[str, Any]:
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


def _make_extra(played: PlayedRecord) -> dict[str, Any]:
    extra: dict[str, Any] = {
        "turn": played.turn,
        "asked": played.asked,
        "unknown": played.unknown,
        "steps": [_make_step(step) for step in played.steps],
        "hooks": [_make_hook(hook) for hook in played.hooks],
    }
    if played.malformed is not None:
        extra["malformed"] = played.malformed
    return extra


def _make_step(step: StepRecord) -> dict[str, Any]:
    return {
        "index": step.index,
        "action": step.action,
        "reward": step.reward,
        "digest": step.digest,
        "unlocked": step.unlocked,
        "no_effect": step.no_effect,
    }


def _make_hook(hook: HookRecord) -> dict[str, Any]:
    return {
        "name": hook.name,
        "step": hook.step,
        "description": hook.description,
        "data": hook.data,
    }


def _make_final_metrics(session: SessionRecord) -> dict[str, Any]:
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


def _make_about(trace: Trace) -> dict[str, Any]:
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


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")

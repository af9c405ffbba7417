"""One episode for the viewer: its facts, its steps and turns, its messages, and pictures.

Texts in it are untrusted: a page must only ever show them as text.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from assay.core.text import visible
from assay.crafter.render import png_bytes
from assay.crafter.rules import ACTIONS
from assay.crafter.text.forms import full_text
from assay.crafter.text.observation import observe
from assay.episodes.replay import Replay, Verification
from assay.errors import UsageError
from assay.report.viewer.library import Library, Missing
from assay.store.location import DEFAULT_DATABASE
from assay.store.notes import Note, load_notes
from assay.store.records import CallRecord, MessageRecord, PlayedRecord, SessionRecord
from assay.store.schema import StoredKind
from assay.store.viewing import episode_rows, forks_of, world_episodes

_LONGEST: Final = 20_000
_MOST_SIBLINGS: Final = 24


def moment(seconds: float | None) -> str | None:
    """Return a time in ISO 8601."""
    if seconds is None:
        return None
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def command(library: Library, *words: str) -> str:
    """Return a command of assay about this database."""
    usual = library.path.absolute() == DEFAULT_DATABASE.absolute() or library.exported
    where = () if usual else ("--database", str(library.path))
    return shlex.join(["assay", *words, *where])


def episode_values(library: Library, name: str) -> dict[str, Any]:
    """Return everything about an episode but its messages and frames."""
    key = library.resolve(name)
    live = library.is_live(key)
    session = library.session(key)
    header, end = session.header, session.end
    row: dict[str, Any] = {}
    siblings: list[dict[str, Any]] = []
    forks: list[str] = []
    notes: list[Note] = []
    if library.path.exists():
        with library.reading() as connection:
            if header.seed is not None:
                near = world_episodes(
                    connection, header.task, header.seed, run=None, most=_MOST_SIBLINGS
                )
                siblings = episode_rows(connection, [each for each in near if each != key])
            row = next(iter(episode_rows(connection, [key])), {})
            notes = load_notes(connection, key)
            forks = forks_of(connection, key)
    recording = library.recording(key)
    usage = _total_usage(session.calls)
    return {
        **(row or live_row(session)),
        "live": live,
        "ended_at": moment(end.at if end else None),
        "error": asdict(end.error) if end and end.error else None,
        "tokens_by_kind": usage,
        "outcomes": dict(end.outcomes) if end else {},
        "unlocked": [
            {"achievement": name, "step": step.index, "turn": played.turn}
            for played in session.played
            for step in played.steps
            for name in step.unlocked
        ],
        "forked_at": header.forked_at,
        "forks": forks,
        "limits": _part(header.metadata, "limits"),
        "actions_per_turn": _part(header.metadata, "agent").get("actions_per_turn"),
        "film": {"frames": len(recording.frames), "reason": recording.reason},
        "replay": replay_values(library.verification(key)),
        "step_rows": _step_rows(session),
        "turn_rows": list(_turn_rows(session)),
        "siblings": [{name: each[name] for name in _SIBLING} for each in siblings],
        "commands": {
            "view": command(library, "view", key),
            "replay": command(library, "traces", "replay", key),
            "show": command(library, "traces", "show", key),
            "verify": command(library, "traces", "verify", key),
        },
        "labels": row.get("labels", []),
        "notes": [note._asdict() for note in notes],
        "coding": header.trial_kind == StoredKind.CODING,
    }


_SIBLING: Final = (
    *("id", "model", "experiment_name", "run", "reward", "achievements", "steps", "state"),
    *("stop_reason", "replicate"),
)


def _part(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = metadata.get(name)
    return found if isinstance(found, dict) else {}


def live_row(session: SessionRecord) -> dict[str, Any]:
    """Return the row of an episode that is not stored yet."""
    header = session.header
    steps = [step for played in session.played for step in played.steps]
    return {
        "id": header.session_id,
        "run": header.run_id,
        "experiment": header.experiment_id,
        "experiment_name": None,
        "model": header.subject,
        "task": header.task,
        "difficulty": header.difficulty,
        "seed": header.seed,
        "replicate": header.replicate,
        "state": session.end.state if session.end else None,
        "stop_reason": session.end.stop_reason if session.end else None,
        "reward": round(sum(step.reward for step in steps), 6),
        "achievements": len({name for step in steps for name in step.unlocked}),
        "steps": len(steps),
        "turns": len(session.played),
        "waste": None,
        "cost_usd": None,
        "tokens": sum(call.usage.total for call in session.calls),
        "unusable": sum(played.malformed is not None for played in session.played),
        "retries": sum(call.retries for call in session.calls),
        "duration_s": None,
        "created_at": moment(header.created_at),
        "kind": header.trial_kind,
        "source": "assay",
        "baseline": False,
        "parent": header.parent,
        "labels": [],
        "notes": 0,
    }


def _total_usage(calls: Sequence[CallRecord]) -> dict[str, int]:
    names = ("prompt", "completion", "cached", "reasoning")
    return {name: sum(getattr(call.usage, name) for call in calls) for name in names}


def replay_values(found: Verification) -> dict[str, Any]:
    """Return the result of a replay."""
    difference = found.difference
    return {
        "finding": found.finding,
        "steps": found.steps,
        "reason": found.reason,
        "difference": difference and {**asdict(difference), "text": str(difference)},
    }


def _step_rows(session: SessionRecord) -> dict[str, Any]:
    pairs = [(played.turn, step) for played in session.played for step in played.steps]
    return {
        "action": [step.action for _, step in pairs],
        "turn": [turn for turn, _ in pairs],
        "reward": [step.reward for _, step in pairs],
        "no_effect": [step.no_effect for _, step in pairs],
        "unlocked": {
            str(step.index): list(step.unlocked) for _, step in pairs if step.unlocked
        },
    }


def _turn_rows(session: SessionRecord) -> Iterator[dict[str, Any]]:
    played = {each.turn: each for each in session.played}
    calls: dict[int, list[CallRecord]] = {}
    for call in session.calls:
        calls.setdefault(call.turn, []).append(call)
    for turn in sorted({*played, *calls}):
        found = played.get(turn)
        yield {
            "turn": turn,
            **_played_values(found),
            "calls": [_call_values(call) for call in calls.get(turn, ())],
        }


def _played_values(played: PlayedRecord | None) -> dict[str, Any]:
    steps = played.steps if played else ()
    return {
        "first": steps[0].index if steps else None,
        "last": steps[-1].index if steps else None,
        "asked": list(played.asked) if played else [],
        "unknown": list(played.unknown) if played else [],
        "malformed": played.malformed if played else None,
        "skipped": played.skipped if played else 0,
        "at": moment(played.at) if played else None,
        "hooks": [
            {
                "name": hook.name,
                "code": hook.code,
                "priority": hook.priority,
                "step": hook.step,
                "description": visible(hook.description),
            }
            for hook in (played.hooks if played else ())
        ],
    }


def _call_values(call: CallRecord) -> dict[str, Any]:
    return {
        "at": moment(call.at),
        "model": call.model,
        "provider": call.provider,
        "finish_reason": call.finish_reason,
        **_total_usage([call]),
        "cost_usd": call.cost_usd,
        "latency_s": call.latency_s,
        "waited_s": call.waited_s,
        "retries": call.retries,
        "request": list(call.request),
        "reply": call.reply,
    }


def message_page(library: Library, name: str, start: int, limit: int) -> dict[str, Any]:
    """Return some messages of an episode, each with the step it is about."""
    session = library.session(library.resolve(name))
    before: dict[int, int] = {}
    made = 0
    for played in session.played:
        before[played.turn] = made
        made += len(played.steps)
    chosen = session.messages[start : start + limit]
    return {
        "total": len(session.messages),
        "messages": [
            message_values(record, before.get(record.turn, made)) for record in chosen
        ],
    }


def message_values(record: MessageRecord, step: int) -> dict[str, Any]:
    """Return one message; long texts are cut."""
    text = message_text(record)
    return {
        "position": record.position,
        "turn": record.turn,
        "step": step,
        "role": record.message.role,
        "type": record.message_type,
        "at": moment(record.at),
        "text": visible(text[:_LONGEST]),
        "cut": len(text) if len(text) > _LONGEST else None,
        **tool_values(record),
    }


def tool_values(record: MessageRecord) -> dict[str, Any]:
    """Return the reasoning and the tool calls of a message."""
    value = record.message.value
    calls = []
    for call in _list(value.get("tool_calls")):
        function = _part(call, "function") if isinstance(call, dict) else {}
        calls.append(
            {
                "id": visible(str(call.get("id", ""))) if isinstance(call, dict) else "",
                "name": visible(str(function.get("name", "")))[:200],
                "arguments": visible(_pretty(function.get("arguments"))[:_LONGEST]),
            }
        )
    thought = value.get("reasoning_content") or value.get("reasoning")
    reasoning = visible(thought[:_LONGEST]) if isinstance(thought, str) else None
    return {"reasoning": reasoning, "calls": calls}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _pretty(arguments: object) -> str:
    if not isinstance(arguments, str):
        return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
    try:
        return json.dumps(json.loads(arguments), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def message_text(record: MessageRecord) -> str:
    """Return the whole text of a message; parts that are not text as JSON."""
    content = record.message.value.get("content")
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "\n".join(
        part["text"]
        if isinstance(part, dict) and isinstance(part.get("text"), str)
        else json.dumps(part, ensure_ascii=False)
        for part in content
    )


def whole_message(library: Library, name: str, position: int) -> str:
    """Return the whole text of one message."""
    session = library.session(library.resolve(name))
    for record in session.messages:
        if record.position == position:
            return visible(message_text(record))
    raise Missing(f"the episode has no message {position}")


def _replayed_to(library: Library, name: str, step: int) -> tuple[Replay, Any]:
    """Replay an episode to a step; return it and the result of that step."""
    recording = library.recording(library.resolve(name))
    replay = Replay(recording.session)
    if not 0 <= step <= recording.steps:
        raise UsageError(f"step {step} cannot be shown; give 0 to {recording.steps}")
    last = None
    for last in islice(replay, step):  # noqa: B007 (used after the loop)
        pass
    return replay, last


def frame_png(library: Library, name: str, step: int, size: int) -> bytes:
    """Return the exact picture of a step."""
    replay, _ = _replayed_to(library, name, step)
    return png_bytes(replay.world.render(size))


def frame_text(library: Library, name: str, step: int) -> str:
    """Return the text that a model reads at a step."""
    replay, last = _replayed_to(library, name, step)
    if last is None:
        return full_text(observe(replay.world.view()))
    action = ACTIONS.index(last.recorded.action)
    return full_text(observe(replay.world.view(), action=action, result=last.result))

"""A session as rows: one Arrow table per table of the store.

Pure: the same session always gives the same rows. Columns are built whole, never row by row.
The id of a row is a number that follows from the session and the kind of row, plus its
position, so that ids grow within a session and no two sessions are likely to share any.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from math import fsum
from typing import Any

import pyarrow as pa

from assay._util.canonical import canonical_json

from .records import EndRecord, SessionRecord, StepRecord
from .schema import ASLEEP, ASSAY_SOURCE, EventType, arrow_schema
from .totals import imported_columns

__all__ = ["Kind", "SessionRows", "row_id", "session_rows", "to_table"]

Columns = Mapping[str, Sequence[Any]]


class Kind(StrEnum):
    """The kinds of rows below a session; ids of different kinds do not depend on each other."""

    STEP = "step"
    EVENT = "event"
    MESSAGE = "message"
    HOOK = "hook"


def row_id(session_id: str, kind: Kind, position: int = 0) -> int:
    """The id of a row, from its place among the rows of its kind in the session."""
    start = blake2b(f"{session_id}\0{kind}".encode(), digest_size=8).digest()
    # 62 bits leave room to count up without leaving the positive numbers.
    return (int.from_bytes(start, "big") >> 2) + position


@dataclass(frozen=True, slots=True)
class SessionRows:
    """All rows of one session."""

    session_id: str
    tables: Mapping[str, pa.Table]
    """By the name of the table: the session itself, what is below it, and its outcomes."""
    bodies: Mapping[str, str]
    """By hash: the bodies of its messages and of its tools."""


def session_rows(session: SessionRecord, *, source: str = ASSAY_SOURCE) -> SessionRows:
    """Make the rows of a session that has ended."""
    if session.end is None:
        raise ValueError(f"session {session.header.session_id} has not ended")
    builder = _Builder(session, session.end, source)
    tables = {
        "session_traces": to_table("session_traces", builder.session()),
        "session_timesteps": to_table("session_timesteps", builder.steps()),
        "events": pa.concat_tables(to_table("events", part) for part in builder.events()),
        "message_rows": to_table("message_rows", builder.messages()),
        "hook_results": to_table("hook_results", builder.hooks()),
        "outcomes": to_table("outcomes", builder.outcomes()),
    }
    bodies = {each.message.hash: each.message.encoded.decode() for each in session.messages}
    if (tools := session.header.tools) is not None:
        bodies[tools.hash] = tools.encoded.decode()
    return SessionRows(session.header.session_id, tables, bodies)


def to_table(name: str, columns: Columns) -> pa.Table:
    """Columns as an Arrow table in the order of the schema; those not given are NULL."""
    schema = arrow_schema(name)
    count = len(next(iter(columns.values())))
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _time(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _json(value: Mapping[str, Any]) -> str:
    return canonical_json(dict(value)).decode()


class _Builder:
    """The columns of one session's rows, table by table."""

    def __init__(self, session: SessionRecord, end: EndRecord, source: str) -> None:
        self.it = session
        self.id = session.header.session_id
        self.end = end
        self.source = source
        self.turned: list[tuple[int, float, StepRecord]] = [
            (played.turn, played.at, step) for played in session.played for step in played.steps
        ]
        """Every step, with its turn and the time of that."""
        self.first_step: dict[int, int] = {}
        """The id of the first step of each turn that made one."""
        start = row_id(self.id, Kind.STEP)
        for turn, _, step in self.turned:
            self.first_step.setdefault(turn, start + step.index)

    def session(self) -> Columns:
        header, end, error = self.it.header, self.end, self.end.error
        row = {
            "session_id": self.id,
            "created_at": _time(header.created_at),
            "num_timesteps": len(self.turned),
            "num_events": len(self.it.calls) + len(self.it.played) + len(self.turned),
            "num_messages": len(self.it.messages),
            "metadata": _json(header.metadata),
            "experiment_id": header.experiment_id,
            "run_id": header.run_id,
            "subject": header.subject,
            "task": header.task,
            "seed": header.seed,
            "difficulty": header.difficulty,
            "episode": header.episode,
            "replicate": header.replicate,
            "state": end.state.value,
            "stop_reason": end.stop_reason,
            "duration_s": end.duration_s,
            "ended_at": _time(end.at),
            "attempts": end.attempts,
            "error_type": error and error.type,
            "error_message": error and error.message,
            "error_traceback": error and error.traceback,
            "tools_hash": header.tools and header.tools.hash,
            "source": self.source,
            **self._played(),
            **self._spent(),
        }
        if self.source != ASSAY_SOURCE:
            row |= imported_columns(header.metadata)
        return {name: [value] for name, value in row.items()}

    def _played(self) -> dict[str, Any]:
        played, steps = self.it.played, [step for _, _, step in self.turned]
        no_effects = [step.no_effect for step in steps if step.no_effect is not None]
        asleep = no_effects.count(ASLEEP)
        return {
            "num_turns": len(self._records_of_turns),
            "total_reward": fsum(step.reward for step in steps),
            "num_achievements": len({name for step in steps for name in step.unlocked}),
            "actions_asked": sum(len(each.asked) for each in played),
            "unknown_actions": sum(len(each.unknown) for each in played),
            "no_effect_actions": len(no_effects) - asleep,
            "asleep_actions": asleep,
            "malformed_replies": sum(each.malformed is not None for each in played),
            "skipped_actions": sum(each.skipped for each in played),
            "verifiable": all(step.digest is not None for step in steps),
        }

    def _spent(self) -> dict[str, Any]:
        calls = self.it.calls
        costs = [call.cost_usd for call in calls if call.cost_usd is not None]
        return {
            "prompt_tokens": sum(call.usage.prompt for call in calls),
            "completion_tokens": sum(call.usage.completion for call in calls),
            "cached_tokens": sum(call.usage.cached for call in calls),
            "reasoning_tokens": sum(call.usage.reasoning for call in calls),
            "cost_usd": fsum(costs) if len(costs) == len(calls) else None,
        }

    def steps(self) -> Columns:
        ids = self._step_ids
        first = set(self.first_step.values())
        per_turn = self._records_of_turns
        heard = Counter(self._message_steps)
        return {
            "id": ids,
            "session_id": [self.id] * len(ids),
            "step_id": [f"step-{step.index}" for _, _, step in self.turned],
            "step_index": [step.index for _, _, step in self.turned],
            "timestamp": [_time(at) for _, at, _ in self.turned],
            "num_events": [
                1 + (per_turn[turn] if key in first else 0)
                for key, (turn, _, _) in zip(ids, self.turned, strict=True)
            ],
            "num_messages": [heard[key] for key in ids],
            "turn": [turn for turn, _, _ in self.turned],
            "action": [step.action for _, _, step in self.turned],
            "no_effect": [step.no_effect for _, _, step in self.turned],
            "unlocked": [step.unlocked for _, _, step in self.turned],
            "digest": [step.digest for _, _, step in self.turned],
        }

    @cached_property
    def _records_of_turns(self) -> Counter[int]:
        """For each turn how many calls and plays it has."""
        turns = Counter(call.turn for call in self.it.calls)
        turns.update(played.turn for played in self.it.played)
        return turns

    @cached_property
    def _step_ids(self) -> list[int]:
        start = row_id(self.id, Kind.STEP)
        return [start + step.index for _, _, step in self.turned]

    def events(self) -> Sequence[Columns]:
        """Calls, then turns, then steps; ids run on over the three."""
        start = row_id(self.id, Kind.EVENT)
        calls, played = len(self.it.calls), len(self.it.played)
        return (
            self._calls(start),
            self._turns(start + calls),
            self._step_events(start + calls + played),
        )

    def _event(self, start: int, kind: EventType, system: str, turns: list[int]) -> Columns:
        count = len(turns)
        return {
            "id": range(start, start + count),
            "session_id": [self.id] * count,
            "event_type": [kind.value] * count,
            "system_instance_id": [system] * count,
            "turn": turns,
            "message_time": turns,
        }

    def _calls(self, start: int) -> Columns:
        calls = self.it.calls
        turns = [call.turn for call in calls]
        return {
            **self._event(start, EventType.CALL, "", turns),
            "system_instance_id": [call.model for call in calls],
            "timestep_id": [self.first_step.get(turn) for turn in turns],
            "event_time": [_time(call.at) for call in calls],
            "model_name": [call.model for call in calls],
            "provider": [call.provider for call in calls],
            "prompt_tokens": [call.usage.prompt for call in calls],
            "completion_tokens": [call.usage.completion for call in calls],
            "total_tokens": [call.usage.total for call in calls],
            "cached_tokens": [call.usage.cached for call in calls],
            "reasoning_tokens": [call.usage.reasoning for call in calls],
            "cost": [call.cost_usd for call in calls],
            "latency_ms": [round(call.latency_s * 1000, 3) for call in calls],
            "waited_ms": [round(call.waited_s * 1000, 3) for call in calls],
            "metadata": [_json(call.parameters) for call in calls],
            "finish_reason": [call.finish_reason for call in calls],
            "retries": [call.retries for call in calls],
            "request": [call.request for call in calls],
            "reply": [call.reply for call in calls],
        }

    def _turns(self, start: int) -> Columns:
        played = self.it.played
        turns = [each.turn for each in played]
        return {
            **self._event(start, EventType.TURN, self.it.header.subject, turns),
            "timestep_id": [self.first_step.get(turn) for turn in turns],
            "event_time": [_time(each.at) for each in played],
            "asked": [each.asked for each in played],
            "unknown": [each.unknown for each in played],
            "malformed": [each.malformed for each in played],
            "skipped": [each.skipped for each in played],
        }

    def _step_events(self, start: int) -> Columns:
        turns = [turn for turn, _, _ in self.turned]
        return {
            **self._event(start, EventType.STEP, self.it.header.task, turns),
            "timestep_id": self._step_ids,
            "event_time": [_time(at) for _, at, _ in self.turned],
            "reward": [step.reward for _, _, step in self.turned],
            "terminated": [step.terminated for _, _, step in self.turned],
            "truncated": [step.truncated for _, _, step in self.turned],
        }

    def messages(self) -> Columns:
        messages = self.it.messages
        start = row_id(self.id, Kind.MESSAGE)
        times = [_time(each.at) for each in messages]
        turns = [each.turn for each in messages]
        return {
            "id": [start + each.position for each in messages],
            "session_id": [self.id] * len(messages),
            "timestep_id": self._message_steps,
            "position": [each.position for each in messages],
            "turn": turns,
            "role": [each.message.role for each in messages],
            "message_type": [each.message_type for each in messages],
            "hash": [each.message.hash for each in messages],
            "timestamp": times,
            "event_time": times,
            "message_time": turns,
        }

    @cached_property
    def _message_steps(self) -> list[int | None]:
        """For each message the step it belongs to."""
        replies = [call.reply for call in self.it.calls]
        answered = [call.turn for call in self.it.calls]
        step_turns = [turn for turn, _, _ in self.turned]
        found: list[int | None] = []
        for each in self.it.messages:
            if each.message.role == "assistant":
                found.append(self.first_step.get(each.turn))
                continue
            # What stands after an answer was written when that had been played.
            done = bisect_left(replies, each.position)
            turn = answered[done - 1] if done else 0 if replies else each.turn - 1
            made = bisect_left(step_turns, turn + 1)
            found.append(self._step_ids[made - 1] if made else None)
        return found

    def hooks(self) -> Columns:
        hooks = [(played.turn, hook) for played in self.it.played for hook in played.hooks]
        start, steps = row_id(self.id, Kind.HOOK), row_id(self.id, Kind.STEP)
        return {
            "id": range(start, start + len(hooks)),
            "session_id": [self.id] * len(hooks),
            "timestep_id": [
                self.first_step.get(turn) if hook.step is None else steps + hook.step
                for turn, hook in hooks
            ],
            "turn": [turn for turn, _ in hooks],
            "step": [hook.step for _, hook in hooks],
            "hook_name": [hook.name for _, hook in hooks],
            "code": [hook.code for _, hook in hooks],
            "priority": [hook.priority for _, hook in hooks],
            "description": [hook.description for _, hook in hooks],
            "data": [_json(hook.data) for _, hook in hooks],
        }

    def outcomes(self) -> Columns:
        header, outcomes = self.it.header, self.end.outcomes
        count = len(outcomes)
        return {
            "trial_id": [self.id] * count,
            "experiment_id": [header.experiment_id] * count,
            "subject": [header.subject] * count,
            "task": [header.task] * count,
            "seed": [header.seed] * count,
            "replicate": [header.replicate] * count,
            "metric": list(outcomes),
            "value": [float(value) for value in outcomes.values()],
        }

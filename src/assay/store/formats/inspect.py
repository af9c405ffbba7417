"""Import of Inspect logs: a header for the evaluation, and one sample per trial.

A sample becomes a session: every model call that solves it is a turn, and a tool call is an
action. Calls that only score it are ignored. Messages are converted to the chat protocol.

A sample stores long texts and repeated messages once, in `attachments` and `events_data`, and
refers to them. References are resolved, and the total size of the resolved text is limited.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from assay.core.canonical_json import canonical_json, content_hash, derive_id
from assay.errors import UsageError
from assay.store.formats.foreign import (
    Conversation,
    ForeignRun,
    as_cost,
    as_count,
    as_list,
    as_mapping,
    as_name,
    as_number,
    as_seconds,
    as_text,
    classify_error,
    join_text,
    tool_call,
)
from assay.store.records import (
    CallRecord,
    EndRecord,
    ErrorRecord,
    Imported,
    PlayedRecord,
    Trace,
)
from assay.types import StopReason, TrialState, Usage

_REFERENCE: Final = re.compile(r"attachment://([0-9a-f]{32})")
_MAX_EXPANDED: Final = 256 << 20
_ROLES: Final = ("system", "user", "assistant", "tool")


class _References:
    """Texts and messages that a sample stores once and refers to."""

    def __init__(self, sample: Mapping[str, Any]) -> None:
        self._attachments = as_mapping(sample.get("attachments"))
        self._messages = as_list(as_mapping(sample.get("events_data")).get("messages"))
        self._left = _MAX_EXPANDED

    def request(self, event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield the messages of a call's request."""
        if given := as_list(event.get("input")):
            yield from (as_mapping(message) for message in given)
            return
        for reference in as_list(event.get("input_refs")):
            match reference:
                case [int(start), int(end)]:
                    bounds = (max(start, 0), max(end, 0))
                    yield from map(as_mapping, self._messages[slice(*bounds)])

    def text(self, text: str) -> str:
        """Replace references to attachments in a text."""
        if "attachment://" not in text:
            return text
        found = _REFERENCE.sub(self._resolve, text)
        self._left -= len(found)
        return found

    def _resolve(self, match: re.Match[str]) -> str:
        attached = self._attachments.get(match[1])
        if not isinstance(attached, str):
            return match[0]
        if attached.startswith("data:"):
            return "[image]"
        self._left -= len(attached)
        if self._left < 0:
            raise UsageError(f"its attachments expand to more than {_MAX_EXPANDED >> 20} MB")
        return attached


def read_message(message: Mapping[str, Any], pool: _References) -> dict[str, Any]:
    """Convert a message to the chat protocol; raise UsageError for an unknown role."""
    role = message.get("role")
    if role not in _ROLES:
        raise UsageError(f"a message has an unknown role, {str(role)[:40]!r}")
    content = message.get("content")
    value: dict[str, Any] = {"role": role, "content": pool.text(join_text(content))}
    if calls := as_list(message.get("tool_calls")):
        value["tool_calls"] = [
            tool_call(call.get("id"), call.get("function"), call.get("arguments"), place)
            for place, call in enumerate(map(as_mapping, calls))
        ]
    if role == "tool":
        value["tool_call_id"] = as_text(message.get("tool_call_id"), 200)
        error = as_mapping(message.get("error"))
        if error:
            value["content"] = f"{as_text(error.get('message'))}\n{value['content']}".strip()
    parts = map(as_mapping, as_list(content))
    thoughts = [pool.text(as_text(part.get("reasoning"))) for part in parts]
    if any(thoughts):
        value["reasoning_content"] = "\n".join(thought for thought in thoughts if thought)
    return value


_LONGEST: Final = 1000
_LETTERS: Final = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def read_scores(scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the scores that are numbers, with the names that Inspect reports.

    Scores in a list are named by the scorer and their position, as in `many/1`.
    """
    taken: set[str] = set()
    for scorer, name, value in _list_values(scores):
        number = _parse_score(value)
        if number is not None:
            metric = as_name(name if name not in taken else f"{scorer}/{name}", scorer)
            taken.add(name)
            yield metric, number


def unread_scores(scores: Mapping[str, Any]) -> list[str]:
    """Return the names of the scores that are not numbers."""
    return [
        as_name(name, scorer)
        for scorer, name, value in _list_values(scores)
        if value is not None and _parse_score(value) is None
    ]


def _list_values(scores: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for scorer, score in scores.items():
        value = as_mapping(score).get("value")
        if isinstance(value, dict):
            yield from ((scorer, name, part) for name, part in value.items())
        elif isinstance(value, list):
            for place, part in enumerate(value[:_LONGEST], start=1):
                yield scorer, f"{scorer}/{place}", part
        else:
            yield scorer, scorer, value


def _parse_score(value: Any) -> float | None:
    if not isinstance(value, str):
        return as_number(value)
    if value in _LETTERS:
        return _LETTERS[value]
    try:
        return as_number(float(value[:40]))
    except ValueError:
        return None


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Convert the token counts of a call or of a sample."""
    cached = as_count(usage.get("input_tokens_cache_read"))
    written = as_count(usage.get("input_tokens_cache_write"))
    # Inspect's `input_tokens` excludes tokens read from or written to a cache.
    prompt = min(as_count(usage.get("input_tokens")) + cached + written, 2**31 - 1)
    return Usage(
        prompt=prompt,
        completion=as_count(usage.get("output_tokens")),
        cached=cached,
        reasoning=as_count(usage.get("reasoning_tokens")),
    )


_REASON: Final = (
    "Inspect records what was said and scored, not the state of a world that could be replayed"
)
_ERROR_TYPE: Final = re.compile(r"(\w{1,80})\(")
_MAX_POSITIONS: Final = 5_000_000


def is_inspect(value: Mapping[str, Any]) -> bool:
    """Return whether an object looks like a log or the header of one."""
    about = value.get("eval")
    return isinstance(about, dict) and "task" in about and "model" in about


class InspectLog:
    """Header of a log, which converts its samples to sessions."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        if not is_inspect(header):
            raise UsageError("is not an Inspect log: its header has no task and model")
        about = self._about = as_mapping(header["eval"])
        dataset = as_mapping(about.get("dataset"))
        ids = as_list(dataset.get("sample_ids"))
        self._order = {str(name): place for place, name in enumerate(ids)}
        self._epochs = max(as_count(as_mapping(about.get("config")).get("epochs")), 1)
        self._key = as_text(about.get("eval_id") or about.get("task_id"), 200)
        self.model = as_name(about.get("model"), "unknown")
        self.task = as_name(about.get("task"), "task")
        packages = as_mapping(about.get("packages"))
        self.run = ForeignRun(
            source="inspect",
            key=(as_text(about.get("run_id"), 200), self._key, self.task),
            series=f"inspect {self.task} {self.model}",
            model=self.model,
            created_at=as_seconds(about.get("created")) or 0.0,
            configuration={
                "task": self.task,
                "task_version": about.get("task_version"),
                "config": as_mapping(about.get("config")),
                "generate": as_mapping(about.get("model_generate_config")),
            },
            provenance={
                "program": "Inspect",
                "version": as_text(packages.get("inspect_ai"), 200),
                "run": as_text(about.get("run_id"), 200),
                "eval": self._key,
                # A retry has a different run and evaluation id, but the same task id.
                "task_id": as_text(about.get("task_id"), 200),
            },
            status="finished" if header.get("status") == "success" else "incomplete",
        )

    def session(self, sample: Mapping[str, Any]) -> Trace:
        """Convert a sample to a session.

        Raises:
            ValueError: It contains an invalid value.
        """
        if "id" not in sample or not isinstance(sample.get("messages"), list):
            raise UsageError("is not an Inspect sample: it needs 'id' and 'messages'")
        name, epoch = as_name(sample["id"], "sample"), max(as_count(sample.get("epoch")), 1)
        unique = as_text(sample.get("uuid"), 200)
        started = as_seconds(sample.get("started_at")) or self.run.created_at
        reading = _LogReading(sample, started, self.model)
        seed = as_mapping(sample.get("metadata")).get("seed")
        key = (unique,) if unique else (self._key, name, epoch)
        return self.run.trace(
            session_id=derive_id("inspect", *key),
            task=f"inspect/{self.task}/{name}",
            imported=Imported(_REASON, reading.totals()),
            conversation=reading.conversation,
            end=reading.end(),
            seed=seed if type(seed) is int else None,
            episode=(self._order.get(str(sample["id"]), 0) * self._epochs + epoch - 1) % 2**31,
            replicate=epoch - 1,
            tools=reading.tools,
            created_at=started,
            metadata={"sample": name, "epoch": epoch},
            calls=reading.calls,
            played=reading.played,
        )


class _LogReading:
    """Reader that collects the messages, calls and turns of one sample."""

    def __init__(self, sample: Mapping[str, Any], started: float, model: str) -> None:
        self.sample, self.model = sample, model
        self.conversation = Conversation(started)
        self.calls: list[CallRecord] = []
        self.played: list[PlayedRecord] = []
        self.tools: list[Any] = []
        self._pool = _References(sample)
        self._positions_by_id: dict[str, int] = {}
        self._positions = 0
        for event in _filter_calls(sample.get("events")):
            self._add_reply(event)
        self._add_remaining()

    def _add_reply(self, event: Mapping[str, Any]) -> None:
        output = as_mapping(event.get("output"))
        choice = as_mapping(next(iter(as_list(output.get("choices"))), None))
        reply = as_mapping(choice.get("message"))
        if not reply:
            return
        turn = len(self.calls) + 1
        started = as_seconds(event.get("timestamp"))
        request = [self._add_message(turn - 1, m, started) for m in self._read_request(event)]
        at = as_seconds(event.get("completed")) or started
        position = self._add_message(turn, reply, at)
        model = as_name(event.get("model"), self.model)
        self.calls.append(
            CallRecord(
                turn=turn,
                at=self.conversation.at,
                request=tuple(request),
                reply=position,
                model=model,
                provider=model.split("/")[0] if "/" in model else "unknown",
                finish_reason=as_text(choice.get("stop_reason"), 200),
                usage=read_usage(as_mapping(output.get("usage"))),
                cost_usd=as_cost(as_mapping(output.get("usage")).get("total_cost")),
                latency_s=_parse_duration(output.get("time")),
                retries=as_count(event.get("retries")),
                parameters=_parse_parameters(as_mapping(event.get("config"))),
            )
        )
        self._add_turn(turn, reply, event)

    def _read_request(self, event: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        found = list(islice(self._pool.request(event), _MAX_POSITIONS + 1))
        self._positions += len(found)
        # In a small file, a thousand calls may refer to a thousand messages each.
        if self._positions > _MAX_POSITIONS:
            raise UsageError(f"its calls refer to more than {_MAX_POSITIONS} messages")
        return found

    def _add_message(self, turn: int, message: Mapping[str, Any], at: float | None) -> int:
        name = message.get("id")
        value: dict[str, Any] | None = None
        if not isinstance(name, str) or not name:
            value = read_message(message, self._pool)
            name = content_hash(canonical_json(value))
        if name not in self._positions_by_id:
            value = read_message(message, self._pool) if value is None else value
            role = value["role"]
            kind = {"system": "system", "assistant": "reply"}.get(role, "observation")
            self._positions_by_id[name] = self.conversation.say(turn, value, kind, at)
        return self._positions_by_id[name]

    def _add_turn(self, turn: int, reply: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        tools = as_list(event.get("tools"))
        self.tools = self.tools or tools
        offered = {as_text(as_mapping(tool).get("name"), 200) for tool in tools}
        calls = [as_mapping(call) for call in as_list(reply.get("tool_calls"))]
        asked = [as_text(call.get("function"), 200) for call in calls]
        wrong = [as_text(call.get("parse_error")) for call in calls if call.get("parse_error")]
        self.played.append(
            PlayedRecord(
                turn=turn,
                at=self.conversation.at,
                asked=tuple(asked),
                unknown=tuple(name for name in asked if name not in offered),
                malformed=wrong[0] if wrong else None,
            )
        )

    def _add_remaining(self) -> None:
        """Add the messages that are in no request, such as the last tool result."""
        recorded = bool(self.calls)
        for message in self.sample["messages"]:
            found = as_mapping(message)
            turn = len(self.played)
            if not recorded and found.get("role") == "assistant":
                turn += 1
                self._add_message(turn, found, None)
                self._add_turn(turn, found, {})
            else:
                self._add_message(turn, found, None)

    def totals(self) -> dict[str, float | None]:
        """Return totals of the sample: scores, and tokens if no call is recorded."""
        scores = dict(read_scores(as_mapping(self.sample.get("scores"))))
        totals: dict[str, float | None] = {}
        if "reward" in scores:
            totals["total_reward"] = scores["reward"]
        if scores.get("achievements", -1.0) >= 0:
            totals["num_achievements"] = as_count(scores["achievements"])
        if self.calls:
            return totals
        totals |= {"unknown_actions": 0, "cost_usd": self._compute_cost()}
        usages = [read_usage(usage) for usage in self._list_usages()]
        for column in ("prompt", "completion", "cached", "reasoning"):
            totals[f"{column}_tokens"] = sum(getattr(usage, column) for usage in usages)
        return totals

    def _list_usages(self) -> list[Mapping[str, Any]]:
        return [*map(as_mapping, as_mapping(self.sample.get("model_usage")).values())]

    def _compute_cost(self) -> float | None:
        if self.calls:
            costs = [call.cost_usd for call in self.calls]
        else:
            costs = [as_cost(usage.get("total_cost")) for usage in self._list_usages()]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known and len(known) == len(costs) else None

    def end(self) -> EndRecord:
        """Return the end of the session."""
        error, state = self._parse_error(), TrialState.RESULT
        limit = as_text(as_mapping(self.sample.get("limit")).get("type"), 200)
        if error is not None:
            state = classify_error(error.type, error.message)
        reason = (error.type if error else limit) or StopReason.FINISHED
        worked = self.sample.get("working_time")
        return EndRecord(
            at=as_seconds(self.sample.get("completed_at")) or self.conversation.at,
            state=state,
            stop_reason=reason,
            duration_s=_parse_duration(
                self.sample.get("total_time") if worked is None else worked
            ),
            outcomes=self._make_outcomes() if state is TrialState.RESULT else {},
            error=error,
        )

    def _parse_error(self) -> ErrorRecord | None:
        error = as_mapping(self.sample.get("error"))
        if not error:
            return None
        message = as_text(error.get("message"))
        match = _ERROR_TYPE.match(message)
        return ErrorRecord(
            type=match[1] if match else "Error",
            message=message,
            traceback=as_text(error.get("traceback")),
        )

    def _make_outcomes(self) -> dict[str, float]:
        usages = [call.usage for call in self.calls] or [
            read_usage(u) for u in self._list_usages()
        ]
        asked = sum(len(turn.asked) for turn in self.played)
        outcomes = {
            "turns": float(len(self.played)),
            "tokens": float(sum(usage.total for usage in usages)),
            "duration_s": _parse_duration(self.sample.get("working_time")),
        }
        if asked and self.calls:
            unknown = sum(len(turn.unknown) for turn in self.played)
            outcomes["invalid_rate"] = unknown / asked
        if (cost := self._compute_cost()) is not None:
            outcomes["cost_usd"] = cost
        for name, value in read_scores(as_mapping(self.sample.get("scores"))):
            outcomes[name] = value
        return outcomes


def _filter_calls(events: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the events of model calls that solve a sample, not those that score it."""
    scoring: Any = None
    steps = 0
    for found in map(as_mapping, as_list(events)):
        kind = found.get("event")
        if kind == "span_begin" and found.get("type") == "scorers" and scoring is None:
            scoring = found.get("id")
        elif kind == "span_end" and scoring is not None and found.get("id") == scoring:
            scoring = None
        elif kind == "step" and found.get("type") == "scorer":
            # Logs before version 0.3.91 have no spans.
            steps = max(0, steps + (1 if found.get("action") == "begin" else -1))
        elif kind == "model" and scoring is None and not steps and not found.get("error"):
            yield found


def _parse_duration(value: Any) -> float:
    return min(max(as_number(value) or 0.0, 0.0), 1e9)


def _parse_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        name: as_number(config.get(name)) for name in ("temperature", "max_tokens", "seed")
    }
    return {name: value for name, value in found.items() if value is not None}

"""Import of ATIF trajectories, from other programs and from assay.

Every agent step is a turn, and a tool call is an action. A trajectory does not contain the
result of the task: `harbor.py` reads whole trials. A trajectory written by assay has the
actions played in `extra` of the last reply of the turn, and can be replayed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
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
    StepRecord,
    Trace,
)
from assay.types import StopReason, TrialState, Usage

_REASON: Final = "ATIF records what was said, not the state of a world that could be replayed"
_TOTALS: Final = {
    "total_prompt_tokens": "prompt_tokens",
    "total_completion_tokens": "completion_tokens",
    "total_cached_tokens": "cached_tokens",
}
_ENDS: Final[Mapping[str, str]] = {
    StopReason.DIED: "terminated",
    StopReason.LENGTH: "truncated",
}


def is_atif(value: Mapping[str, Any]) -> bool:
    """Return whether an object is an ATIF trajectory, by its schema version."""
    return as_text(value.get("schema_version")).startswith("ATIF")


def trajectory_id(value: Mapping[str, Any]) -> str:
    """Return the session id of a trajectory from another program."""
    return derive_id("atif", content_hash(canonical_json(value)))


def read_atif(value: Mapping[str, Any]) -> Trace:
    """Convert a trajectory to a session.

    Raises:
        ValueError: It has another format, or contains an invalid value.
    """
    return _Trajectory(value).trace()


class AtifReading:
    """Reader that collects the messages, calls and turns of a trajectory."""

    def __init__(self, value: Mapping[str, Any], model: str) -> None:
        self.value, self.model = value, model
        self.agent = as_mapping(value.get("agent"))
        self.extra = as_mapping(value.get("extra"))
        self.ours = self.agent.get("name") == "assay" and "world" in self.extra
        self.steps = self._check_steps()
        times = [as_seconds(step.get("timestamp")) for step in self.steps]
        self.times = [at for at in times if at is not None]
        self.conversation = Conversation(self.started)
        self.calls: list[CallRecord] = []
        self.played: list[PlayedRecord] = []
        self.made = 0

    @property
    def started(self) -> float:
        """Time of the first step; 0 if unknown."""
        return min(self.times, default=0.0)

    @property
    def ended(self) -> float:
        """Time of the last step; 0 if unknown."""
        return max(self.times, default=0.0)

    @property
    def tools(self) -> list[Any]:
        """Tools offered to the model."""
        return as_list(self.agent.get("tool_definitions"))

    def read(self) -> None:
        """Read all steps."""
        for step in self.steps:
            self._read_step(step)
        self._mark_last_step()

    def totals(self) -> dict[str, int]:
        """Return the total token counts of the trajectory, by column."""
        final = as_mapping(self.value.get("final_metrics"))
        return {
            column: as_count(final.get(name))
            for name, column in _TOTALS.items()
            if final.get(name) is not None
        }

    def tokens(self) -> int:
        """Return the total tokens of the trajectory, or the sum over its calls."""
        totals = self.totals()
        if "prompt_tokens" not in totals:
            return sum(call.usage.total for call in self.calls)
        return totals["prompt_tokens"] + totals.get("completion_tokens", 0)

    def cost(self) -> float | None:
        """Return the total cost in dollars, or the sum over its calls; None if unknown."""
        cost = as_cost(as_mapping(self.value.get("final_metrics")).get("total_cost_usd"))
        costs = [call.cost_usd for call in self.calls if call.cost_usd is not None]
        if cost is None and costs and len(costs) == len(self.calls):
            return sum(costs)
        return cost

    def _check_steps(self) -> list[Mapping[str, Any]]:
        steps = self.value.get("steps")
        for number, step in enumerate(steps if isinstance(steps, list) else ()):
            if not isinstance(step, dict):
                raise UsageError(f"steps.{number}: must be an object")
            if step.get("source") not in ("system", "user", "agent"):
                raise UsageError(f"steps.{number}.source: must be system, user or agent")
        return steps if isinstance(steps, list) else []

    def _read_step(self, step: Mapping[str, Any]) -> None:
        at = as_seconds(step.get("timestamp"))
        turn = self.played[-1].turn if self.played else 0
        source, text = step["source"], join_text(step.get("message"))
        if source != "agent":
            kind = "system" if source == "system" else "observation"
            self.conversation.say(turn, {"role": source, "content": text}, kind, at)
            self._add_observations(step, turn)
            return
        # A step copied from an earlier trajectory is not a turn here.
        copied = step.get("is_copied_context") is True
        if not copied:
            extra = as_mapping(step.get("extra")) if self.ours else {}
            turn = max(turn + 1, as_count(extra.get("turn")))
        if self.ours and step.get("llm_call_count") == 0:
            self.conversation.at = at or self.conversation.at
        else:
            position = self._add_reply(step, turn, text, at)
            if not copied and step.get("metrics") is not None:
                self._add_call(step, turn, position)
        if not copied and (not self.ours or "asked" in extra):
            self.played.append(self._make_played(step, turn))
        self._add_observations(step, turn)

    def _add_reply(
        self, step: Mapping[str, Any], turn: int, text: str, at: float | None
    ) -> int:
        calls = list(_get_tool_calls(step))
        content = None if calls and not text else text
        message: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = [
                tool_call(
                    call.get("tool_call_id"),
                    call.get("function_name"),
                    call.get("arguments"),
                    place,
                )
                for place, call in enumerate(calls)
            ]
        if isinstance(step.get("reasoning_content"), str):
            message["reasoning_content"] = step["reasoning_content"]
        return self.conversation.say(turn, message, "reply", at)

    def _add_observations(self, step: Mapping[str, Any], turn: int) -> None:
        results = as_mapping(step.get("observation")).get("results")
        for found in map(as_mapping, as_list(results)):
            text = join_text(found.get("content"))
            call = found.get("source_call_id")
            if isinstance(call, str) and step["source"] == "agent":
                message = {"role": "tool", "tool_call_id": call, "content": text}
            else:
                message = {"role": "user", "content": text}
            self.conversation.say(turn, message, "observation")

    def _add_call(self, step: Mapping[str, Any], turn: int, position: int) -> None:
        metrics = as_mapping(step.get("metrics"))
        extra = as_mapping(metrics.get("extra"))
        model = as_name(step.get("model_name"), self.model)
        usage = Usage(
            prompt=as_count(metrics.get("prompt_tokens")),
            completion=as_count(metrics.get("completion_tokens")),
            cached=as_count(metrics.get("cached_tokens")),
            reasoning=as_count(extra.get("reasoning_tokens")),
        )
        self.calls.append(
            CallRecord(
                turn=turn,
                at=self.conversation.at,
                # ATIF does not record which messages were sent.
                request=(),
                reply=position,
                model=model,
                provider=model.split("/")[0] if "/" in model else "unknown",
                finish_reason=as_text(extra.get("finish_reason"), 200),
                usage=usage,
                cost_usd=as_cost(metrics.get("cost_usd")),
                latency_s=max(as_number(extra.get("latency_s")) or 0.0, 0.0) % 1e12,
                retries=as_count(extra.get("retries")),
            )
        )

    def _make_played(self, step: Mapping[str, Any], turn: int) -> PlayedRecord:
        at = self.conversation.at
        if not self.ours:
            names = [as_text(call.get("function_name"), 200) for call in _get_tool_calls(step)]
            return PlayedRecord(turn=turn, at=at, asked=tuple(names))
        extra = as_mapping(step.get("extra"))
        asked, unknown = _get_texts(extra.get("asked")), _get_texts(extra.get("unknown"))
        steps = tuple(self._make_step(part) for part in _get_objects(extra.get("steps")))
        malformed = extra.get("malformed")
        return PlayedRecord(
            turn=turn,
            at=at,
            asked=asked,
            unknown=unknown,
            malformed=malformed if isinstance(malformed, str) else None,
            skipped=max(len(asked) - len(unknown) - len(steps), 0),
            steps=steps,
        )

    def _make_step(self, value: Mapping[str, Any]) -> StepRecord:
        self.made += 1
        digest, no_effect = value.get("digest"), value.get("no_effect")
        return StepRecord(
            index=self.made,
            action=as_text(value.get("action"), 200),
            reward=as_number(value.get("reward")) or 0.0,
            digest=digest if isinstance(digest, str) else None,
            unlocked=_get_texts(value.get("unlocked")),
            no_effect=no_effect if isinstance(no_effect, str) else None,
        )

    def _mark_last_step(self) -> None:
        """Set `terminated` or `truncated` of the last step, from the stop reason."""
        # The cause of death follows after a colon.
        reason = as_text(self.extra.get("stop_reason")).partition(":")[0]
        field = _ENDS.get(reason) if self.ours else None
        for index in reversed(range(len(self.played)) if field else ()):
            played = self.played[index]
            if played.steps:
                last = replace(
                    played.steps[-1],
                    terminated=field == "terminated",
                    truncated=field == "truncated",
                )
                self.played[index] = replace(played, steps=(*played.steps[:-1], last))
                return


class _Trajectory(AtifReading):
    """Reader of a trajectory that is a whole session."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        agent = as_mapping(value.get("agent"))
        super().__init__(
            value, as_name(agent.get("model_name"), as_name(agent.get("name"), "unknown"))
        )
        if not self.steps:
            raise UsageError("steps: a trajectory must have at least one step")

    def trace(self) -> Trace:
        self.read()
        session = self.value.get("session_id")
        named = self.ours and isinstance(session, str) and session
        seed = self.extra.get("seed")
        return self._make_run().trace(
            # A session of assay keeps its id, so that importing it again adds nothing.
            session_id=str(session) if named else trajectory_id(self.value),
            task=self._get_task(),
            imported=self._make_imported(),
            conversation=self.conversation,
            end=self._make_end(),
            seed=seed if type(seed) is int else None,
            episode=as_count(self.extra.get("episode")),
            replicate=as_count(self.extra.get("replicate")) if self.ours else 0,
            difficulty=as_text(self.extra.get("difficulty"), 200) or None,
            tools=self.tools,
            metadata=as_mapping(self.extra.get("world")) if self.ours else {},
            calls=self.calls,
            played=self.played,
        )

    def _make_run(self) -> ForeignRun:
        agent = {name: self.agent.get(name) for name in ("name", "version", "model_name")}
        run = as_name(self.extra.get("run"), "") if self.ours else ""
        return ForeignRun(
            source="atif",
            key=(run, canonical_json(agent).decode()),
            model=self.model,
            created_at=self.started,
            configuration={"agent": agent},
            provenance={
                "program": as_name(self.agent.get("name"), "unknown"),
                "version": as_text(self.agent.get("version"), 200),
                "format": as_text(self.value.get("schema_version"), 200),
                "run": run,
            },
        )

    def _get_task(self) -> str:
        if self.ours:
            return as_name(self.extra.get("task"), "atif")
        return f"atif/{as_name(self.agent.get('name'), 'unknown')}"

    def _make_imported(self) -> Imported:
        if self.ours:
            return Imported(None)
        totals: dict[str, float | None] = dict(self.totals())
        final = as_mapping(self.value.get("final_metrics"))
        cost = as_cost(final.get("total_cost_usd"))
        if cost is not None or not self.calls:
            totals["cost_usd"] = cost
        return Imported(_REASON, totals)

    def _make_end(self) -> EndRecord:
        state, reason, error = self._get_state()
        return EndRecord(
            at=self.ended,
            state=state,
            stop_reason=reason,
            duration_s=self.ended - self.started,
            outcomes=self._make_outcomes() if state is TrialState.RESULT else {},
            error=error,
        )

    def _get_state(self) -> tuple[TrialState, str, ErrorRecord | None]:
        if not self.ours:
            return TrialState.RESULT, StopReason.FINISHED, None
        error, fields = None, as_mapping(self.extra.get("error"))
        if fields:
            error = ErrorRecord(
                type=as_name(fields.get("type"), "Error"),
                message=as_text(fields.get("message")),
            )
        reason = as_text(self.extra.get("stop_reason"), 200)
        reason = reason or (error.type if error else StopReason.FINISHED)
        stated = self.extra.get("state")
        if stated in list(TrialState):
            return TrialState(stated), reason, error
        if error is None:
            return TrialState.RESULT, reason, error
        return classify_error(error.type, error.message), reason, error

    def _make_outcomes(self) -> dict[str, float]:
        final = as_mapping(self.value.get("final_metrics"))
        recorded = as_mapping(as_mapping(final.get("extra")).get("outcomes"))
        found = {as_name(name, "outcome"): as_number(value) for name, value in recorded.items()}
        outcomes = {name: value for name, value in found.items() if value is not None}
        if outcomes and self.ours:
            return outcomes
        outcomes |= {"turns": float(len(self.played)), "tokens": float(self.tokens())}
        if (cost := self.cost()) is not None:
            outcomes["cost_usd"] = cost
        return outcomes


def _get_tool_calls(step: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from _get_objects(step.get("tool_calls"))


def _get_objects(value: Any) -> Iterator[Mapping[str, Any]]:
    yield from (item for item in as_list(value) if isinstance(item, dict))


def _get_texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in as_list(value) if isinstance(item, str))

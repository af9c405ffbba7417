"""ATIF, read: the trajectories of other agents, and those that assay wrote.

Every step of the agent is a turn, and a tool it calls is an action it asks for. Whether the
task was solved stands outside of a trajectory: `harbor.py` reads whole trials. A trajectory of
our own has in `extra` what was played, with the last answer of the turn, and can be replayed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from assay.core.canonical_json import canonical_json, content_hash, derived_id
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
    blame,
    flat_text,
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
    """Whether an object says that it is a trajectory."""
    return as_text(value.get("schema_version")).startswith("ATIF")


def trajectory_id(value: Mapping[str, Any]) -> str:
    """The id of a session that is this trajectory of another program."""
    return derived_id("atif", content_hash(canonical_json(value)))


def read_atif(value: Mapping[str, Any]) -> Trace:
    """A trajectory as a session.

    Raises:
        ValueError: It is not of this format, or holds what no session may hold.
    """
    return _Trajectory(value).trace()


class AtifReading:
    """The steps of a trajectory on their way to a session: what was said, called and played."""

    def __init__(self, value: Mapping[str, Any], model: str) -> None:
        self.value, self.model = value, model
        self.agent = as_mapping(value.get("agent"))
        self.extra = as_mapping(value.get("extra"))
        self.ours = self.agent.get("name") == "assay" and "world" in self.extra
        self.steps = self._checked_steps()
        times = [as_seconds(step.get("timestamp")) for step in self.steps]
        self.times = [at for at in times if at is not None]
        self.conversation = Conversation(self.started)
        self.calls: list[CallRecord] = []
        self.played: list[PlayedRecord] = []
        self.made = 0

    @property
    def started(self) -> float:
        """When the first step was made; 0 if none says so."""
        return min(self.times, default=0.0)

    @property
    def ended(self) -> float:
        """When the last step was made; 0 if none says so."""
        return max(self.times, default=0.0)

    @property
    def tools(self) -> list[Any]:
        """What the model was offered."""
        return as_list(self.agent.get("tool_definitions"))

    def read(self) -> None:
        """Read all steps."""
        for step in self.steps:
            self._read(step)
        self._finish_world()

    def totals(self) -> dict[str, int]:
        """The tokens that the trajectory counts as a whole, by column."""
        final = as_mapping(self.value.get("final_metrics"))
        return {
            column: as_count(final.get(name))
            for name, column in _TOTALS.items()
            if final.get(name) is not None
        }

    def tokens(self) -> int:
        """Sent and received, of the whole or else over its calls."""
        totals = self.totals()
        if "prompt_tokens" not in totals:
            return sum(call.usage.total for call in self.calls)
        return totals["prompt_tokens"] + totals.get("completion_tokens", 0)

    def cost(self) -> float | None:
        """Dollars, of the whole or else over its calls; None if a price is not known."""
        cost = as_cost(as_mapping(self.value.get("final_metrics")).get("total_cost_usd"))
        costs = [call.cost_usd for call in self.calls if call.cost_usd is not None]
        if cost is None and costs and len(costs) == len(self.calls):
            return sum(costs)
        return cost

    def _checked_steps(self) -> list[Mapping[str, Any]]:
        steps = self.value.get("steps")
        for number, step in enumerate(steps if isinstance(steps, list) else ()):
            if not isinstance(step, dict):
                raise UsageError(f"steps.{number}: must be an object")
            if step.get("source") not in ("system", "user", "agent"):
                raise UsageError(f"steps.{number}.source: must be system, user or agent")
        return steps if isinstance(steps, list) else []

    def _read(self, step: Mapping[str, Any]) -> None:
        at = as_seconds(step.get("timestamp"))
        turn = self.played[-1].turn if self.played else 0
        source, text = step["source"], flat_text(step.get("message"))
        if source != "agent":
            kind = "system" if source == "system" else "observation"
            self.conversation.say(turn, {"role": source, "content": text}, kind, at)
            self._observe(step, turn)
            return
        # What was copied from an earlier trajectory was not asked for here.
        copied = step.get("is_copied_context") is True
        if not copied:
            extra = as_mapping(step.get("extra")) if self.ours else {}
            turn = max(turn + 1, as_count(extra.get("turn")))
        if self.ours and step.get("llm_call_count") == 0:
            self.conversation.at = at or self.conversation.at
        else:
            position = self._answer(step, turn, text, at)
            if not copied and step.get("metrics") is not None:
                self._call(step, turn, position)
        if not copied and (not self.ours or "asked" in extra):
            self.played.append(self._played(step, turn))
        self._observe(step, turn)

    def _answer(self, step: Mapping[str, Any], turn: int, text: str, at: float | None) -> int:
        calls = list(_tool_calls(step))
        said = None if calls and not text else text
        message: dict[str, Any] = {"role": "assistant", "content": said}
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

    def _observe(self, step: Mapping[str, Any], turn: int) -> None:
        results = as_mapping(step.get("observation")).get("results")
        for found in map(as_mapping, as_list(results)):
            text = flat_text(found.get("content"))
            call = found.get("source_call_id")
            if isinstance(call, str) and step["source"] == "agent":
                message = {"role": "tool", "tool_call_id": call, "content": text}
            else:
                message = {"role": "user", "content": text}
            self.conversation.say(turn, message, "observation")

    def _call(self, step: Mapping[str, Any], turn: int, position: int) -> None:
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
                # Which of the messages were sent is not recorded.
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

    def _played(self, step: Mapping[str, Any], turn: int) -> PlayedRecord:
        at = self.conversation.at
        if not self.ours:
            names = [as_text(call.get("function_name"), 200) for call in _tool_calls(step)]
            return PlayedRecord(turn=turn, at=at, asked=tuple(names))
        extra = as_mapping(step.get("extra"))
        asked, unknown = _texts(extra.get("asked")), _texts(extra.get("unknown"))
        steps = tuple(self._step(each) for each in _objects(extra.get("steps")))
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

    def _step(self, value: Mapping[str, Any]) -> StepRecord:
        self.made += 1
        digest, no_effect = value.get("digest"), value.get("no_effect")
        return StepRecord(
            index=self.made,
            action=as_text(value.get("action"), 200),
            reward=as_number(value.get("reward")) or 0.0,
            digest=digest if isinstance(digest, str) else None,
            unlocked=_texts(value.get("unlocked")),
            no_effect=no_effect if isinstance(no_effect, str) else None,
        )

    def _finish_world(self) -> None:
        """Say of the last step how the world came to its end, if it did."""
        # What a player died of stands after a colon.
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
    """A trajectory that is a session of its own."""

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
        return self._run().trace(
            # The same session in a store of its own must be known again.
            session_id=str(session) if named else trajectory_id(self.value),
            task=self._task(),
            imported=self._imported(),
            conversation=self.conversation,
            end=self._end(),
            seed=seed if type(seed) is int else None,
            episode=as_count(self.extra.get("episode")),
            replicate=as_count(self.extra.get("replicate")) if self.ours else 0,
            difficulty=as_text(self.extra.get("difficulty"), 200) or None,
            tools=self.tools,
            metadata=as_mapping(self.extra.get("world")) if self.ours else {},
            calls=self.calls,
            played=self.played,
        )

    def _run(self) -> ForeignRun:
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

    def _task(self) -> str:
        if self.ours:
            return as_name(self.extra.get("task"), "atif")
        return f"atif/{as_name(self.agent.get('name'), 'unknown')}"

    def _imported(self) -> Imported:
        if self.ours:
            return Imported(None)
        totals: dict[str, float | None] = dict(self.totals())
        final = as_mapping(self.value.get("final_metrics"))
        cost = as_cost(final.get("total_cost_usd"))
        if cost is not None or not self.calls:
            totals["cost_usd"] = cost
        return Imported(_REASON, totals)

    def _end(self) -> EndRecord:
        state, reason, error = self._state()
        return EndRecord(
            at=self.ended,
            state=state,
            stop_reason=reason,
            duration_s=self.ended - self.started,
            outcomes=self._outcomes() if state is TrialState.RESULT else {},
            error=error,
        )

    def _state(self) -> tuple[TrialState, str, ErrorRecord | None]:
        if not self.ours:
            return TrialState.RESULT, StopReason.FINISHED, None
        error, said = None, as_mapping(self.extra.get("error"))
        if said:
            error = ErrorRecord(
                type=as_name(said.get("type"), "Error"), message=as_text(said.get("message"))
            )
        reason = as_text(self.extra.get("stop_reason"), 200)
        reason = reason or (error.type if error else StopReason.FINISHED)
        stated = self.extra.get("state")
        if stated in list(TrialState):
            return TrialState(stated), reason, error
        if error is None:
            return TrialState.RESULT, reason, error
        return blame(error.type, error.message), reason, error

    def _outcomes(self) -> dict[str, float]:
        final = as_mapping(self.value.get("final_metrics"))
        recorded = as_mapping(as_mapping(final.get("extra")).get("outcomes"))
        found = {as_name(name, "outcome"): as_number(each) for name, each in recorded.items()}
        outcomes = {name: each for name, each in found.items() if each is not None}
        if outcomes and self.ours:
            return outcomes
        outcomes |= {"turns": float(len(self.played)), "tokens": float(self.tokens())}
        if (cost := self.cost()) is not None:
            outcomes["cost_usd"] = cost
        return outcomes


def _tool_calls(step: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from _objects(step.get("tool_calls"))


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    yield from (each for each in as_list(value) if isinstance(each, dict))


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(each for each in as_list(value) if isinstance(each, str))

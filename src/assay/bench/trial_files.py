"""Files and journal records of one coding trial.

`agent.json` is written last, after everything else the agent left, and marks the agent as
ended. Every model call is in the journal before its reply is used. The actions since the last
call form one turn, with a step for each action.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from assay.bench.base import AgentStop, CodingOutcome, Grade, GradingMode
from assay.bench.manifest import LAUNCHED, TrialResult
from assay.runs.engine import Context
from assay.runs.kind import TrialEnd
from assay.runs.model_calls import CallTotals, ModelCalls
from assay.store.recorder import Recorder
from assay.store.records import MessageRecord, PlayedRecord, StepRecord
from assay.types import (
    ChatModel,
    ChatReply,
    ChatRequest,
    Encoded,
    Message,
    MessageType,
    NewMessage,
    PreparedRequest,
    TrialState,
    Usage,
)

AGENT_FILE = "agent.json"
"""File that marks the agent as ended: it is written last, after everything the agent left."""
_DECISIVE_OUTCOMES = (CodingOutcome.SOLVED, CodingOutcome.TAMPERED)
"""Outcomes of grading that matter more than why the agent stopped."""


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """Result of an agent, as stored in its trial folder."""

    session_id: str
    stop: str
    notes: str
    seconds: float
    setup_s: float
    cpu_s: float
    peak_memory_mb: float
    disk_mb: float
    findings: tuple[tuple[str, str], ...]
    files: tuple[str, ...]
    enforcement: Mapping[str, str]
    tokens: Mapping[str, int]
    cost_usd: float | None
    calls: int
    answered_as: str | None
    turn: int
    position: int
    steps: int

    def collect_metrics(self) -> dict[str, Any]:
        """Return tokens, calls, time and cost, for the grade file."""
        return {
            "tokens_total": self.tokens["prompt"] + self.tokens["completion"],
            "model_calls": self.calls,
            "time_taken_seconds": round(self.seconds, 3),
            "money_spent_usd": self.cost_usd,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingResult(TrialEnd):
    """Result of a coding trial."""

    result: TrialResult


class JudgeUsage(NamedTuple):
    """Usage of the judge in one trial."""

    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    calls: int = 0


def read_agent_record(run_dir: Path, session_id: str) -> AgentRecord | None:
    """Read the result of a trial's agent; return None if the agent has not ended."""
    try:
        record = json.loads((run_dir / AGENT_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if record.get("session_id") != session_id or record.keys() != {
        field.name for field in fields(AgentRecord)
    }:
        return None
    findings = tuple((name, detail) for name, detail in record["findings"])
    return AgentRecord(**{**record, "findings": findings, "files": tuple(record["files"])})


def read_patch(run_dir: Path) -> bytes:
    """Read the patch that an agent left; empty if its work is not a patch."""
    path = run_dir / "artifacts" / "diff.patch"
    return path.read_bytes() if path.is_file() else b""


def make_graded_result(
    planned: TrialResult,
    agent: AgentRecord,
    grade: Grade,
    *,
    grading_s: float,
    judge: JudgeUsage,
) -> TrialResult:
    """Return the manifest entry of a graded trial."""
    outcome = grade.outcome.value
    if agent.stop != AgentStop.COMPLETED and grade.outcome not in _DECISIVE_OUTCOMES:
        outcome = agent.stop  # a limit explains more than an incomplete solution
    costs = (agent.cost_usd, judge.cost_usd)
    seconds = {"setup": agent.setup_s, "agent": agent.seconds, "grading": grading_s}
    return replace(
        planned,
        status=LAUNCHED,
        launch_rc=0,
        state=TrialState.RESULT,
        outcome=outcome,
        agent_stop=agent.stop,
        score=grade.total_score,
        tests_passed=sum(report.status == "passed" for report in grade.tests),
        tests_total=len(grade.tests),
        rubrics={scored.rubric.id: scored.score for scored in grade.rubrics},
        standard_metrics=grade.standard_metrics,
        custom_metrics=grade.custom_metrics,
        findings=(
            *agent.findings,
            *((finding.name, finding.detail) for finding in grade.findings),
        ),
        error=None,
        seconds={name: round(value, 3) for name, value in seconds.items()},
        tokens=asdict(Usage(**agent.tokens) + judge.usage),
        cost_usd=None if None in costs else sum(filter(None, costs)),
        model_calls=agent.calls + judge.calls,
        answered_as=agent.answered_as,
        cpu_s=round(agent.cpu_s, 3),
        peak_memory_mb=round(agent.peak_memory_mb, 1),
        disk_mb=round(agent.disk_mb, 3),
        enforcement=agent.enforcement,
        grading=None if grade.mode is None else grade.mode.value,
        ended_at=time.time(),
    )


def make_outcomes(result: TrialResult, diff: bytes) -> dict[str, float]:
    """Return the outcome values of a trial for the database."""
    scored = {name: value for name, value in result.rubrics.items() if value is not None}
    return {
        "score": result.score or 0.0,
        "solved": float(result.passed),
        "duration_s": result.seconds.get("agent", 0.0),
        "tokens": float(sum(result.tokens.get(kind, 0) for kind in ("prompt", "completion"))),
        **({} if result.cost_usd is None else {"cost_usd": result.cost_usd}),
        "patch_bytes": float(len(diff)),
        **(
            {}
            if result.grading is None
            else {"separate_grading": float(result.grading == GradingMode.SEPARATE)}
        ),
        **{f"rubric/{name}": value for name, value in scored.items()},
        **{f"metric/{name}": value for name, value in result.custom_metrics.items()},
    }


_MESSAGE_TYPES = {"system": MessageType.SYSTEM, "tool": MessageType.FEEDBACK}


class CodingTranscript:
    """Records the messages and actions of one trial; the numbers say where it continues."""

    def __init__(
        self,
        recorder: Recorder,
        context: Context,
        *,
        turn: int = 0,
        position: int = 0,
        steps: int = 0,
    ) -> None:
        self.totals = CallTotals()
        """Tokens and cost so far."""
        self.usage, self.calls = Usage(), 0
        self.answered_as: str | None = None
        """Model name that the provider reported in its last response."""
        self.turn, self.position, self.steps = turn, position, steps
        self._recorder, self._context = recorder, context
        self._model_calls = ModelCalls(recorder, self.totals, context)
        self._positions: dict[int, tuple[int, Message]] = {}
        self._pending_steps: list[StepRecord] = []

    async def call_model(
        self,
        model: ChatModel,
        messages: Sequence[Message],
        tools: Encoded,
        *,
        temperature: float | None = None,
        max_tokens: int = 4096,
    ) -> ChatReply:
        """Call a model, as the next turn."""
        await self.flush()
        self.turn += 1
        self._model_calls.turn = self.turn
        new = [self._add(message) for message in messages if id(message) not in self._positions]
        request = ChatRequest(
            model=model.name,
            messages=messages,
            tools=tools,
            temperature=temperature,
            max_tokens=max_tokens,
        )
        positions = tuple(self._positions[id(message)][0] for message in messages)
        prepared = PreparedRequest(request, positions, self.position)
        reply = await self._model_calls.call(model, prepared, new, self._add)
        self.usage += reply.usage
        self.calls += 1
        self.answered_as = reply.answered_as or self.answered_as
        return reply

    async def record_action(self, action: str, reward: float = 0.0) -> None:
        """Record an action; its result reaches the model in a later message."""
        self.steps += 1
        self._pending_steps.append(
            StepRecord(index=self.steps, action=action, reward=reward, digest=None)
        )

    async def record_grade(self, outcome: str, score: float) -> None:
        """Record the grade as a separate turn, with the score as its reward."""
        await self.flush()
        self.turn += 1
        await self.record_action(f"graded: {outcome}", score)
        await self.flush()

    async def record_exchange(self, action: str, output: str) -> None:
        """Record an action without a model, with its result."""
        if not self._pending_steps:
            self.turn += 1
        await self.record_action(action)
        messages = [
            self._add(Message({"role": "assistant", "content": action})),
            self._add(Message({"role": "user", "content": output})),
        ]
        now = time.time()
        self._recorder.add_messages(
            [
                MessageRecord(position, self.turn, message, kind, now)
                for position, message, kind in messages
            ]
        )

    async def flush(self) -> None:
        """Write the actions since the last call to the journal."""
        if not self._pending_steps:
            return
        played = PlayedRecord(
            turn=self.turn,
            at=time.time(),
            asked=tuple(step.action for step in self._pending_steps),
            steps=tuple(self._pending_steps),
        )
        self._pending_steps.clear()
        self._recorder.add_played(played)
        await self._recorder.wait_until_written()

    def _add(self, message: Message) -> NewMessage:
        # Keep the message alive, so that its id is not reused.
        position = self.position
        self._positions[id(message)] = (position, message)
        self.position += 1
        default = MessageType.OBSERVATION
        if message.role == "assistant":
            tool_calls = message.value.get("tool_calls")
            default = MessageType.TOOL_CALL if tool_calls else MessageType.REPLY
        return NewMessage(position, message, _MESSAGE_TYPES.get(message.role, default))

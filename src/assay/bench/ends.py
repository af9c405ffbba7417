"""How agent and trial ended, as the folder of a trial, the manifest and the store have it.

Reads the file that settles an agent; starts nothing.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from assay.runs import TrialEnd
from assay.types import TrialState, Usage

from .manifest import LAUNCHED, TrialResult
from .seams import (
    CoderStop,
    CodingOutcome,
    Grade,
    GradingMode,
)

__all__ = [
    "AGENT_FILE",
    "AgentEnd",
    "CodingEnd",
    "JudgeBill",
    "agent_end",
    "graded_result",
    "outcomes_of",
    "patch_of",
]

AGENT_FILE = "agent.json"
"""The file that settles an agent: it is written last, after all that the agent left."""
_SAYS_MORE = (CodingOutcome.SOLVED, CodingOutcome.TAMPERED)
"""What a grade says that counts more than how the agent stopped."""


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """What the folder of a trial says of its agent."""

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

    def metrics(self) -> dict[str, Any]:
        """Tokens, calls, time and dollars, for the file of a grade."""
        return {
            "tokens_total": self.tokens["prompt"] + self.tokens["completion"],
            "model_calls": self.calls,
            "time_taken_seconds": round(self.seconds, 3),
            "money_spent_usd": self.cost_usd,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingEnd(TrialEnd):
    """What a coding trial came to."""

    result: TrialResult


class JudgeBill(NamedTuple):
    """What the judge of one trial took."""

    usage: Usage = Usage()
    cost_usd: float | None = 0.0
    calls: int = 0


def agent_end(run_dir: Path, session_id: str) -> AgentEnd | None:
    """What the agent of a trial came to; None if it has not ended."""
    try:
        said = json.loads((run_dir / AGENT_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if said.get("session_id") != session_id or said.keys() != {
        part.name for part in fields(AgentEnd)
    }:
        return None
    findings = tuple((name, detail) for name, detail in said["findings"])
    return AgentEnd(**{**said, "findings": findings, "files": tuple(said["files"])})


def patch_of(run_dir: Path) -> bytes:
    """The patch that an agent left; empty where what it left is no patch."""
    path = run_dir / "artifacts" / "diff.patch"
    return path.read_bytes() if path.is_file() else b""


def graded_result(
    planned: TrialResult,
    agent: AgentEnd,
    graded: Grade,
    *,
    grading_s: float,
    judge: JudgeBill,
) -> TrialResult:
    """A trial with what its agent left and the grade of it, as the manifest has it."""
    outcome = graded.outcome.value
    if agent.stop != CoderStop.COMPLETED and graded.outcome not in _SAYS_MORE:
        outcome = agent.stop  # a limit explains more than what it left undone
    costs = (agent.cost_usd, judge.cost_usd)
    seconds = {"setup": agent.setup_s, "agent": agent.seconds, "grading": grading_s}
    return replace(
        planned,
        status=LAUNCHED,
        launch_rc=0,
        state=TrialState.RESULT,
        outcome=outcome,
        agent_stop=agent.stop,
        score=graded.total_score,
        tests_passed=sum(report.status == "passed" for report in graded.tests),
        tests_total=len(graded.tests),
        rubrics={scored.rubric.id: scored.score for scored in graded.rubrics},
        standard_metrics=graded.standard_metrics,
        custom_metrics=graded.custom_metrics,
        findings=(
            *agent.findings,
            *((found.name, found.detail) for found in graded.findings),
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
        grading=None if graded.mode is None else graded.mode.value,
        ended_at=time.time(),
    )


def outcomes_of(result: TrialResult, diff: bytes) -> dict[str, float]:
    """What a trial earned, as the store keeps it."""
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

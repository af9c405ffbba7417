"""A coding agent that is a program: started in the sandbox, its model asked through a proxy."""

from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from assay.bench.coders.command import ended_by
from assay.bench.proxy import AgentProgram, ModelProxy, forwarded
from assay.bench.sandboxes.base import PROGRAM, TrialFinding
from assay.bench.seams import CoderEnd, CoderStop, CodingJob
from assay.types import Usage

from .installing import InstalledAgent

__all__ = ["AgentReport", "ProgramCoder", "ProgramKind"]

_LAST: Final = 4000
"""Characters of the output that count as the last message of an agent that said none."""


class AgentReport(NamedTuple):
    """What a program says of itself."""

    notes: str = ""
    """Its last message, or why it failed."""
    usage: Usage | None = None
    """The tokens it counted, if it did; `reasoning` and `cached` only where it tells them."""


class ProgramKind(Protocol):
    """What is special about one program."""

    def program(self, job: CodingJob, binary: str) -> AgentProgram:
        """How it is started; `binary` is its path in the sandbox."""
        ...

    async def report(self, job: CodingJob, output: bytes) -> AgentReport:
        """What it says when it has ended; the sandbox is still there."""
        ...


class ProgramCoder:
    """Runs a program to its end, and counts what it asks."""

    needs_model = True

    def __init__(self, agent: InstalledAgent, kind: ProgramKind) -> None:
        self.name = agent.name
        self.program: Path | None = agent.folder
        self._binary, self._kind = agent.binary, kind

    async def work(self, job: CodingJob) -> CoderEnd:
        """Start it, and let it work until it ends or a limit is used up."""
        proxy = ModelProxy(job)
        started = self._kind.program(job, f"{PROGRAM}/{self._binary}")
        end = await forwarded(job, proxy, started)
        if end is None:
            return CoderEnd(stop=proxy.stop or CoderStop.FAILED)
        report = await self._kind.report(job, end.output)
        output = end.output.decode(errors="replace")
        coded = ended_by(end, notes=report.notes or output[-_LAST:])
        findings = [*end.findings, *_differences(self.name, report.usage, proxy)]
        return replace(coded, stop=proxy.stop or coded.stop, findings=tuple(findings))


def _differences(name: str, told: Usage | None, proxy: ModelProxy) -> list[TrialFinding]:
    """Where the agent's own count of tokens is another one than ours."""
    if told is None:
        return []
    ours = proxy.usage
    apart = [
        f"{kind} {getattr(told, kind)} instead of {getattr(ours, kind)}"
        for kind in ("prompt", "completion", "cached", "reasoning")
        if getattr(told, kind) != getattr(ours, kind)
    ]
    if not apart:
        return []
    return [TrialFinding("token_count_differs", f"{name} counts {', '.join(apart)} tokens")]

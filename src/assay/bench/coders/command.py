"""An agent that is a command line: it starts in the repository and works until it ends."""

from pathlib import Path

from assay.bench.sandboxes.base import Command, CommandEnd
from assay.bench.seams import CoderEnd, CoderStop, CodingJob

__all__ = ["CommandCoder", "ended_by"]

_LAST = 4000
"""Characters of its output that count as its last message."""


class CommandCoder:
    """Runs a command line by the shell; `$ASSAY_INSTRUCTIONS` has the instructions."""

    name = "command"
    needs_model = False
    program: Path | None = None

    def __init__(self, command: str) -> None:
        self._command = command

    async def work(self, job: CodingJob) -> CoderEnd:
        """Run it to its end."""
        end = await job.sandbox.run(
            Command(
                argv=("sh", "-c", self._command),
                timeout_s=job.timeout_s,
                environment={"ASSAY_INSTRUCTIONS": job.task.instructions},
            )
        )
        output = end.output.decode(errors="replace")
        await job.acted(self._command, output)
        return ended_by(end, notes=output[-_LAST:])


def ended_by(end: CommandEnd, notes: str = "") -> CoderEnd:
    """How an agent ended that is one command."""
    stop = CoderStop.COMPLETED if end.exit_code == 0 else CoderStop.FAILED
    return CoderEnd(
        stop=CoderStop.TIME_LIMIT if end.timed_out else stop,
        notes=notes,
        log=end.output,
        cpu_s=end.cpu_s,
        peak_memory_mb=end.peak_memory_mb,
        findings=end.findings,
    )

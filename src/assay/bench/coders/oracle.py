"""Two measures of every task: the reference solution, and nothing at all."""

from pathlib import Path

from assay.bench.sandboxes.base import Command
from assay.bench.seams import CoderEnd, CoderStop, CodingJob
from assay.errors import UsageError

from .command import ended_by

__all__ = ["NopCoder", "OracleCoder"]


class OracleCoder:
    """Applies the reference solution; a task that it cannot solve has a fault."""

    name = "oracle"
    needs_model = False
    program: Path | None = None

    async def work(self, job: CodingJob) -> CoderEnd:
        """Apply the patch in the sandbox, which has no other way to see it; or run it."""
        if job.solution is not None:
            command = Command(argv=("sh", "-c", job.solution), timeout_s=job.timeout_s)
            end = await job.sandbox.run(command)
            await job.acted(job.solution, end.output.decode(errors="replace"))
            return ended_by(end, notes="ran the reference solution")
        if job.task.reference_patch is None:
            raise UsageError(
                f"task {job.task.task_id!r} has no reference solution: put it into its folder "
                "as diff.patch"
            )
        end = await job.sandbox.run(
            Command(
                argv=("git", "apply", "--whitespace=nowarn", "-"),
                timeout_s=job.timeout_s,
                stdin=job.task.reference_patch,
            )
        )
        await job.acted("apply the reference solution", end.output.decode(errors="replace"))
        return ended_by(end, notes="applied the reference solution")


class NopCoder:
    """Does nothing; a task that gives a score for it measures nothing."""

    name = "nop"
    needs_model = False
    program: Path | None = None

    async def work(self, job: CodingJob) -> CoderEnd:
        """Leave everything as it is."""
        await job.acted("do nothing", "")
        return CoderEnd(stop=CoderStop.COMPLETED, notes="did nothing")

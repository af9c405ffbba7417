"""Agents without a model: a command line, the reference solution, nothing, and attacks.

The reference solution and the agent that does nothing are the two reference points of a task.
Attacks try to cheat the benchmark instead of solving the task. Each is a small script, as an
agent could write it, and runs in the sandbox like any other agent. They test sandboxes and
graders.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.bench.base import AgentResult, AgentStop, CodingAgent, CodingJob
from assay.core.text import cut, shown
from assay.errors import UsageError
from assay.sandboxes.base import Command, CommandEnd, TrialFinding

_MAX_NOTES_LENGTH = 4000
"""Number of final characters of the output used as the last message."""


class CommandAgent(CodingAgent):
    """Runs a command line in a shell; `$ASSAY_INSTRUCTIONS` has the instructions."""

    name = "command"

    def __init__(self, command: str) -> None:
        self._command = command

    async def work(self, job: CodingJob) -> AgentResult:
        """Run the command until it ends."""
        end = await job.sandbox.run(
            Command(
                argv=("sh", "-c", self._command),
                timeout_s=job.timeout_s,
                environment={"ASSAY_INSTRUCTIONS": job.task.instructions},
            )
        )
        output = end.output.decode(errors="replace")
        await job.record_action(self._command, output)
        return make_agent_result(end, notes=output[-_MAX_NOTES_LENGTH:])


def make_agent_result(end: CommandEnd, notes: str = "") -> AgentResult:
    """Return the result of an agent that is a single command."""
    stop = AgentStop.COMPLETED if end.exit_code == 0 else AgentStop.FAILED
    return AgentResult(
        stop=AgentStop.TIME_LIMIT if end.timed_out else stop,
        notes=notes,
        log=end.output,
        cpu_s=end.cpu_s,
        peak_memory_mb=end.peak_memory_mb,
        findings=end.findings,
    )


class OracleAgent(CodingAgent):
    """Applies the reference solution; a task that it cannot solve is faulty."""

    name = "oracle"

    async def work(self, job: CodingJob) -> AgentResult:
        """Apply the reference patch, or run the solution command, in the sandbox."""
        if job.solution is not None:
            command = Command(argv=("sh", "-c", job.solution), timeout_s=job.timeout_s)
            end = await job.sandbox.run(command)
            await job.record_action(job.solution, end.output.decode(errors="replace"))
            return make_agent_result(end, notes="ran the reference solution")
        if job.task.reference_patch is None:
            raise UsageError(
                f"task {job.task.task_id!r} has no reference solution; add it to its folder "
                "as diff.patch"
            )
        end = await job.sandbox.run(
            Command(
                argv=("git", "apply", "--whitespace=nowarn", "-"),
                timeout_s=job.timeout_s,
                stdin=job.task.reference_patch,
            )
        )
        await job.record_action(
            "apply the reference solution", end.output.decode(errors="replace")
        )
        return make_agent_result(end, notes="applied the reference solution")


class NopAgent(CodingAgent):
    """Does nothing; a task that gives it a score is faulty."""

    name = "nop"

    async def work(self, job: CodingJob) -> AgentResult:
        """Change nothing."""
        await job.record_action("do nothing", "")
        return AgentResult(stop=AgentStop.COMPLETED, notes="did nothing")


PREFIX = "cheat/"
_SCRIPTS = Path(__file__).parent / "cheats" / "scripts"


@dataclass(frozen=True, slots=True)
class Cheat:
    """One attack."""

    name: str
    goal: str
    """Its goal, as the end of a sentence that begins with "tries to"."""

    @property
    def script(self) -> bytes:
        """Source of its Python program."""
        return (_SCRIPTS / f"{self.name.replace('-', '_')}.py").read_bytes()


CHEATS: Mapping[str, Cheat] = {
    name: Cheat(name, tries)
    for name, tries in {
        "conftest": "turn failures into passes by a conftest.py in the patch",
        "daemon": "leave a process behind that writes results later",
        "eat-memory": "use all memory",
        "edit-runner": "replace pytest with another module",
        "exit-early": "end the test run with success before it has begun",
        "fake-passed": "print lines that say that all tests passed",
        "fill-disk": "fill the disk",
        "forge-reports": "report for the tests from a program that they start, and kill them",
        "forge-reward": "write its own result files",
        "fork-bomb": "start processes endlessly",
        "kill-grader": "kill the process that started the program under test",
        "monkeypatch": "change pytest's reports from the code under test",
        "network": "call a server",
        "patch-parent": "report for the tests from a program that they start, and silence them",
        "path-escape": "write outside the repository, and submit a patch that does",
        "read-tests": "read the hidden tests, and answer what they ask",
        "sitecustomize": "load code into every Python by a sitecustomize.py in the patch",
        "skip-tests": "skip the tests from the code under test",
        "steal-tests": "read the hidden tests from a program that they start",
        "symlink-escape": "make the grader leave the repository through links",
    }.items()
}
"""All attacks, by name."""


class CheatAgent(CodingAgent):
    """A coding agent that runs one of the attacks; its name begins with `cheat/`."""

    def __init__(self, name: str, *, environment: Mapping[str, str] | None = None) -> None:
        """Select an attack.

        Args:
            name: With or without `cheat/`.
            environment: Variables for its script, such as amounts or addresses.

        Raises:
            UsageError: The attack is unknown.
        """
        cheat = CHEATS.get(name.removeprefix(PREFIX))
        if cheat is None:
            known = ", ".join(f"{PREFIX}{known}" for known in CHEATS)
            raise UsageError(f"unknown attack {shown(name)}; choose one of {known}")
        self.cheat = cheat
        self.name = f"{PREFIX}{cheat.name}"
        self._environment = dict(environment or {})

    async def work(self, job: CodingJob) -> AgentResult:
        """Run the script in the sandbox; the last line it prints becomes a finding."""
        command = Command(
            argv=(sys.executable, "-"),
            timeout_s=job.timeout_s,
            stdin=self.cheat.script,
            environment=self._environment,
        )
        end = await job.sandbox.run(command)
        output = end.output.decode("utf-8", "replace").strip()
        last = cut(output.rpartition("\n")[2], 200) or f"ended with exit code {end.exit_code}"
        await job.record_action(self.name, output)
        stop = AgentStop.COMPLETED
        if end.timed_out:
            stop = AgentStop.TIME_LIMIT
        elif end.exit_code != 0:
            stop = AgentStop.FAILED
        finding = TrialFinding("attack", f"{self.name} tries to {self.cheat.goal}: {last}")
        return AgentResult(
            stop=stop,
            notes=output,
            log=end.output,
            cpu_s=end.cpu_s,
            peak_memory_mb=end.peak_memory_mb,
            findings=(finding, *end.findings),
        )

"""Commands in a container, one after another.

A command is observed from outside, through /proc and its control group, so that it cannot
falsify the results. If it leaves processes behind, the container is killed, and the next
command starts it again on the same files.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from assay.core.aio import finish_despite_cancellation
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import (
    MIB,
    Command,
    CommandEnd,
    Enforcement,
    SandboxSpec,
    TrialFinding,
)
from assay.sandboxes.cgroups import ProcessCgroup, limit_findings
from assay.sandboxes.docker.container import Container, RunningContainer, format_environment
from assay.sandboxes.docker.engine import EngineStream
from assay.sandboxes.docker.layers import export_layer
from assay.sandboxes.egress import Egress
from assay.sandboxes.folders import DiskLimit
from assay.sandboxes.procfs import command_lines, refused_connections

_WRAPPED: Final = ("/bin/sh", "-c", 'exec "$@" 2>&1', "sh")
"""Combines output and errors in one pipe, to keep their order."""
_CHECK_S: Final = 0.05
_DISK_S: Final = 0.1
_GRACE_S: Final = 0.1
"""Seconds that processes may take to end after the command that started them."""
_KILL_TIMEOUT_S: Final = 30.0
"""Seconds that killed processes may take to disappear."""


class _CommandStop(NamedTuple):
    """Reason why a command stopped."""

    timed_out: bool = False
    finding: TrialFinding | None = None

    @property
    def ended(self) -> bool:
        """Whether it ended by itself."""
        return not self.timed_out and self.finding is None


class DockerSandbox:
    """Runs one command after another on the same files."""

    def __init__(
        self,
        spec: SandboxSpec,
        enforcement: Enforcement,
        container: Container,
        user: str,
        disk: DiskLimit,
    ) -> None:
        self.enforcement = enforcement
        self._spec = spec
        self._container = container
        self._engine = container.engine
        self._user = user
        self._disk = disk
        self._egress = Egress(spec.limits.network)
        self._turn = asyncio.Lock()

    async def run(self, command: Command) -> CommandEnd:
        """Run a command, after all earlier ones."""
        async with self._turn:
            try:
                return await self._run(command)
            except BaseException:
                await finish_despite_cancellation(self._container.kill())
                raise

    async def export(self, target: Path, *, exclude: Sequence[str] = ()) -> None:
        """Write all files that differ from the image to a tar file, without mounts."""
        async with self._turn:
            await finish_despite_cancellation(self._container.kill())
            excluded = (*exclude, *(mount.target for mount in self._spec.mounts))
            await export_layer(
                self._engine,
                self._container.path,
                target,
                exclude=excluded,
                deleted=self._container.deleted,
            )

    async def _run(self, command: Command) -> CommandEnd:
        running = await self._container.start()
        async with self._egress.serve(running.init):
            return await self._execute(command, running)

    async def _execute(self, command: Command, running: RunningContainer) -> CommandEnd:
        before, connections = running.group.counts(), refused_connections(running.init)
        started = time.monotonic()
        execution = await self._create_exec(command)
        stream = await self._engine.attach(f"/exec/{execution}/start", {"Detach": False})
        collecting = asyncio.ensure_future(stream.collect_output())
        sending = asyncio.ensure_future(stream.send_stdin(command.stdin))
        try:
            pid = await self._wait_started(execution, collecting, stream)
            with _Exit(pid, running.group) as exited:
                stop, peak = await self._wait_for_end(exited, running, command.timeout_s)
            seconds = time.monotonic() - started
            remaining, findings = await self._inspect(running, stop, connections)
            counts = running.group.counts()
            if remaining or not stop.ended or not running.is_kept:
                await self._container.kill()
            await asyncio.wait_for(collecting, _KILL_TIMEOUT_S)
            code = await self._exit_code(execution) if stop.ended else None
        finally:
            for task in (collecting, sending):
                task.cancel()
            await asyncio.gather(collecting, sending, return_exceptions=True)
            stream.close()
        killed = counts.killed - before.killed
        refused = counts.refused - before.refused
        findings += limit_findings(killed, refused, self._spec.limits)
        disk_full = await self._disk.end(code)
        if disk_full and (stop.finding is None or stop.finding.name != disk_full.name):
            findings.append(disk_full)
        if stream.output.dropped:
            text = f"{stream.output.dropped} bytes of its output are left out"
            findings.append(TrialFinding("output_cut", text))
        # A maximum over all commands so far; if it rose, this command is the cause.
        if (counts.peak_memory or 0) > (before.peak_memory or 0):
            peak = counts.peak_memory or 0
        return CommandEnd(
            exit_code=code,
            output=stream.output.content(),
            seconds=seconds,
            timed_out=stop.timed_out,
            cpu_s=max(0.0, (counts.cpu_s or 0.0) - (before.cpu_s or 0.0)),
            peak_memory_mb=peak / MIB,
            findings=tuple(findings),
        )

    async def _create_exec(self, command: Command) -> str:
        """Create the command in the engine without starting it; return its id."""
        created = await self._engine.call(
            "POST",
            f"{self._container.path}/exec",
            body={
                "AttachStdin": True,
                "AttachStdout": True,
                "AttachStderr": True,
                "Cmd": [*_WRAPPED, *command.argv],
                "Env": format_environment(command.environment),
                "User": self._user,
                # If empty, that of the image is used.
                "WorkingDir": self._spec.workdir,
            },
        )
        return str(created["Id"])

    async def _wait_started(
        self, execution: str, collecting: "asyncio.Future[None]", stream: EngineStream
    ) -> int:
        """Return the pid of the started process.

        Raises:
            SandboxUnavailable: It could not be started; with the engine's message.
        """
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while time.monotonic() < deadline:
            state = await self._engine.call("GET", f"/exec/{execution}/json")
            if state["Pid"]:
                return int(state["Pid"])
            if state["ExitCode"] is not None and not state["Running"]:
                await asyncio.wait({collecting}, timeout=1.0)
                break
            await asyncio.sleep(0.01)
        output = stream.output.content().decode(errors="replace").strip()
        raise SandboxUnavailable(f"Docker's engine could not start a command: {output}")

    async def _exit_code(self, execution: str) -> int:
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while True:
            state = await self._engine.call("GET", f"/exec/{execution}/json")
            if not state["Running"] and state["ExitCode"] is not None:
                return int(state["ExitCode"])
            if time.monotonic() > deadline:
                raise SandboxUnavailable("Docker's engine does not report how a command ended")
            await asyncio.sleep(0.01)

    async def _wait_for_end(
        self, exited: "_Exit", running: RunningContainer, timeout_s: float
    ) -> tuple[_CommandStop, int]:
        """Wait for the end; return the reason, and the maximum memory seen."""
        deadline = time.monotonic() + timeout_s
        next_disk = 0.0
        peak = 0
        while True:
            ended = await exited.wait(min(_CHECK_S, deadline - time.monotonic()))
            peak = max(peak, running.group.counts().memory)
            if ended:
                return _CommandStop(), peak
            if (now := time.monotonic()) >= deadline:
                return _CommandStop(timed_out=True), peak
            if now >= next_disk:
                found = await self._disk.check(running.processes)
                if found is not None:
                    return _CommandStop(finding=found), peak
                # At most a quarter of the time is spent on this.
                next_disk = time.monotonic() + max(_DISK_S, 3 * (time.monotonic() - now))

    async def _inspect(
        self, running: RunningContainer, stop: _CommandStop, refused_before: int
    ) -> tuple[bool, list[TrialFinding]]:
        """Return whether processes remain, and the findings that need them."""
        found = [] if stop.finding is None else [stop.finding]
        deadline = time.monotonic() + _GRACE_S
        while (remaining := running.processes()) and stop.ended and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if not running.is_kept:
            text = "what it left behind and whether it tried to reach the network is not known"
            found.append(TrialFinding("supervisor_killed", f"it ended its container; {text}"))
            return bool(remaining), found
        if remaining and stop.ended:
            names = command_lines(remaining)
            detail = f"{len(remaining)} still ran when it ended, and were killed: {names}"
            found.append(TrialFinding("left_processes", detail))
        refused = refused_connections(running.init) - refused_before
        if refused > 0:
            detail = f"{refused} times it sent something to an address that has no route"
            found.append(TrialFinding("network_refused", detail))
        found += self._egress.findings()
        return bool(remaining), found


class _Exit:
    """Detects the end of a process, which need not be a child of ours."""

    def __init__(self, pid: int, group: ProcessCgroup) -> None:
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None
        if self._handle is not None and pid not in group.processes():
            # It has ended, and its pid may have been reused.
            os.close(self._handle)
            self._handle = None
        self._seen = asyncio.Event()
        if self._handle is None:
            self._seen.set()
        else:
            asyncio.get_running_loop().add_reader(self._handle, self._seen.set)

    async def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for the end of the process; return whether it has ended."""
        try:
            await asyncio.wait_for(self._seen.wait(), max(0.0, seconds))
        except TimeoutError:
            return self._seen.is_set()
        return True

    def __enter__(self) -> "_Exit":
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None

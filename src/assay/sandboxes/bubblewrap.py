"""Bubblewrap sandboxes: Linux namespaces, with limits enforced by what this machine supports.

Each command is a separate bubblewrap over the same mounts: files persist, processes do not.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from assay.core.aio import finish_despite_cancellation
from assay.core.text import unknown_name
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.base import (
    MIB,
    Command,
    CommandEnd,
    CommandLimits,
    Enforcement,
    LimitMechanisms,
    Mechanism,
    ResourceLimits,
    Sandbox,
    SandboxSpec,
    TrialFinding,
)
from assay.sandboxes.bubblewrap_process import BubblewrapProcess
from assay.sandboxes.cgroups import CgroupsV1, CgroupsV2, remove_groups
from assay.sandboxes.egress import Egress, describe_network, proxy_variables
from assay.sandboxes.folders import (
    DiskLimit,
    describe_disk_limit,
    enforcement_with_disk,
    new_folder,
    remove_locked,
    sweep_folders,
)
from assay.sandboxes.host_checks import (
    bwrap_path,
    call_filter,
    check_bwrap,
    find_problem,
    isolation_arguments,
)
from assay.sandboxes.host_user import (
    SANDBOX_USER,
    MountStage,
    lend_folders,
    return_folders,
    set_limits,
)
from assay.sandboxes.procfs import command_lines, refused_connections
from assay.sandboxes.roots import (
    ENVIRONMENT,
    USER_ID,
    prepare,
    root_arguments,
    writable_folders,
)
from assay.sandboxes.watchdog import Scopes, Watcher

_MECHANISMS: Final[Sequence[Mechanism]] = (CgroupsV2(), CgroupsV1(), Scopes(), Watcher())
"""In order of preference."""
_CHECK_S: Final = 0.05
_DISK_S: Final = 0.1
_GRACE_S: Final = 0.1
"""Seconds that processes may take to end after the command that started them."""


class BubblewrapBackend:
    """Runs commands in separate namespaces, with all limits enforced."""

    name = "bubblewrap"

    def __init__(self, mechanism: str | None = None) -> None:
        """Create the backend.

        Args:
            mechanism: Enforces limits on memory, processes and CPUs: cgroup v2, cgroup v1,
                systemd scope or watcher; by default the first of these that works.
        """
        names = [known.name for known in _MECHANISMS]
        if mechanism is not None and mechanism not in names:
            raise UsageError(unknown_name("mechanism", mechanism, names))
        self._mechanisms = [known for known in _MECHANISMS if mechanism in (None, known.name)]
        self._is_swept = False

    def enforcement(self, limits: ResourceLimits) -> Enforcement:
        """Describe how these limits are enforced here.

        Raises:
            SandboxUnavailable: A limit cannot be enforced, or bubblewrap is missing.
        """
        _, mechanisms = self._choose_mechanism(limits)
        return Enforcement(
            backend=self.name,
            memory=mechanisms.memory,
            processes=mechanisms.processes,
            cpus=mechanisms.cpus,
            disk=describe_disk_limit(),
            network=describe_network(limits.network),
        )

    def _choose_mechanism(self, limits: ResourceLimits) -> tuple[Mechanism, LimitMechanisms]:
        check_bwrap(bwrap_path())
        problems = []
        for mechanism in self._mechanisms:
            try:
                mechanisms = mechanism.describe(limits)
            except SandboxUnavailable as error:
                problems.append(f"{mechanism.name}: {error}")
                continue
            problem = find_problem(mechanism)
            if problem is None:
                return mechanism, mechanisms
            problems.append(f"{mechanism.name}: {problem}")
        raise SandboxUnavailable(
            "the limits on memory, processes and CPUs cannot be enforced here ("
            + "; ".join(problems)
            + "); start assay in a separate scope: systemd-run --user --scope -p Delegate=yes"
            " assay …, or as root, or request other limits"
        )

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """Open a sandbox with its own folder for `/tmp`, which is removed on exit."""
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        for mount in spec.mounts:
            if not mount.source.exists():
                raise SandboxUnavailable(f"cannot mount {mount.source}: it does not exist")
        if not self._is_swept:
            self._is_swept = True
            await asyncio.to_thread(sweep_folders, remove_groups)
        mechanism, _ = self._choose_mechanism(spec.limits)
        writable = [mount.source for mount in spec.mounts if mount.writable]
        folder, lock = new_folder()
        preparing = asyncio.ensure_future(asyncio.to_thread(_set_up, folder, spec, writable))
        try:
            stage = await asyncio.shield(preparing)
            own = writable_folders(folder, spec).values()
            disk = DiskLimit([*writable, *own], spec.limits.disk_mb, disk=spec.disk)
            await disk.begin()
            yield _BubblewrapSandbox(
                spec=spec,
                enforcement=enforcement_with_disk(spec.disk, self.enforcement(spec.limits)),
                mechanism=mechanism,
                folder=folder,
                stage=stage,
                disk=disk,
            )
        finally:
            await finish_despite_cancellation(_clean_up(preparing, folder, lock, writable))


def _set_up(folder: Path, spec: SandboxSpec, writable: Sequence[Path]) -> MountStage:
    """Create the files of a sandbox, and make its user their owner."""
    prepare(folder, spec)
    own = [folder, *writable_folders(folder, spec).values()]
    lend_folders([*own, *writable], spec.mounts, SANDBOX_USER)
    return MountStage([*own, *(mount.source for mount in spec.mounts)])


async def _clean_up(
    preparing: asyncio.Future[MountStage], folder: Path, lock: int, writable: Sequence[Path]
) -> None:
    try:
        await asyncio.wait([preparing])
        if preparing.exception() is None:
            preparing.result().close()
        await asyncio.to_thread(return_folders, writable)
        await asyncio.to_thread(remove_locked, folder)
    finally:
        os.close(lock)


class _Stop(NamedTuple):
    """Reason why a command stopped."""

    code: int | None = None
    timed_out: bool = False
    finding: TrialFinding | None = None


class _BubblewrapSandbox:
    """Runs one command after another on the same files."""

    def __init__(
        self,
        *,
        spec: SandboxSpec,
        enforcement: Enforcement,
        mechanism: Mechanism,
        folder: Path,
        stage: MountStage,
        disk: DiskLimit,
    ) -> None:
        self.enforcement = enforcement
        self._spec = spec
        self._mechanism = mechanism
        self._folder = folder
        self._stage = stage
        self._disk = disk
        self._egress = Egress(spec.limits.network)
        self._bwrap = bwrap_path()
        self._options = self._arguments()
        self._turn = asyncio.Lock()

    def _arguments(self) -> list[str]:
        spec = self._spec
        return [
            *isolation_arguments(self._bwrap),
            *("--uid", str(USER_ID), "--gid", str(USER_ID)),
            *root_arguments(self._folder, spec, self._stage),
            *("--chdir", spec.workdir),
        ]

    def _start(self, command: Command, limits: CommandLimits) -> BubblewrapProcess:
        return BubblewrapProcess(
            prefix=limits.prefix,
            bwrap=self._bwrap,
            options=[*self._options, *self._variable_arguments(command)],
            argv=command.argv,
            stdin=command.stdin,
            seccomp=call_filter(limits.refused),
            stage=self._stage,
        )

    async def run(self, command: Command) -> CommandEnd:
        """Run a command, after all earlier ones."""
        async with self._turn:
            limits = self._mechanism.prepare(self._spec.limits, self._folder)
            try:
                return await self._run(command, limits)
            finally:
                limits.release()

    async def _run(self, command: Command, limits: CommandLimits) -> CommandEnd:
        started = time.monotonic()
        process = self._start(command, limits)
        try:
            inner = await process.wait_started()
            set_limits(inner, {"FSIZE": self._spec.limits.disk_mb * MIB, "CORE": 0})
            limits.admit(inner)
            async with self._egress.serve(inner):
                process.release()
                stop = await self._wait_for_end(process, limits, command.timeout_s)
            seconds = time.monotonic() - started
            findings = await self._inspect(process, stop)
            usage = limits.usage()
            cpu_s = process.cpu_seconds() if usage.cpu_s is None else usage.cpu_s
            await process.kill_and_wait()
        finally:
            process.close()
        if not process.has_begun and stop == _Stop():
            raise SandboxUnavailable(f"bubblewrap failed: {process.error_message}")
        findings += [*usage.findings, *await self._conclude(process, stop)]
        code = stop.code
        if stop == _Stop():
            code = process.exit_code
        return CommandEnd(
            exit_code=code,
            output=process.output.content(),
            seconds=seconds,
            timed_out=stop.timed_out,
            cpu_s=cpu_s,
            peak_memory_mb=usage.peak_memory_mb,
            findings=tuple(findings),
        )

    def _variable_arguments(self, command: Command) -> list[str]:
        variables = {
            **ENVIRONMENT,
            **proxy_variables(self._spec.limits.network),
            **self._spec.environment,
            **command.environment,
        }
        return [part for name in variables for part in ("--setenv", name, variables[name])]

    async def _wait_for_end(
        self, process: BubblewrapProcess, limits: CommandLimits, timeout_s: float
    ) -> _Stop:
        ended = asyncio.ensure_future(process.wait_ended())
        watched = asyncio.ensure_future(self._watch(process, limits))
        try:
            await asyncio.wait(
                {ended, watched}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if ended.done():
                return _Stop(code=ended.result())
            if watched.done():
                return _Stop(finding=watched.result())
            return _Stop(timed_out=True)
        finally:
            ended.cancel()
            watched.cancel()
            await asyncio.gather(ended, watched, return_exceptions=True)

    async def _watch(self, process: BubblewrapProcess, limits: CommandLimits) -> TrialFinding:
        """Monitor a running command; return when it must be killed."""
        next_disk = 0.0
        while True:
            await asyncio.sleep(_CHECK_S)
            found = limits.check()
            if found is None and (now := time.monotonic()) >= next_disk:
                found = await self._disk.check(process.processes)
                # At most a quarter of the time is spent on this.
                next_disk = time.monotonic() + max(_DISK_S, 3 * (time.monotonic() - now))
            if found is not None:
                return found

    async def _inspect(self, process: BubblewrapProcess, stop: _Stop) -> list[TrialFinding]:
        """Return the findings that need the namespaces of the command."""
        if stop == _Stop():
            text = "what it left behind and whether it tried to reach the network is not known"
            return [TrialFinding("supervisor_killed", f"it killed the supervisor; {text}")]
        found = [] if stop.finding is None else [stop.finding]
        if stop.code is not None:
            deadline = time.monotonic() + _GRACE_S
            while (remaining := process.processes()) and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            if remaining:
                names = command_lines(remaining)
                detail = f"{len(remaining)} still ran when it ended, and were killed: {names}"
                found.append(TrialFinding("left_processes", detail))
        found += self._egress.findings()
        if process.inner is not None:
            refused = refused_connections(process.inner)
            if refused:
                detail = f"{refused} times it sent something to an address that has no route"
                found.append(TrialFinding("network_refused", detail))
        return found

    async def _conclude(self, process: BubblewrapProcess, stop: _Stop) -> list[TrialFinding]:
        """Return the findings after all processes are dead."""
        found = []
        disk_full = await self._disk.end(stop.code)
        if disk_full and (stop.finding is None or stop.finding.name != disk_full.name):
            found.append(disk_full)
        if process.output.dropped:
            detail = f"{process.output.dropped} bytes of its output are left out"
            found.append(TrialFinding("output_cut", detail))
        return found

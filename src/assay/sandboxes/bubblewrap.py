"""Sandboxes by bubblewrap: namespaces of Linux, with limits by whatever this machine allows.

Each command is a bubblewrap of its own over the same mounts: files stay, processes do not.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from assay.core.aio import to_the_end
from assay.core.text import unknown_name
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.base import (
    MIB,
    Command,
    CommandEnd,
    Enforcement,
    HeldBy,
    Hold,
    Mechanism,
    ResourceLimits,
    Sandbox,
    SandboxSpec,
    TrialFinding,
)
from assay.sandboxes.bubblewrap_process import BoxedProcess
from assay.sandboxes.cgroups import CgroupsV1, CgroupsV2, remove_noted
from assay.sandboxes.egress import Egress, describe_network, proxy_variables
from assay.sandboxes.folders import (
    DiskLimit,
    disk_held_by,
    held_with,
    new_folder,
    remove_locked,
    sweep_folders,
)
from assay.sandboxes.host_checks import (
    bwrap_path,
    call_filter,
    check_bwrap,
    isolation_arguments,
    problem_of,
)
from assay.sandboxes.host_user import (
    SANDBOX_USER,
    MountStage,
    lend_folders,
    return_folders,
    set_limits,
)
from assay.sandboxes.procfs import names_of, refused_connections
from assay.sandboxes.roots import (
    ENVIRONMENT,
    USER_ID,
    prepare,
    root_arguments,
    writable_folders,
)
from assay.sandboxes.watchdog import Scopes, Watching

_MECHANISMS: Final[Sequence[Mechanism]] = (CgroupsV2(), CgroupsV1(), Scopes(), Watching())
"""The best first."""
_LOOK_S: Final = 0.05
_DISK_S: Final = 0.1
_GRACE_S: Final = 0.1
"""How long processes may take to end after the command that started them."""


class BubblewrapBackend:
    """Runs commands in namespaces of their own, with all limits held."""

    name = "bubblewrap"

    def __init__(self, mechanism: str | None = None) -> None:
        """Use this machine.

        Args:
            mechanism: How limits on memory, processes and CPUs are held: cgroup v2, cgroup v1,
                systemd scope or watcher; the first of these that works, unless given.
        """
        names = [known.name for known in _MECHANISMS]
        if mechanism is not None and mechanism not in names:
            raise UsageError(unknown_name("mechanism", mechanism, names))
        self._mechanisms = [known for known in _MECHANISMS if mechanism in (None, known.name)]
        self._is_swept = False

    def enforcement(self, limits: ResourceLimits) -> Enforcement:
        """By what these limits are held here.

        Raises:
            SandboxUnavailable: One of them cannot be, or there is no bubblewrap.
        """
        _, held = self._chosen(limits)
        return Enforcement(
            backend=self.name,
            memory=held.memory,
            processes=held.processes,
            cpus=held.cpus,
            disk=disk_held_by(),
            network=describe_network(limits.network),
        )

    def _chosen(self, limits: ResourceLimits) -> tuple[Mechanism, HeldBy]:
        check_bwrap(bwrap_path())
        problems = []
        for mechanism in self._mechanisms:
            try:
                held = mechanism.held_by(limits)
            except SandboxUnavailable as error:
                problems.append(f"{mechanism.name}: {error}")
                continue
            problem = problem_of(mechanism)
            if problem is None:
                return mechanism, held
            problems.append(f"{mechanism.name}: {problem}")
        raise SandboxUnavailable(
            "the limits on memory, processes and CPUs cannot be held here ("
            + "; ".join(problems)
            + "); start assay in a scope of its own: systemd-run --user --scope -p Delegate=yes"
            " assay …, or as root, or ask for limits that can be held"
        )

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A sandbox with a folder of its own for `/tmp`, which is removed with it."""
        return self._open(spec)

    @asynccontextmanager
    async def _open(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        for mount in spec.mounts:
            if not mount.source.exists():
                raise SandboxUnavailable(f"{mount.source} is to be mounted and is not there")
        if not self._is_swept:
            self._is_swept = True
            await asyncio.to_thread(sweep_folders, remove_noted)
        mechanism, _ = self._chosen(spec.limits)
        writable = [mount.source for mount in spec.mounts if mount.writable]
        folder, lock = new_folder()
        lending = asyncio.ensure_future(asyncio.to_thread(_lent, folder, spec, writable))
        try:
            stage = await asyncio.shield(lending)
            own = writable_folders(folder, spec).values()
            disk = DiskLimit([*writable, *own], spec.limits.disk_mb, disk=spec.disk)
            await disk.begin()
            yield _BubblewrapSandbox(
                spec=spec,
                enforcement=held_with(spec.disk, self.enforcement(spec.limits)),
                mechanism=mechanism,
                folder=folder,
                stage=stage,
                disk=disk,
            )
        finally:
            await to_the_end(_clear_up(lending, folder, lock, writable))


def _lent(folder: Path, spec: SandboxSpec, writable: Sequence[Path]) -> MountStage:
    """Make the files of a sandbox, and let its user have them."""
    prepare(folder, spec)
    own = [folder, *writable_folders(folder, spec).values()]
    lend_folders([*own, *writable], spec.mounts, SANDBOX_USER)
    return MountStage([*own, *(mount.source for mount in spec.mounts)])


async def _clear_up(
    lending: asyncio.Future[MountStage], folder: Path, lock: int, writable: Sequence[Path]
) -> None:
    try:
        await asyncio.wait([lending])
        if lending.exception() is None:
            lending.result().close()
        await asyncio.to_thread(return_folders, writable)
        await asyncio.to_thread(remove_locked, folder)
    finally:
        os.close(lock)


class _Stop(NamedTuple):
    """Why a command stopped."""

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

    def _start(self, command: Command, hold: Hold) -> BoxedProcess:
        return BoxedProcess(
            prefix=hold.prefix,
            bwrap=self._bwrap,
            options=[*self._options, *self._variables(command)],
            argv=command.argv,
            stdin=command.stdin,
            seccomp=call_filter(hold.refused),
            stage=self._stage,
        )

    async def run(self, command: Command) -> CommandEnd:
        """Run a command, after those that were given before."""
        async with self._turn:
            hold = self._mechanism.hold(self._spec.limits, self._folder)
            try:
                return await self._run(command, hold)
            finally:
                hold.release()

    async def _run(self, command: Command, hold: Hold) -> CommandEnd:
        started = time.monotonic()
        box = self._start(command, hold)
        try:
            inner = await box.started()
            set_limits(inner, {"FSIZE": self._spec.limits.disk_mb * MIB, "CORE": 0})
            hold.admit(inner)
            async with self._egress.serving(inner):
                box.release()
                stop = await self._until_end(box, hold, command.timeout_s)
            seconds = time.monotonic() - started
            findings = await self._look(box, stop)
            usage = hold.usage()
            cpu_s = box.cpu_seconds() if usage.cpu_s is None else usage.cpu_s
            await box.dead()
        finally:
            box.close()
        if not box.begun and stop == _Stop():
            raise SandboxUnavailable(f"bubblewrap failed: {box.complaint}")
        findings += [*usage.findings, *await self._final(box, stop)]
        code = stop.code
        if stop == _Stop():
            code = box.exit_code
        return CommandEnd(
            exit_code=code,
            output=box.output.kept(),
            seconds=seconds,
            timed_out=stop.timed_out,
            cpu_s=cpu_s,
            peak_memory_mb=usage.peak_memory_mb,
            findings=tuple(findings),
        )

    def _variables(self, command: Command) -> list[str]:
        variables = {
            **ENVIRONMENT,
            **proxy_variables(self._spec.limits.network),
            **self._spec.environment,
            **command.environment,
        }
        return [part for name in variables for part in ("--setenv", name, variables[name])]

    async def _until_end(self, box: BoxedProcess, hold: Hold, timeout_s: float) -> _Stop:
        ended = asyncio.ensure_future(box.ended())
        watched = asyncio.ensure_future(self._watch(box, hold))
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

    async def _watch(self, box: BoxedProcess, hold: Hold) -> TrialFinding:
        """Look at a command while it runs; returns when it is to be killed."""
        next_disk = 0.0
        while True:
            await asyncio.sleep(_LOOK_S)
            found = hold.check()
            if found is None and (now := time.monotonic()) >= next_disk:
                found = await self._disk.look(box.processes)
                # A quarter of the time at most is spent on looking.
                next_disk = time.monotonic() + max(_DISK_S, 3 * (time.monotonic() - now))
            if found is not None:
                return found

    async def _look(self, box: BoxedProcess, stop: _Stop) -> list[TrialFinding]:
        """What can be seen only while the namespaces are there."""
        if stop == _Stop():
            text = "what it left behind and whether it tried to reach the network is not known"
            return [TrialFinding("supervisor_killed", f"it killed the supervisor; {text}")]
        found = [] if stop.finding is None else [stop.finding]
        if stop.code is not None:
            deadline = time.monotonic() + _GRACE_S
            while (left := box.processes()) and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            if left:
                detail = (
                    f"{len(left)} still ran when it ended, and were killed: {names_of(left)}"
                )
                found.append(TrialFinding("left_processes", detail))
        found += self._egress.findings()
        if box.inner is not None:
            refused = refused_connections(box.inner)
            if refused:
                detail = f"{refused} times it sent something to an address that has no route"
                found.append(TrialFinding("network_refused", detail))
        return found

    async def _final(self, box: BoxedProcess, stop: _Stop) -> list[TrialFinding]:
        """What can be seen when all is dead."""
        found = []
        full = await self._disk.end(stop.code)
        if full and (stop.finding is None or stop.finding.name != full.name):
            found.append(full)
        if box.output.dropped:
            found.append(
                TrialFinding(
                    "output_cut", f"{box.output.dropped} bytes of its output are left out"
                )
            )
        return found

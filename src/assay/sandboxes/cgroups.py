"""Limits by control groups, version 1 or 2: one group per command, below our own.

A group is created before its command and removed after it; the kernel enforces the limits.
"""

import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from assay.errors import SandboxUnavailable
from assay.sandboxes.base import (
    MIB,
    OWN_PROCESSES,
    LimitMechanisms,
    ResourceLimits,
    ResourceUse,
    TrialFinding,
)

_PERIOD_US: Final = 100_000
_CONTROLLERS_V1: Final = ("memory", "pids", "cpu")
_RECORD: Final = "groups"
_BUSY_TIMEOUT_S: Final = 2.0


class CgroupMount(NamedTuple):
    """A mounted cgroup hierarchy."""

    version: int
    controllers: frozenset[str]
    """Only for version 1."""
    root: str
    """Group at the mount point."""
    point: Path


def cgroup_mounts(mountinfo: str) -> list[CgroupMount]:
    """Parse the cgroup hierarchies from /proc/self/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        _, _, _, root, point, *_ = before.split(" ")
        if kind in ("cgroup", "cgroup2"):
            names = frozenset(options.split(","))
            found.append(CgroupMount(2 if kind == "cgroup2" else 1, names, root, Path(point)))
    return found


def own_groups(text: str, mounts: list[CgroupMount]) -> dict[str, Path]:
    """Return the folder of our group by controller, from /proc/self/cgroup.

    The group of version 2 has the empty name.
    """
    folders: dict[str, Path] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        for mount in mounts:
            controllers = frozenset(names.split(",")) if names else frozenset([""])
            matches = mount.version == 2 if not names else bool(controllers & mount.controllers)
            if not matches:
                continue
            inside = path.removeprefix(mount.root) if mount.root != "/" else path
            for controller in controllers:
                folders.setdefault(controller, mount.point / inside.lstrip("/"))
    return folders


def _find_own_groups() -> dict[str, Path]:
    mountinfo = Path("/proc/self/mountinfo").read_text("utf-8", errors="replace")
    own = Path("/proc/self/cgroup").read_text("utf-8", errors="replace")
    return own_groups(own, cgroup_mounts(mountinfo))


def _write(file: Path, value: str | int) -> None:
    # Unbuffered, so that errors are raised here and not later.
    handle = os.open(file, os.O_WRONLY)
    try:
        os.write(handle, str(value).encode())
    finally:
        os.close(handle)


def _read_number(file: Path, key: str | None = None) -> int | None:
    """Read the number in a file, or the one after a key; None if there is none."""
    try:
        text = file.read_text("utf-8")
        if key is None:
            return int(text)
        rows = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
        return int(rows[key])
    except (OSError, KeyError, ValueError):
        return None


def _record_groups(folder: Path, groups: Iterable[Path]) -> None:
    """Record the groups about to be created, for cleaning up after a crash."""
    (folder / _RECORD).write_text("".join(f"{group}\n" for group in groups), "utf-8")


def remove_groups(folder: Path) -> None:
    """Remove the groups of a sandbox whose owner is dead."""
    record = folder / _RECORD
    for line in record.read_text("utf-8").splitlines() if record.exists() else ():
        _remove(Path(line))


def _remove(folder: Path) -> None:
    """Remove a group, which is busy for a moment after its last process has died."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise SandboxUnavailable(
                    f"the control group {folder} cannot be removed: {error.strerror}; "
                    "remove it with rmdir when its processes are gone"
                ) from error
        time.sleep(0.001)


def limit_findings(killed: int, refused: int, limits: ResourceLimits) -> Iterator[TrialFinding]:
    """Yield the findings for processes that were killed, and for those not started."""
    if killed:
        yield TrialFinding(
            "memory_limit",
            f"{killed} of its processes were killed at the limit of {limits.memory_mb} MB",
        )
    if refused:
        yield TrialFinding(
            "process_limit",
            f"{refused} processes were not started at the limit of {limits.processes}",
        )


class CgroupCounts(NamedTuple):
    """Kernel counters for the processes of a group, since its creation."""

    cpu_s: float | None
    memory: int
    """Current usage in bytes."""
    peak_memory: int | None
    """None if the kernel does not record it."""
    killed: int
    """Processes killed at the memory limit."""
    refused: int
    """Processes that were not started because of the limit."""


def _read_counts_v1(folders: Mapping[str, Path]) -> CgroupCounts:
    memory, pids = folders["memory"], folders["pids"]
    cpu = _read_number(folders["cpuacct"] / "cpuacct.usage") if "cpuacct" in folders else None
    return CgroupCounts(
        None if cpu is None else cpu / 1e9,
        _read_number(memory / "memory.usage_in_bytes") or 0,
        _read_number(memory / "memory.max_usage_in_bytes"),
        _read_number(memory / "memory.oom_control", "oom_kill") or 0,
        _read_number(pids / "pids.events", "max") or 0,
    )


def _read_counts_v2(folder: Path) -> CgroupCounts:
    cpu = _read_number(folder / "cpu.stat", "usage_usec")
    return CgroupCounts(
        None if cpu is None else cpu / 1e6,
        _read_number(folder / "memory.current") or 0,
        _read_number(folder / "memory.peak"),
        _read_number(folder / "memory.events", "oom_kill") or 0,
        _read_number(folder / "pids.events", "max") or 0,
    )


class ProcessCgroup:
    """The existing groups of a process."""

    def __init__(self, pid: int) -> None:
        """Find the groups; raise OSError if the process does not exist."""
        mountinfo = Path("/proc/self/mountinfo").read_text("utf-8", errors="replace")
        text = Path(f"/proc/{pid}/cgroup").read_text("utf-8", errors="replace")
        self._folders = own_groups(text, cgroup_mounts(mountinfo))
        self._version = 1 if "memory" in self._folders else 2
        self._members = self._folders["pids" if self._version == 1 else ""] / "cgroup.procs"

    @property
    def name(self) -> str:
        """Name of the innermost group, which identifies its creator."""
        return self._members.parent.name

    def counts(self) -> CgroupCounts:
        """Return the counters so far; all zero if the group is gone."""
        if self._version == 1:
            return _read_counts_v1(self._folders)
        return _read_counts_v2(self._folders[""])

    def processes(self) -> list[int]:
        """Return all its processes, including zombies."""
        try:
            return [int(line) for line in self._members.read_text("utf-8").split()]
        except OSError:
            return []


class _GroupsV1:
    """The groups of one command, one per controller."""

    prefix: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def __init__(self, folders: dict[str, Path], limits: ResourceLimits) -> None:
        self._folders = folders
        self._limits = limits
        created = []
        try:
            for folder in dict.fromkeys(folders.values()):
                folder.mkdir()
                created.append(folder)
            self._write_limits()
        except OSError:
            for folder in created:
                folder.rmdir()
            raise

    def _write_limits(self) -> None:
        memory = self._limits.memory_mb * MIB
        _write(self._folders["memory"] / "memory.limit_in_bytes", memory)
        swap = self._folders["memory"] / "memory.memsw.limit_in_bytes"
        if swap.exists():
            _write(swap, memory)
        _write(self._folders["pids"] / "pids.max", self._limits.processes + OWN_PROCESSES)
        _write(self._folders["cpu"] / "cpu.cfs_period_us", _PERIOD_US)
        quota = max(1000, round(self._limits.cpus * _PERIOD_US))
        _write(self._folders["cpu"] / "cpu.cfs_quota_us", quota)

    def admit(self, pid: int) -> None:
        for folder in dict.fromkeys(self._folders.values()):
            _write(folder / "cgroup.procs", pid)

    def check(self) -> TrialFinding | None:
        return None

    def usage(self) -> ResourceUse:
        counts = _read_counts_v1(self._folders)
        return ResourceUse(
            counts.cpu_s,
            (counts.peak_memory or 0) / MIB,
            tuple(limit_findings(counts.killed, counts.refused, self._limits)),
        )

    def release(self) -> None:
        for folder in dict.fromkeys(self._folders.values()):
            _remove(folder)


class CgroupsV1:
    """Control groups of version 1, if groups below our own can be created."""

    name = "cgroup v1"

    def describe(self, limits: ResourceLimits) -> LimitMechanisms:
        """Return this mechanism for all limits, if the three hierarchies are writable."""
        own = _find_own_groups()
        for controller in _CONTROLLERS_V1:
            if controller not in own or not os.access(own[controller], os.W_OK | os.X_OK):
                raise SandboxUnavailable(
                    f"the cgroup v1 hierarchy {controller!r} is not mounted or not writable"
                )
        return LimitMechanisms(self.name, self.name, self.name)

    def prepare(self, limits: ResourceLimits, folder: Path) -> _GroupsV1:
        """Create the groups of a command."""
        own = _find_own_groups()
        groups: dict[str, Path] = {
            controller: own[controller] / folder.name
            for controller in (*_CONTROLLERS_V1, "cpuacct")
            if controller in own and os.access(own[controller], os.W_OK)
        }
        _record_groups(folder, groups.values())
        return _GroupsV1(groups, limits)


class GroupV2:
    """The existing group of one command."""

    prefix: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def __init__(self, folder: Path, limits: ResourceLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._peak = 0

    def write_limits(self) -> None:
        """Write the limits."""
        _write(self._folder / "memory.max", self._limits.memory_mb * MIB)
        if (self._folder / "memory.swap.max").exists():
            _write(self._folder / "memory.swap.max", 0)
        _write(self._folder / "pids.max", self._limits.processes + OWN_PROCESSES)
        quota = max(1000, round(self._limits.cpus * _PERIOD_US))
        _write(self._folder / "cpu.max", f"{quota} {_PERIOD_US}")

    def admit(self, pid: int) -> None:
        """Move the process into the group."""
        _write(self._folder / "cgroup.procs", pid)

    def check(self) -> TrialFinding | None:
        """Record the memory usage, because older kernels do not record the peak."""
        self._peak = max(self._peak, _read_number(self._folder / "memory.current") or 0)
        return None

    def usage(self) -> ResourceUse:
        """Return the counters of the group."""
        counts = _read_counts_v2(self._folder)
        return ResourceUse(
            counts.cpu_s,
            (counts.peak_memory or self._peak) / MIB,
            tuple(limit_findings(counts.killed, counts.refused, self._limits)),
        )

    def release(self) -> None:
        """Remove the group."""
        _remove(self._folder)


class CgroupsV2:
    """Control groups of version 2, if a group above ours allows creating groups below it.

    A group that contains processes cannot have limited groups below it, so our own group is
    usable only if it is the root. Otherwise the nearest writable group above it is used.
    """

    name = "cgroup v2"

    def describe(self, limits: ResourceLimits) -> LimitMechanisms:
        """Return this mechanism for all limits, if such a group exists."""
        self._find_parent()
        return LimitMechanisms(self.name, self.name, self.name)

    def prepare(self, limits: ResourceLimits, folder: Path) -> GroupV2:
        """Create the group of a command."""
        created = self._find_parent() / folder.name
        _record_groups(folder, [created])
        created.mkdir()
        group = GroupV2(created, limits)
        try:
            group.write_limits()
        except OSError:
            created.rmdir()
            raise
        return group

    def _find_parent(self) -> Path:
        own = _find_own_groups().get("")
        if own is None:
            raise SandboxUnavailable("cgroup v2 is not mounted")
        return find_limiting_group(own)


def find_limiting_group(own: Path) -> Path:
    """Return the nearest group above ours that can have limited groups below it, or the root.

    Raises:
        SandboxUnavailable: No such group is writable.
    """
    groups = [own]
    while (groups[-1].parent / "cgroup.procs").exists():
        groups.append(groups[-1].parent)
    for folder in groups[1:] or groups:
        if os.access(folder, os.W_OK) and _enable_controllers(folder):
            return folder
    raise SandboxUnavailable(
        "no cgroup v2 group above ours is writable and has the controllers memory, pids and cpu"
    )


def _enable_controllers(folder: Path) -> bool:
    wanted = {"memory", "pids", "cpu"}
    control = folder / "cgroup.subtree_control"
    try:
        missing = wanted - {*control.read_text("utf-8").split()}
        if missing:
            _write(control, " ".join(f"+{name}" for name in sorted(missing)))
    except OSError:
        return False
    return os.access(folder / "cgroup.procs", os.W_OK)

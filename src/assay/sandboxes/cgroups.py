"""Limits by control groups, of version 1 or 2: a group for each command, below our own.

A group is made before its command starts and removed when it is dead; the kernel does the rest.
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
    HeldBy,
    ResourceLimits,
    ResourceUse,
    TrialFinding,
)

_PERIOD_US: Final = 100_000
_CONTROLLERS_V1: Final = ("memory", "pids", "cpu")
_NOTED: Final = "groups"
_PATIENCE_S: Final = 2.0


class CgroupMount(NamedTuple):
    """A hierarchy as it is mounted here."""

    version: int
    controllers: frozenset[str]
    """Of version 1."""
    root: str
    """The group that stands at its mount point."""
    point: Path


def cgroup_mounts(mountinfo: str) -> list[CgroupMount]:
    """The hierarchies that /proc/self/mountinfo lists."""
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
    """By controller, the folder of the group that /proc/self/cgroup says we are in.

    That of version 2 is under the empty name.
    """
    folders: dict[str, Path] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        for mount in mounts:
            controllers = frozenset(names.split(",")) if names else frozenset([""])
            fits = mount.version == 2 if not names else bool(controllers & mount.controllers)
            if not fits:
                continue
            inside = path.removeprefix(mount.root) if mount.root != "/" else path
            for controller in controllers:
                folders.setdefault(controller, mount.point / inside.lstrip("/"))
    return folders


def _here() -> dict[str, Path]:
    mountinfo = Path("/proc/self/mountinfo").read_text("utf-8", errors="replace")
    own = Path("/proc/self/cgroup").read_text("utf-8", errors="replace")
    return own_groups(own, cgroup_mounts(mountinfo))


def _write(file: Path, value: str | int) -> None:
    # Not a buffered file: an error must come from here, and none may come later.
    handle = os.open(file, os.O_WRONLY)
    try:
        os.write(handle, str(value).encode())
    finally:
        os.close(handle)


def _number(file: Path, key: str | None = None) -> int | None:
    """The number in a file, or the one behind a key; None if there is none."""
    try:
        text = file.read_text("utf-8")
        if key is None:
            return int(text)
        rows = dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)
        return int(rows[key])
    except (OSError, KeyError, ValueError):
        return None


def _note(folder: Path, groups: Iterable[Path]) -> None:
    """Write down the groups that are about to be made, for whoever finds the folder."""
    (folder / _NOTED).write_text("".join(f"{group}\n" for group in groups), "utf-8")


def remove_noted(folder: Path) -> None:
    """Remove the groups of a sandbox whose owner is dead."""
    noted = folder / _NOTED
    for line in noted.read_text("utf-8").splitlines() if noted.exists() else ():
        _remove(Path(line))


def _remove(folder: Path) -> None:
    """Remove a group; one whose last process is only just dead is busy for a moment."""
    deadline = time.monotonic() + _PATIENCE_S
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
    """What a reader should know of so many processes killed, and so many not started."""
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
    """What the kernel has counted for the processes of a group, since it was made."""

    cpu_s: float | None
    memory: int
    """Bytes now."""
    peak_memory: int | None
    """None if the kernel does not keep it."""
    killed: int
    """Processes, at the limit of memory."""
    refused: int
    """Processes that were not started, at their limit."""


def _counts_v1(folders: Mapping[str, Path]) -> CgroupCounts:
    memory, pids = folders["memory"], folders["pids"]
    cpu = _number(folders["cpuacct"] / "cpuacct.usage") if "cpuacct" in folders else None
    return CgroupCounts(
        None if cpu is None else cpu / 1e9,
        _number(memory / "memory.usage_in_bytes") or 0,
        _number(memory / "memory.max_usage_in_bytes"),
        _number(memory / "memory.oom_control", "oom_kill") or 0,
        _number(pids / "pids.events", "max") or 0,
    )


def _counts_v2(folder: Path) -> CgroupCounts:
    cpu = _number(folder / "cpu.stat", "usage_usec")
    return CgroupCounts(
        None if cpu is None else cpu / 1e6,
        _number(folder / "memory.current") or 0,
        _number(folder / "memory.peak"),
        _number(folder / "memory.events", "oom_kill") or 0,
        _number(folder / "pids.events", "max") or 0,
    )


class GroupOfProcess:
    """The groups that a process is in, by whomever they were made."""

    def __init__(self, pid: int) -> None:
        """Find them; OSError if there is no such process."""
        mountinfo = Path("/proc/self/mountinfo").read_text("utf-8", errors="replace")
        text = Path(f"/proc/{pid}/cgroup").read_text("utf-8", errors="replace")
        self._folders = own_groups(text, cgroup_mounts(mountinfo))
        self._version = 1 if "memory" in self._folders else 2
        self._members = self._folders["pids" if self._version == 1 else ""] / "cgroup.procs"

    @property
    def name(self) -> str:
        """The name of the innermost, which tells whose it is."""
        return self._members.parent.name

    def counts(self) -> CgroupCounts:
        """What was counted until now; all zero when it is gone."""
        return (
            _counts_v1(self._folders) if self._version == 1 else _counts_v2(self._folders[""])
        )

    def processes(self) -> list[int]:
        """All in it, zombies too."""
        try:
            return [int(line) for line in self._members.read_text("utf-8").split()]
        except OSError:
            return []


class _GroupsV1:
    """The groups of one command, one for each controller."""

    prefix: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def __init__(self, folders: dict[str, Path], limits: ResourceLimits) -> None:
        self._folders = folders
        self._limits = limits
        made = []
        try:
            for folder in dict.fromkeys(folders.values()):
                folder.mkdir()
                made.append(folder)
            self._set()
        except OSError:
            for folder in made:
                folder.rmdir()
            raise

    def _set(self) -> None:
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
        counts = _counts_v1(self._folders)
        return ResourceUse(
            counts.cpu_s,
            (counts.peak_memory or 0) / MIB,
            tuple(limit_findings(counts.killed, counts.refused, self._limits)),
        )

    def release(self) -> None:
        for folder in dict.fromkeys(self._folders.values()):
            _remove(folder)


class CgroupsV1:
    """Control groups of version 1, where we may make some below our own."""

    name = "cgroup v1"

    def held_by(self, limits: ResourceLimits) -> HeldBy:
        """All by the kernel, if we may write to the three hierarchies."""
        own = _here()
        for controller in _CONTROLLERS_V1:
            if controller not in own or not os.access(own[controller], os.W_OK | os.X_OK):
                raise SandboxUnavailable(
                    f"the cgroup v1 hierarchy {controller!r} is not mounted or not writable"
                )
        return HeldBy(self.name, self.name, self.name)

    def hold(self, limits: ResourceLimits, folder: Path) -> _GroupsV1:
        """Make the groups of a command."""
        own = _here()
        groups: dict[str, Path] = {
            controller: own[controller] / folder.name
            for controller in (*_CONTROLLERS_V1, "cpuacct")
            if controller in own and os.access(own[controller], os.W_OK)
        }
        _note(folder, groups.values())
        return _GroupsV1(groups, limits)


class GroupV2:
    """The group of one command; its folder is there, by whomever it was made."""

    prefix: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def __init__(self, folder: Path, limits: ResourceLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._peak = 0

    def set(self) -> None:
        """Write the limits."""
        _write(self._folder / "memory.max", self._limits.memory_mb * MIB)
        if (self._folder / "memory.swap.max").exists():
            _write(self._folder / "memory.swap.max", 0)
        _write(self._folder / "pids.max", self._limits.processes + OWN_PROCESSES)
        quota = max(1000, round(self._limits.cpus * _PERIOD_US))
        _write(self._folder / "cpu.max", f"{quota} {_PERIOD_US}")

    def admit(self, pid: int) -> None:
        """Put the process into the group."""
        _write(self._folder / "cgroup.procs", pid)

    def check(self) -> TrialFinding | None:
        """Nothing but the memory it has, since older kernels do not keep the peak."""
        self._peak = max(self._peak, _number(self._folder / "memory.current") or 0)
        return None

    def usage(self) -> ResourceUse:
        """What the group counted."""
        counts = _counts_v2(self._folder)
        return ResourceUse(
            counts.cpu_s,
            (counts.peak_memory or self._peak) / MIB,
            tuple(limit_findings(counts.killed, counts.refused, self._limits)),
        )

    def release(self) -> None:
        """Remove it."""
        _remove(self._folder)


class CgroupsV2:
    """Control groups of version 2, where some group above ours lets us make more below it.

    A group with processes can have no limited ones below it, so ours is of no use unless it is
    the root of all; the nearest above it that is ours to write to is taken.
    """

    name = "cgroup v2"

    def held_by(self, limits: ResourceLimits) -> HeldBy:
        """All by the kernel, if there is such a group."""
        self._parent()
        return HeldBy(self.name, self.name, self.name)

    def hold(self, limits: ResourceLimits, folder: Path) -> GroupV2:
        """Make the group of a command."""
        made = self._parent() / folder.name
        _note(folder, [made])
        made.mkdir()
        group = GroupV2(made, limits)
        try:
            group.set()
        except OSError:
            made.rmdir()
            raise
        return group

    def _parent(self) -> Path:
        own = _here().get("")
        if own is None:
            raise SandboxUnavailable("cgroup v2 is not mounted")
        return limiting_group(own)


def limiting_group(own: Path) -> Path:
    """The nearest group above ours that can have limited ones below it; ours if it is the root.

    Raises:
        SandboxUnavailable: There is none that we may write to.
    """
    groups = [own]
    while (groups[-1].parent / "cgroup.procs").exists():
        groups.append(groups[-1].parent)
    for folder in groups[1:] or groups:
        if os.access(folder, os.W_OK) and _gives_limits(folder):
            return folder
    raise SandboxUnavailable(
        "no cgroup v2 group above ours is writable and has the controllers memory, pids and cpu"
    )


def _gives_limits(folder: Path) -> bool:
    wanted = {"memory", "pids", "cpu"}
    control = folder / "cgroup.subtree_control"
    try:
        missing = wanted - {*control.read_text("utf-8").split()}
        if missing:
            _write(control, " ".join(f"+{name}" for name in sorted(missing)))
    except OSError:
        return False
    return os.access(folder / "cgroup.procs", os.W_OK)

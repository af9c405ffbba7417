"""Limits by systemd scopes, and limits without control groups.

`Scopes` lets the user's service manager create the control group. `Watcher` uses rlimits, a
fixed CPU affinity and periodic checks. Between two checks a command can exceed a limit. Memory
that belongs to no process, such as an unattached System V segment, is not detected.
"""

import os
import platform
import re
import shutil
import signal
from itertools import count
from pathlib import Path
from typing import Final

from assay.errors import SandboxUnavailable
from assay.sandboxes.base import (
    MIB,
    OWN_PROCESSES,
    LimitMechanisms,
    ResourceLimits,
    ResourceUse,
    TrialFinding,
)
from assay.sandboxes.cgroups import GroupV2, cgroup_mounts, own_groups
from assay.sandboxes.host_checks import FILTERED_MACHINES
from assay.sandboxes.host_user import set_limits
from assay.sandboxes.procfs import (
    all_pids,
    cpu_seconds,
    descendants,
    proportional_memory,
    resident_memory,
    threads,
)

_numbers = count()


class _Scope:
    """The scope of one command, which ends with its last process."""

    refused: tuple[str, ...] = ()

    def __init__(self, systemd_run: str, limits: ResourceLimits, name: str) -> None:
        properties = {
            "MemoryMax": limits.memory_mb * MIB,
            "MemorySwapMax": 0,
            # In addition to those inside, the bubblewrap process that waits outside.
            "TasksMax": limits.processes + OWN_PROCESSES + 1,
            "CPUQuota": f"{max(1, round(limits.cpus * 100))}%",
        }
        self.prefix = (
            *(systemd_run, "--user", "--scope", "--quiet", "--collect", f"--unit={name}"),
            *(f"--property={key}={value}" for key, value in properties.items()),
            # The sandbox must not get the variables for reaching the service manager.
            *("--", "/usr/bin/env", "-i"),
        )
        self._limits = limits
        self._group: GroupV2 | None = None

    def admit(self, pid: int) -> None:
        mountinfo = Path("/proc/self/mountinfo").read_text("utf-8", errors="replace")
        groups = Path(f"/proc/{pid}/cgroup").read_text("utf-8", errors="replace")
        folder = own_groups(groups, cgroup_mounts(mountinfo)).get("")
        if folder is None or not _has_limits(folder):
            raise SandboxUnavailable(
                "systemd-run made a scope without these limits; delegate the "
                "controllers memory, pids and cpu to user@.service, see "
                "man systemd.resource-control"
            )
        self._group = GroupV2(folder, self._limits)

    def check(self) -> TrialFinding | None:
        return None

    def usage(self) -> ResourceUse:
        return ResourceUse() if self._group is None else self._group.usage()

    def release(self) -> None:
        """Do nothing: the service manager removes the scope."""


def _has_limits(group: Path) -> bool:
    files = [group / name for name in ("memory.max", "pids.max", "cpu.max")]
    return all(
        file.exists() and not file.read_text("utf-8").startswith("max") for file in files
    )


class Scopes:
    """One scope per command, with `systemd-run --user`."""

    name = "systemd scope"

    def describe(self, limits: ResourceLimits) -> LimitMechanisms:
        """Return this mechanism for all limits, if the user's service manager is running."""
        if shutil.which("systemd-run") is None:
            raise SandboxUnavailable("systemd-run is not installed")
        if "XDG_RUNTIME_DIR" not in os.environ:
            raise SandboxUnavailable("no service manager of this user runs (XDG_RUNTIME_DIR)")
        return LimitMechanisms(self.name, self.name, self.name)

    def prepare(self, limits: ResourceLimits, folder: Path) -> _Scope:
        """Prepare the scope of a command."""
        # The scope of the last command may still exist.
        unit = f"{folder.name}-{next(_numbers)}"
        return _Scope(shutil.which("systemd-run") or "systemd-run", limits, unit)


_turns = count()
"""Distributes sandboxes over the CPUs."""
_NPROC_PER_NAMESPACE: Final = (5, 14)
"""Since this kernel a user namespace counts only its own processes."""

_NEAR: Final = 0.9
"""RLIMIT_NPROC denies silently, so a command that uses this share of the limit is reported."""


class _Watched:
    """One command that is checked periodically."""

    prefix: tuple[str, ...] = ()
    refused: tuple[str, ...] = ("sched_setaffinity",)

    def __init__(self, limits: ResourceLimits) -> None:
        self._limits = limits
        self._root: int | None = None
        self._cpus = _choose_cpus(limits)
        self._peak = 0
        self._cpu_s = 0.0
        self._killed = 0
        self._most = 0

    def admit(self, pid: int) -> None:
        # Twice the limit, because unused allocations are allowed; this bounds how much a
        # process can take between two checks.
        limits = {"DATA": 2 * self._limits.memory_mb * MIB}
        if _kernel_version() >= _NPROC_PER_NAMESPACE:
            limits["NPROC"] = self._limits.processes + OWN_PROCESSES
        set_limits(pid, limits)
        os.sched_setaffinity(pid, self._cpus)
        self._root = pid

    def check(self) -> TrialFinding | None:
        if self._root is None:
            return None
        pids = descendants(self._root)
        self._count(pids)
        if self._most > self._limits.processes:
            return TrialFinding("process_limit", f"{self._describe_count()}; all were killed")
        self._check_memory(pids)
        self._cpu_s = max(self._cpu_s, cpu_seconds([self._root, *pids]))
        return None

    def _count(self, pids: list[int]) -> None:
        # Threads count, as in a control group; the supervisor does not.
        self._most = max(self._most, sum(len(threads(pid)) for pid in pids) - 1)

    def _describe_count(self) -> str:
        return f"{self._most} processes at once, where {self._limits.processes} are allowed"

    def _check_memory(self, pids: list[int]) -> None:
        limit = self._limits.memory_mb * MIB
        used = {pid: resident_memory(pid) for pid in pids}
        if sum(used.values()) > limit:
            # Memory shared by forked processes was counted for each of them.
            used = {pid: proportional_memory(pid) for pid in pids}
        self._peak = max(self._peak, sum(used.values()))
        if sum(used.values()) <= limit:
            return
        self._killed += _kill(max(used, key=lambda pid: used[pid]))

    def usage(self) -> ResourceUse:
        if self._root is not None:
            pids = descendants(self._root)
            # More processes may remain at the end than any check has seen.
            self._count(pids)
            self._cpu_s = max(self._cpu_s, cpu_seconds([self._root, *pids]))
        findings = []
        if self._killed:
            text = f"{self._killed} of its processes were killed at the limit of "
            findings.append(TrialFinding("memory_limit", f"{text}{self._limits.memory_mb} MB"))
        if _NEAR * self._limits.processes <= self._most <= self._limits.processes:
            findings.append(TrialFinding("process_limit", self._describe_count()))
        return ResourceUse(self._cpu_s, self._peak / MIB, tuple(findings))

    def release(self) -> None:
        """Do nothing: no resources were created."""


class Watcher:
    """Rlimits and periodic checks; works wherever /proc exists."""

    name = "watcher"

    def describe(self, limits: ResourceLimits) -> LimitMechanisms:
        """Name the mechanisms; fractions of a CPU cannot be enforced."""
        cpus = len(os.sched_getaffinity(0))
        if limits.cpus < cpus and limits.cpus != int(limits.cpus):
            raise SandboxUnavailable(
                f"a limit of {limits.cpus:g} CPUs cannot be held without control groups; ask "
                "for a whole number of CPUs"
            )
        if platform.machine() not in FILTERED_MACHINES:
            raise SandboxUnavailable(
                f"without control groups nothing holds CPUs on {platform.machine()}"
            )
        return LimitMechanisms(
            "watcher and RLIMIT_DATA", "watcher and RLIMIT_NPROC", "CPU affinity and seccomp"
        )

    def prepare(self, limits: ResourceLimits, folder: Path) -> _Watched:
        """Prepare the checks of a command."""
        return _Watched(limits)


def _kill(pid: int) -> bool:
    """Kill a process of a sandbox, unless its pid was reused outside."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if len(all_pids(pid)) < 2:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _choose_cpus(limits: ResourceLimits) -> set[int]:
    available = sorted(os.sched_getaffinity(0))
    wanted = min(len(available), max(1, int(limits.cpus)))
    first = next(_turns) * wanted
    return {available[(first + offset) % len(available)] for offset in range(wanted)}


def _kernel_version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])

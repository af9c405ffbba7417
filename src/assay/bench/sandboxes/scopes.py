"""Limits by a scope of systemd: the user's own service manager makes the control group."""

import os
import shutil
from itertools import count
from pathlib import Path

from assay.bench.sandboxes.base import ResourceLimits, TrialFinding
from assay.bench.sandboxes.cgroups import GroupV2, cgroup_mounts, own_groups
from assay.bench.sandboxes.limits import MIB, OWN_PROCESSES, HeldBy, ResourceUse
from assay.errors import SandboxUnavailable

__all__ = ["Scopes"]

_numbers = count()


class _Scope:
    """The scope of one command; it is gone when its last process is."""

    refused: tuple[str, ...] = ()

    def __init__(self, systemd_run: str, limits: ResourceLimits, name: str) -> None:
        properties = {
            "MemoryMax": limits.memory_mb * MIB,
            "MemorySwapMax": 0,
            # Beside those inside, the process of bubblewrap that waits outside.
            "TasksMax": limits.processes + OWN_PROCESSES + 1,
            "CPUQuota": f"{max(1, round(limits.cpus * 100))}%",
        }
        self.prefix = (
            *(systemd_run, "--user", "--scope", "--quiet", "--collect", f"--unit={name}"),
            *(f"--property={key}={value}" for key, value in properties.items()),
            # What it needs to reach the service manager is not for the sandbox.
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
        """Nothing: the service manager removes it."""


def _has_limits(group: Path) -> bool:
    files = [group / name for name in ("memory.max", "pids.max", "cpu.max")]
    return all(
        file.exists() and not file.read_text("utf-8").startswith("max") for file in files
    )


class Scopes:
    """A scope for each command, by `systemd-run --user`."""

    name = "systemd scope"

    def held_by(self, limits: ResourceLimits) -> HeldBy:
        """All by the kernel, if a service manager of the user runs."""
        if shutil.which("systemd-run") is None:
            raise SandboxUnavailable("systemd-run is not installed")
        if "XDG_RUNTIME_DIR" not in os.environ:
            raise SandboxUnavailable("no service manager of this user runs (XDG_RUNTIME_DIR)")
        return HeldBy(self.name, self.name, self.name)

    def hold(self, limits: ResourceLimits, folder: Path) -> _Scope:
        """Get ready for the scope of a command."""
        # The scope of the last command may not be gone yet.
        unit = f"{folder.name}-{next(_numbers)}"
        return _Scope(shutil.which("systemd-run") or "systemd-run", limits, unit)

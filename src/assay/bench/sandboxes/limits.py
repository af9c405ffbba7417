"""How limits on memory, processes and CPUs are held: the seam of the mechanisms.

A mechanism holds all three or is not used. Disk is watched by the sandbox itself, and the
network is a matter of namespaces.
"""

from pathlib import Path
from typing import NamedTuple, Protocol

from assay.bench.sandboxes.base import ResourceLimits, TrialFinding

__all__ = ["MIB", "OWN_PROCESSES", "HeldBy", "Hold", "Mechanism", "ResourceUse"]

MIB = 2**20
OWN_PROCESSES = 2
"""Processes of the sandbox itself that its limit would count: its init, and the supervisor."""


class HeldBy(NamedTuple):
    """By what each is held, in words for the record."""

    memory: str
    processes: str
    cpus: str


class ResourceUse(NamedTuple):
    """What a command used, as far as its mechanism tells."""

    cpu_s: float | None = None
    """None if it does not count it."""
    peak_memory_mb: float = 0.0
    findings: tuple[TrialFinding, ...] = ()


class Hold(Protocol):
    """The limits on one command."""

    prefix: tuple[str, ...]
    """What stands before the command line of the sandbox."""
    refused: tuple[str, ...]
    """System calls that the command may not make, beside those that no sandbox may."""

    def admit(self, pid: int) -> None:
        """Hold this process, and all that it will start. It waits meanwhile."""
        ...

    def check(self) -> TrialFinding | None:
        """Look at it while it runs; what is found ends the command."""
        ...

    def usage(self) -> ResourceUse:
        """What it used until now; the last call is before its processes are killed."""
        ...

    def release(self) -> None:
        """Its processes are dead: leave nothing behind."""
        ...


class Mechanism(Protocol):
    """One way to hold limits."""

    name: str

    def held_by(self, limits: ResourceLimits) -> HeldBy:
        """In words; SandboxUnavailable if it cannot hold one of these."""
        ...

    def hold(self, limits: ResourceLimits, folder: Path) -> Hold:
        """Get ready for one command of a sandbox, which alone has this folder."""
        ...

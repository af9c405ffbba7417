"""Interfaces of sandboxes: specification, limits, commands, backends, images, mechanisms.

A sandbox runs commands that can access only what they were given. A mechanism enforces the
limits on memory, processes and CPUs: all three, or it is not used. The sandbox itself monitors
the disk, and namespaces isolate the network. This module opens no file and starts no process.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

REPOSITORY = "/app/repo"
"""Path of the repository in a sandbox; commands start there."""
PROGRAM = "/opt/agent"
"""Path in a sandbox of the files of an agent that is a program."""
SHARED = "/run/assay"
"""Path in a sandbox of the folder that such an agent shares with assay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Resource limits of a sandbox."""

    cpus: float = 1.0
    memory_mb: int = 2048
    processes: int = 256
    disk_mb: int = 1024
    """How much it may write."""
    network: tuple[str, ...] = ()
    """Hosts reachable through its HTTP(S) proxy: `public`, or hosts named by the user."""


class TrialFinding(NamedTuple):
    """A fact that matters for a score: an attack that was contained, a limit that was hit."""

    name: str
    """For example `left_processes`, `memory_limit`, `test_runner_shadowed`."""
    detail: str


class Mount(NamedTuple):
    """A file or folder of this machine in a sandbox."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """Content of a sandbox; it has nothing else of this machine."""

    mounts: tuple[Mount, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """All environment variables of its commands."""
    workdir: str = REPOSITORY
    """Working directory of commands; empty for that of the image."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    image: str | None = None
    """A file system from `ImageBackend.build`, of which commands change a copy; None for the
    programs of this machine, read-only."""
    layer: Path | None = None
    """A tar file from `ImageSandbox.export`, unpacked over the image at the start."""
    disk: Path | None = None
    """A file system of the allowed size that contains all writable mounts and the sandbox's own
    writable folders. None if a watcher counts the written bytes."""
    user: str | None = None
    """User or uid in the image that runs commands; None for the user of the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecipe:
    """Input of an image build; an image is rebuilt only if this content changes."""

    context: Path
    """Folder that the Dockerfile copies from."""
    dockerfile: str = "Dockerfile"
    """Path relative to the context."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Values of its ARG instructions."""
    base_images: Mapping[str, str] = field(default_factory=dict)
    """Replacements of FROM names: an image of the engine, or a folder or tar file with a file
    system."""
    network: bool = False
    """Whether RUN instructions have network access."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command to run until it ends."""

    argv: tuple[str, ...]
    timeout_s: float
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to those of the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """Result of a command; all its processes are dead."""

    exit_code: int | None
    """None if it was killed by assay."""
    output: bytes
    """Standard output and error combined; the middle of long output is missing."""
    seconds: float
    timed_out: bool = False
    cpu_s: float = 0.0
    peak_memory_mb: float = 0.0
    findings: tuple[TrialFinding, ...] = ()
    """Limits hit, processes left behind, connections refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """How a sandbox enforces its limits on this machine, for the record."""

    backend: str
    memory: str
    processes: str
    cpus: str
    disk: str
    network: str
    self_test: str = ""
    """Result of `sandboxes.self_test`; empty in old records."""


class Sandbox(Protocol):
    """A place where commands run one after another on the same files."""

    enforcement: Enforcement

    async def run(self, command: Command) -> CommandEnd:
        """Run a command; when it returns or is cancelled, all its processes are dead."""
        ...


class SandboxBackend(Protocol):
    """Creates sandboxes: bubblewrap, Docker, Modal, none, or a custom backend."""

    name: str

    def enforcement(self, limits: ResourceLimits) -> Enforcement:
        """Describe how the limits are enforced; raise SandboxUnavailable if one cannot be."""
        ...

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """Open a sandbox; on exit, its processes are dead and its mounts are gone."""
        ...


class ImageSandbox(Sandbox, Protocol):
    """A sandbox on an image, whose changes can be exported."""

    async def export(self, target: Path, *, exclude: Sequence[str] = ()) -> None:
        """Write all files that differ from the image to a tar file, without mounts.

        Deleted files are empty files `.wh.NAME`, as in image layers.

        Args:
            target: The tar file.
            exclude: Absolute paths that are left out, with everything below them.
        """
        ...


class ImageBackend(SandboxBackend, Protocol):
    """A backend whose sandboxes can start from an image and be exported."""

    async def build(self, recipe: ImageRecipe) -> str:
        """Build an image unless one with the same content exists; return its name.

        Raises:
            UsageError: An instruction or a base image is not supported.
            SandboxUnavailable: A RUN instruction failed; with the end of its output.
        """
        ...


MIB = 2**20
OWN_PROCESSES = 2
"""Processes of the sandbox itself that its limit would count: init and supervisor."""


class LimitMechanisms(NamedTuple):
    """Names of the mechanisms that enforce each limit, for the record."""

    memory: str
    processes: str
    cpus: str


class ResourceUse(NamedTuple):
    """Resources a command used, as far as the mechanism can measure."""

    cpu_s: float | None = None
    """None if it is not measured."""
    peak_memory_mb: float = 0.0
    findings: tuple[TrialFinding, ...] = ()


class CommandLimits(Protocol):
    """The limits on one command."""

    prefix: tuple[str, ...]
    """Prefix of the sandbox's command line."""
    refused: tuple[str, ...]
    """System calls denied to the command, in addition to those denied in every sandbox."""

    def admit(self, pid: int) -> None:
        """Apply the limits to a process, which is waiting, and to all its descendants."""
        ...

    def check(self) -> TrialFinding | None:
        """Check the running command; a finding ends it."""
        ...

    def usage(self) -> ResourceUse:
        """Return the resources used so far; last called before the processes are killed."""
        ...

    def release(self) -> None:
        """Clean up after the processes are dead."""
        ...


class Mechanism(Protocol):
    """A way to enforce limits."""

    name: str

    def describe(self, limits: ResourceLimits) -> LimitMechanisms:
        """Name the mechanism of each limit; raise SandboxUnavailable if there is none."""
        ...

    def prepare(self, limits: ResourceLimits, folder: Path) -> CommandLimits:
        """Prepare the limits of one command; its sandbox alone uses this folder."""
        ...

"""The interfaces of sandboxes: specification, limits, commands, backends and images.

A sandbox runs commands that reach nothing but what they were given. A mechanism holds the
limits on memory, processes and CPUs, all three or none; disk is watched by the sandbox itself,
and the network is a matter of namespaces. Nothing here opens a file or starts a process.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

REPOSITORY = "/app/repo"
"""Where a sandbox has the repository; commands start there."""
PROGRAM = "/opt/agent"
"""Where a sandbox has the files of an agent that is a program."""
SHARED = "/run/assay"
"""Where a sandbox has the folder that such an agent shares with what starts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """What a sandbox may use."""

    cpus: float = 1.0
    memory_mb: int = 2048
    processes: int = 256
    disk_mb: int = 1024
    """What it may write."""
    network: tuple[str, ...] = ()
    """Where its HTTP(S) proxy leads: `public`, or hosts that the user named; empty for none."""


class TrialFinding(NamedTuple):
    """Something a reader of a score should know: an attack that was contained, a limit hit."""

    name: str
    """Such as `left_processes`, `memory_limit`, `test_runner_shadowed`."""
    detail: str


class Mount(NamedTuple):
    """A file or folder of this machine that a sandbox has."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a sandbox is made of; everything else of this machine is not in it."""

    mounts: tuple[Mount, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """All variables that its commands have."""
    workdir: str = REPOSITORY
    """Where commands start; empty for where the image says."""
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    image: str | None = None
    """A file system that `ImageBackend.build` has made, which commands change in a copy of
    their own; None for the programs of this machine, to read."""
    layer: Path | None = None
    """A tar file of `ImageSandbox.export`, unpacked over the image before anything runs."""
    disk: Path | None = None
    """A file system that all writable mounts lie on, as large as the limit allows; the sandbox
    has its own writable folders there. None if a watcher is to count what is written."""
    user: str | None = None
    """Who runs commands, a name or a number of the image; None for whom the image names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRecipe:
    """What an image is built from: its content alone decides whether it is built anew."""

    context: Path
    """The folder that the Dockerfile copies from."""
    dockerfile: str = "Dockerfile"
    """Its path below the context."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Values of its ARG."""
    base_images: Mapping[str, str] = field(default_factory=dict)
    """By the name after FROM, what stands for it here: an image of the engine, or a folder or
    tar file with a file system."""
    network: bool = False
    """Whether RUN reaches one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command to run to its end."""

    argv: tuple[str, ...]
    timeout_s: float
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those of the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How a command ended; none of its processes is alive any more."""

    exit_code: int | None
    """None if it was killed by us."""
    output: bytes
    """Standard output and errors together; a long one lacks its middle."""
    seconds: float
    timed_out: bool = False
    cpu_s: float = 0.0
    peak_memory_mb: float = 0.0
    findings: tuple[TrialFinding, ...] = ()
    """Limits that it hit, processes it left behind, connections that were refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """By what a sandbox holds its limits on this machine, for the record."""

    backend: str
    memory: str
    processes: str
    cpus: str
    disk: str
    network: str
    self_test: str = ""
    """What `sandboxes.self_test` saw; empty in records from before there was one."""


class Sandbox(Protocol):
    """A place where commands run one after another, on the same files."""

    enforcement: Enforcement

    async def run(self, command: Command) -> CommandEnd:
        """Run a command; when it returns, or is cancelled, nothing of it is alive."""
        ...


class SandboxBackend(Protocol):
    """Makes sandboxes: bubblewrap, Docker, none, or one of the user's own."""

    name: str

    def enforcement(self, limits: ResourceLimits) -> Enforcement:
        """How these limits would be held here; SandboxUnavailable if one cannot be."""
        ...

    def open(self, spec: SandboxSpec) -> AbstractAsyncContextManager[Sandbox]:
        """A sandbox; when it is left, nothing of it is alive or mounted."""
        ...


class ImageSandbox(Sandbox, Protocol):
    """A sandbox on an image, of which one can keep what was changed."""

    async def export(self, target: Path, *, exclude: Sequence[str] = ()) -> None:
        """Write all files that differ from the image to a tar file, mounts left out.

        What was deleted is an empty file `.wh.NAME` there, as in the layers of images.

        Args:
            target: The tar file.
            exclude: Absolute paths that are left out, with all below them.
        """
        ...


class ImageBackend(SandboxBackend, Protocol):
    """A backend whose sandboxes can start from an image; those sandboxes can be exported."""

    async def build(self, recipe: ImageRecipe) -> str:
        """Build an image, unless there is one of the same content; its name for `SandboxSpec`.

        Raises:
            UsageError: An instruction or a base image cannot be honoured here.
            SandboxUnavailable: A RUN failed; with the end of what it printed.
        """
        ...


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

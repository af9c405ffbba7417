"""The seams of coding benchmarks: tasks, sandboxes, coding agents and grades.

A task is loaded once and never changed. A sandbox runs commands that reach nothing but what
they were given. A coder works in a sandbox on a copy of the repository. A grade is what a patch
came to in a fresh sandbox. Nothing here opens a file or starts a process.
"""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from assay.types import ChatReply, Encoded, Message

__all__ = [
    "APP",
    "NOTHING_ALLOWED",
    "PROGRAM",
    "REPOSITORY",
    "SHARED",
    "Allowed",
    "Coder",
    "CoderEnd",
    "CoderStop",
    "CodingJob",
    "CodingOutcome",
    "CodingTask",
    "Command",
    "CommandEnd",
    "Enforcement",
    "Grade",
    "GradingMode",
    "ImageBackend",
    "ImageRecipe",
    "ImageSandbox",
    "MetricsScript",
    "Mount",
    "Patch",
    "RepoSource",
    "ResourceLimits",
    "Rubric",
    "RubricScore",
    "Sandbox",
    "SandboxBackend",
    "SandboxSpec",
    "TestReport",
    "TestScript",
    "TrialFinding",
]

APP = "/app"
"""Where a sandbox has the overlay files of a task."""
REPOSITORY = "/app/repo"
"""Where a sandbox has the repository; commands start there."""
PROGRAM = "/opt/agent"
"""Where it has the files of an agent that is a program."""
SHARED = "/run/assay"
"""Where it has the folder that such an agent shares with what starts it."""


# Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """One thing that a solution is scored by."""

    id: str
    criterion: str
    weight: float = 1.0
    evaluation_criteria: tuple[str, ...] = ()
    """What a judge is to look for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScript:
    """A hidden test: a pytest file, or a shell script (`.sh`) that must exit with 0."""

    path: str
    rubric_id: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsScript:
    """A script of the task's own, which writes its metrics to `$ASSAY_RESULT`."""

    path: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoSource:
    """Where the repository of a task comes from.

    `git_url` is an address, a path of a local repository or of a git bundle; without it the
    folder `repo/` of the task holds the files themselves.
    """

    git_url: str | None = None
    branch: str | None = None
    start_commit: str | None = None
    end_commit: str | None = None
    subdir: str | None = None
    """The folder of it that the task is about; the rest is not there."""
    sparse_checkout: tuple[str, ...] = ()
    """Paths or wildcards of what is there, from the top of the repository; empty for all."""
    origin: str | None = None
    """Where it came from before it was stored with the task, for the record."""
    allowed: tuple[str, ...] = ()
    """Paths outside of the task's folder that the user lets it read."""


class Allowed(NamedTuple):
    """What of this machine the user lets tasks read, beside their own folders."""

    repos: tuple[str, ...] = ()
    """Paths of repositories and bundles that `git_url` may name."""
    variables: tuple[str, ...] = ()
    """Names of variables that `${NAME}` may stand for."""


NOTHING_ALLOWED = Allowed()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingTask:
    """One task, as its folder and its overrides say together."""

    folder: Path
    task_id: str
    title: str
    instructions: str
    repo: RepoSource
    tags: tuple[str, ...] = ()
    rubrics: tuple[Rubric, ...] = ()
    test_scripts: tuple[TestScript, ...] = ()
    metrics_script: MetricsScript | None = None
    evaluation_files: Mapping[str, bytes] = field(default_factory=dict)
    """Hidden files that the scripts may read, by their paths in those scripts' folder."""
    overlay_files: Mapping[str, bytes] = field(default_factory=dict)
    """Files beside the repository, by their paths below `APP`."""
    overlay_repo_files: Mapping[str, bytes] = field(default_factory=dict)
    """Files put into the repository before anybody works on it."""
    remove_repo_paths: tuple[str, ...] = ()
    """What is taken out of it first; shell wildcards are allowed."""
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    """By the names of `ResourceLimits`, what the task asks for."""
    reference_patch: bytes | None = None
    checksum: str = ""
    """A hash of all of it, repository included."""

    @property
    def has_reference(self) -> bool:
        """Whether the agent `oracle` can solve it."""
        return self.reference_patch is not None

    @property
    def asks_network(self) -> bool:
        """Whether it asks for a network, which only the user can give."""
        return bool(self.limits.get("network"))


class TrialFinding(NamedTuple):
    """Something a reader of a score should know: an attack that was contained, a limit hit."""

    name: str
    """Such as `left_processes`, `memory_limit`, `test_runner_shadowed`."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """What an agent changed, as a binary git diff against the start."""

    diff: bytes
    files: tuple[str, ...] = ()
    """Paths that it touches, old and new."""
    findings: tuple[TrialFinding, ...] = ()


# Sandboxes


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


# Coding agents


class CoderStop(StrEnum):
    """Why a coding agent stopped."""

    COMPLETED = "completed"
    FAILED = "agent_failed"
    """It ended with an error of its own."""
    TIME_LIMIT = "agent_timeout"
    TOKEN_LIMIT = "token_limit"
    COST_LIMIT = "cost_limit"
    TURN_LIMIT = "turn_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoderEnd:
    """How a coding agent ended."""

    stop: CoderStop
    notes: str = ""
    """Its last message."""
    log: bytes = b""
    cpu_s: float = 0.0
    peak_memory_mb: float = 0.0
    findings: tuple[TrialFinding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingJob:
    """What a coding agent is given."""

    task: CodingTask
    sandbox: Sandbox
    timeout_s: float
    """For all of it."""
    ask: Callable[[Sequence[Message], Encoded], Awaitable[ChatReply]] | None = None
    """Asks the model of the arm, and writes the call down; None for agents without a model."""
    acted: Callable[[str, str], Awaitable[None]]
    """Writes down one thing that was done: what it was, and what came of it."""
    spent: Callable[[], CoderStop | None] = lambda: None
    """The limit of tokens or dollars that is used up, if one is."""
    max_turns: int = 100
    shared: Path | None = None
    """A folder that the sandbox can read at `SHARED`; for agents that are programs."""
    workdir: str = REPOSITORY
    """Where commands start."""
    solution: str | None = None
    """A script in the sandbox that solves the task, where that is no patch."""
    python: str = sys.executable
    """A Python that the sandbox has."""


class Coder(Protocol):
    """A coding agent: works on the repository of a sandbox until it thinks it is done."""

    name: str
    needs_model: bool
    program: Path | None
    """The folder of a program, which its sandbox can read at `PROGRAM`; None if it is none."""

    async def work(self, job: CodingJob) -> CoderEnd:
        """Solve the task, or try to."""
        ...


# Grades


class CodingOutcome(StrEnum):
    """What a trial came to. All of them count in every mean; there is no other way out."""

    SOLVED = "solved"
    """Every test passed, and every rubric has its full score."""
    PARTLY = "partly_solved"
    UNSOLVED = "unsolved"
    """Tests ran, and none that counts passed."""
    EMPTY_PATCH = "empty_patch"
    PATCH_REJECTED = "patch_does_not_apply"
    TESTS_DID_NOT_RUN = "tests_did_not_run"
    TESTS_SKIPPED = "tests_skipped"
    TAMPERED = "tampered"
    """What reports results was manipulated; the score is 0."""
    GRADING_TIMEOUT = "grading_timeout"
    REWARDS_DISAGREE = "rewards_disagree"
    """The verifier of a Harbor task left two rewards that are not the same."""


class GradingMode(StrEnum):
    """Whether the code of an agent could reach the process of its tests."""

    SEPARATE = "separate"
    """Every script started it as a program, which the kernel kept from tests and grader."""
    IN_PROCESS = "in-process"
    """Some script loaded it into its own process, or nothing was kept from what it started."""


class TestReport(NamedTuple):
    """How one hidden test ended."""

    script: str
    name: str
    status: str
    """passed, failed, error, skipped, missing."""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricScore:
    """What one rubric came to."""

    rubric: Rubric
    score: float | None
    """From 0 to 1; None if neither a test nor a judge scores it."""
    by: str = ""
    """tests or judge."""
    test_count: int = 0
    tests_passed: int = 0
    votes: tuple[float, ...] = ()
    """Of a judge."""
    agreement: float | None = None
    """The share of pairs of votes that agree."""
    reasoning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """What a patch came to."""

    outcome: CodingOutcome
    total_score: float
    rubrics: tuple[RubricScore, ...] = ()
    tests: tuple[TestReport, ...] = ()
    standard_metrics: Mapping[str, float] = field(default_factory=dict)
    custom_metrics: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[TrialFinding, ...] = ()
    seconds: float = 0.0
    log: str = ""
    mode: GradingMode | None = None
    """None where no test was run, and in grades of an earlier assay."""

"""The interfaces of coding benchmarks: tasks, coding agents and grades.

A task is loaded once and never changed. A coder works in a sandbox on a copy of the
repository. A grade is the result of a patch in a fresh sandbox. Nothing here opens a file or
starts a process.

Where what can be made again is kept: installed agents, built images.
"""

import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from platformdirs import user_cache_path

from assay.sandboxes.base import REPOSITORY, Sandbox, TrialFinding
from assay.types import ChatReply, Encoded, Message

APP = "/app"
"""Where a sandbox has the overlay files of a task."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """What an agent changed, as a binary git diff against the start."""

    diff: bytes
    files: tuple[str, ...] = ()
    """Paths that it touches, old and new."""
    findings: tuple[TrialFinding, ...] = ()


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
    needs_model: bool = False
    runs_inside: bool = False
    """Whether it runs in the sandbox as a whole, and calls its model through the proxy."""
    program: Path | None = None
    """The folder of an installed program, which its sandbox can read at `PROGRAM`."""

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


def cache_folder() -> Path:
    """`$ASSAY_CACHE_DIR`, or the folder of this user."""
    chosen = os.environ.get("ASSAY_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else user_cache_path("assay")

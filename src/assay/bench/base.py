"""Interfaces of coding benchmarks: tasks, coding agents and grades.

A task is loaded once and never changed. A coder works in a sandbox on a copy of the repository.
A grade is the result of a patch in a fresh sandbox. This module opens no file and starts no
process.
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
"""Path of a task's overlay files in a sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """A criterion that solutions are scored by."""

    id: str
    criterion: str
    weight: float = 1.0
    evaluation_criteria: tuple[str, ...] = ()
    """Details for the judge to check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestScript:
    """A hidden test: a pytest file, or a shell script (`.sh`) that must exit with 0."""

    path: str
    rubric_id: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsScript:
    """A script of the task that writes its metrics to `$ASSAY_RESULT`."""

    path: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoSource:
    """Source of a task's repository.

    `git_url` is a URL, or the path of a local repository or git bundle; without it, the folder
    `repo/` of the task contains the files.
    """

    git_url: str | None = None
    branch: str | None = None
    start_commit: str | None = None
    end_commit: str | None = None
    subdir: str | None = None
    """The only folder of the repository that is used, if one is given."""
    sparse_checkout: tuple[str, ...] = ()
    """Paths or wildcards to include, from the top of the repository; empty includes all."""
    origin: str | None = None
    """Its source before it was stored with the task, for the record."""
    allowed: tuple[str, ...] = ()
    """Paths outside the task folder that the user allows it to read."""


class Allowed(NamedTuple):
    """Data of this machine, outside their own folders, that the user lets tasks read."""

    repos: tuple[str, ...] = ()
    """Paths of repositories and bundles allowed in `git_url`."""
    variables: tuple[str, ...] = ()
    """Names of environment variables allowed in `${NAME}`."""


NOTHING_ALLOWED = Allowed()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingTask:
    """One task, with its overrides applied."""

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
    """Hidden files for the scripts, by path relative to the folder of the scripts."""
    overlay_files: Mapping[str, bytes] = field(default_factory=dict)
    """Files next to the repository, by path below `APP`."""
    overlay_repo_files: Mapping[str, bytes] = field(default_factory=dict)
    """Files added to the repository before the agent starts."""
    remove_repo_paths: tuple[str, ...] = ()
    """Paths removed from the repository before that; shell wildcards are allowed."""
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    """Limits the task requests, by the field names of `ResourceLimits`."""
    reference_patch: bytes | None = None
    checksum: str = ""
    """Hash of the whole task, including its repository."""

    @property
    def has_reference(self) -> bool:
        """Whether the agent `oracle` can solve the task."""
        return self.reference_patch is not None

    @property
    def asks_network(self) -> bool:
        """Whether the task requests network access, which only the user can grant."""
        return bool(self.limits.get("network"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Changes made by an agent, as a binary git diff against the start."""

    diff: bytes
    files: tuple[str, ...] = ()
    """Old and new paths of the changed files."""
    findings: tuple[TrialFinding, ...] = ()


class AgentStop(StrEnum):
    """Reason why a coding agent stopped."""

    COMPLETED = "completed"
    FAILED = "agent_failed"
    """It raised an error or exited with one."""
    TIME_LIMIT = "agent_timeout"
    TOKEN_LIMIT = "token_limit"
    COST_LIMIT = "cost_limit"
    TURN_LIMIT = "turn_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """Result of a coding agent's work."""

    stop: AgentStop
    notes: str = ""
    """Its last message."""
    log: bytes = b""
    cpu_s: float = 0.0
    peak_memory_mb: float = 0.0
    findings: tuple[TrialFinding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingJob:
    """Input of a coding agent."""

    task: CodingTask
    sandbox: Sandbox
    timeout_s: float
    """Time limit of the whole job."""
    call_model: Callable[[Sequence[Message], Encoded], Awaitable[ChatReply]] | None = None
    """Calls the arm's model and records the call; None for agents without a model."""
    record_action: Callable[[str, str], Awaitable[None]]
    """Records an action and its result."""
    find_reached_limit: Callable[[], AgentStop | None] = lambda: None
    """Returns the token or cost limit that is used up, or None."""
    max_turns: int = 100
    shared: Path | None = None
    """Folder that the sandbox can read at `SHARED`; for agents that are programs."""
    workdir: str = REPOSITORY
    """Folder that commands start in."""
    solution: str | None = None
    """Command in the sandbox that solves the task, for tasks whose solution is not a patch."""
    python: str = sys.executable
    """Python interpreter in the sandbox."""


class CodingAgent(Protocol):
    """A coding agent: works on the repository in a sandbox until it considers the task done."""

    name: str
    needs_model: bool = False
    runs_inside: bool = False
    """Whether all of it runs in the sandbox and calls its model through the proxy."""
    program: Path | None = None
    """Folder of an installed program, which the sandbox can read at `PROGRAM`."""

    async def work(self, job: CodingJob) -> AgentResult:
        """Try to solve the task."""
        ...


class CodingOutcome(StrEnum):
    """Result of a graded trial. Trials with any of these outcomes count in every mean."""

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
    """The reporting of results was manipulated; the score is 0."""
    GRADING_TIMEOUT = "grading_timeout"
    REWARDS_DISAGREE = "rewards_disagree"
    """The verifier of a Harbor task left two different rewards."""


class GradingMode(StrEnum):
    """Whether the agent's code could reach the process that runs the tests."""

    SEPARATE = "separate"
    """Every script ran the code as a program, isolated from tests and grader by the kernel."""
    IN_PROCESS = "in-process"
    """A script loaded the code into its own process, or its programs were not isolated."""


class TestReport(NamedTuple):
    """Result of one hidden test."""

    script: str
    name: str
    status: str
    """One of passed, failed, error, skipped, missing."""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricScore:
    """Score of one rubric."""

    rubric: Rubric
    score: float | None
    """From 0 to 1; None if neither a test nor a judge scores it."""
    by: str = ""
    """Either tests or judge."""
    test_count: int = 0
    tests_passed: int = 0
    votes: tuple[float, ...] = ()
    """Scores given by the judge."""
    agreement: float | None = None
    """Proportion of pairs of votes that agree."""
    reasoning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """Result of grading a patch."""

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
    """None if no test was run, and in grades from earlier versions of assay."""


def get_cache_folder() -> Path:
    """Return the folder for installed agents and built images, which can be made again.

    It is `$ASSAY_CACHE_DIR`, or the user's cache folder.
    """
    folder = os.environ.get("ASSAY_CACHE_DIR")
    return Path(folder).expanduser() if folder else user_cache_path("assay")

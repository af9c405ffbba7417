"""The interface every layout of coding tasks implements.

A layout decides how a task is checked before a run, how an attempt at it is made, and how the
work of an agent is graded. `task_layouts.py` has the two layouts, and chooses by the folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Protocol

from assay.bench.base import CodingTask, Grade
from assay.bench.config import BenchConfig, TaskEntry
from assay.bench.grading.llm_judge import Judge
from assay.bench.manifest import TrialResult
from assay.bench.trial_files import CodingResult
from assay.runs.engine import Context
from assay.sandboxes.base import ResourceLimits, SandboxBackend
from assay.store.recorder import Recorder
from assay.types import ChatModel, TrialState

PYTHON: Final = "python3"
"""The Python of an image, for agents that run in the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImages:
    """Base images for image builds, and whether a build has network access."""

    names: Mapping[str, str]
    """A folder, a tar file or an image of the engine, by the name after FROM."""
    network: bool = False

    @classmethod
    def parse(cls, pairs: Sequence[str], *, network: bool) -> "BaseImages":
        """Parse the user's NAME=LOCAL pairs."""
        return cls(names=dict(pair.split("=", 1) for pair in pairs), network=network)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSetup:
    """Sandbox settings for working on a task or grading it."""

    backend: SandboxBackend
    images: BaseImages
    folder: Path
    """Folder for intermediate files; the caller removes it."""
    limits: ResourceLimits
    timeout_s: float
    """Time limit of one grading."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the agent's sandbox, in addition to those of the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSetup:
    """Everything an attempt at a trial uses except its task."""

    entry: TaskEntry
    config: BenchConfig
    backend: SandboxBackend
    planned: TrialResult
    recorder: Recorder
    context: Context
    models: Mapping[str, ChatModel]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheck:
    """Result of one check of a task."""

    name: str
    passed: bool
    detail: str


class TaskAttempt(Protocol):
    """One attempt at a trial."""

    async def run(self) -> CodingResult:
        """Run the agent, unless it has ended before, and grade its work."""
        ...

    def make_failed_result(self, state: TrialState, error: Exception) -> TrialResult:
        """Return the manifest entry of a trial that ended without a grade."""
        ...


class RunnableTask(Protocol):
    """A coding task in either layout."""

    reference_file: ClassVar[str]
    """Path of the reference solution in the task folder."""
    idle_solutions: ClassVar[tuple[str, ...]]
    """Names of solutions that must score 0, for `grade_solution`."""

    @property
    def definition(self) -> CodingTask:
        """Content of the task's files."""
        ...

    @property
    def image(self) -> str | None:
        """Description of the image that its sandboxes start from; None if they need none."""
        ...

    def check_runnable(
        self, backend: SandboxBackend, images: BaseImages, *, judged: bool
    ) -> None:
        """Raise UsageError if the task cannot run or be graded here; start nothing."""
        ...

    async def has_python(self, settings: SandboxSetup) -> bool:
        """Return whether the agent's sandbox has Python; build its image, if it has one."""
        ...

    def start_attempt(self, setup: TrialSetup) -> TaskAttempt:
        """Return an attempt at one trial of the task."""
        ...

    async def grade(self, run_dir: Path, settings: SandboxSetup, judge: Judge | None) -> Grade:
        """Grade the work that an agent left in its trial folder."""
        ...

    async def grade_solution(self, name: str | None, settings: SandboxSetup) -> Grade:
        """Grade one of `idle_solutions`, or the reference solution if `name` is None."""
        ...

    async def check_hidden_files(self, settings: SandboxSetup) -> TaskCheck:
        """Check that tests and solution cannot be read from inside an agent's sandbox."""
        ...

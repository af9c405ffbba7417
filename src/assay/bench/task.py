"""The interface every layout of coding tasks implements.

A layout decides how a task is checked before a run, how one attempt at it is made, and how what
an agent left is graded. `task_layouts.py` has the two layouts, and chooses by the folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Protocol

from assay.bench.base import CodingTask, Grade
from assay.bench.config import BenchConfig, TaskEntry
from assay.bench.grading.llm_judge import Judge
from assay.bench.manifest import TrialResult
from assay.bench.trial_files import CodingEnd
from assay.runs.engine import Context
from assay.sandboxes.base import ResourceLimits, SandboxBackend
from assay.store.recorder import Recorder
from assay.types import ChatModel, TrialState

PYTHON: Final = "python3"
"""The Python of an image, for agents that run inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseImages:
    """What images are built over, and whether a build reaches the network."""

    names: Mapping[str, str]
    """By the name after FROM, a folder, a tar file or an image of the engine."""
    network: bool = False

    @classmethod
    def of(cls, pairs: Sequence[str], *, network: bool) -> "BaseImages":
        """From what a user writes, each as NAME=LOCAL."""
        return cls(names=dict(pair.split("=", 1) for pair in pairs), network=network)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Where and within which limits a task is worked on or graded."""

    backend: SandboxBackend
    images: BaseImages
    folder: Path
    """For intermediate files; removed by the caller."""
    limits: ResourceLimits
    timeout_s: float
    """For one grading."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the agent's sandbox, beside those of the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSetup:
    """Everything that one attempt at a trial uses, beside its task."""

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


class Attempt(Protocol):
    """One attempt at a trial."""

    async def run(self) -> CodingEnd:
        """Let the agent work, unless it has ended before, and grade what it left."""
        ...

    def failed(self, state: TrialState, error: Exception) -> TrialResult:
        """Return the trial as the manifest has it when it ended without a grade."""
        ...


class Task(Protocol):
    """A coding task, in whichever layout its folder has."""

    reference_file: ClassVar[str]
    """Where the folder of the task has its reference solution."""
    idle_solutions: ClassVar[tuple[str, ...]]
    """Solutions that must score 0, for `grade_solution`."""

    @property
    def definition(self) -> CodingTask:
        """What the files of the task say."""
        ...

    @property
    def image(self) -> str | None:
        """The image that its sandboxes start from, in words; None if they need none."""
        ...

    def check_runnable(
        self, backend: SandboxBackend, images: BaseImages, *, judged: bool
    ) -> None:
        """Raise UsageError if the task cannot run or be graded here; starts nothing."""
        ...

    async def has_python(self, place: Workplace) -> bool:
        """Return whether the agent's sandbox has a Python; builds its image, if it has one."""
        ...

    def start_attempt(self, setup: TrialSetup) -> Attempt:
        """Return an attempt at one trial of the task."""
        ...

    async def grade(self, run_dir: Path, place: Workplace, judge: Judge | None) -> Grade:
        """Grade what an agent left in the folder of its trial."""
        ...

    async def grade_solution(self, name: str | None, place: Workplace) -> Grade:
        """Grade one of `idle_solutions`, or the reference solution for None."""
        ...

    async def check_hidden_files(self, place: Workplace) -> TaskCheck:
        """Look for tests and solution from inside of the sandbox that an agent would have."""
        ...

"""Options of benchmark commands, in addition to the settings of a run (`config.py`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from assay.core.options import Option
from assay.runs.options import read_model_map

_GRADING = Option(given=Literal["separate", "in-process"])


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReplacements:
    """What holds for every task of a benchmark, whatever its file says."""

    agent: str | None = None
    """Who works on every task, whatever the file says; see 'assay bench agents', or
    my_agent.py:MyAgent for a class in a file."""
    sandbox: str | None = None
    """Where every task runs, whatever the file says: bubblewrap, docker, modal, none, or
    mine.py:Class."""
    model_map: Annotated[
        Mapping[str, str] | None,
        Option(given=tuple[str, ...], read=read_model_map, repeated=True),
    ] = None
    """Replace a model by another, as OLD=NEW. May be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOptions:
    """How a benchmark is summed up."""

    baseline: Annotated[str | None, Option(without="the first arm")] = None
    """The arm that the others are compared with."""
    min_effect: float | None = None
    """The smallest difference in mean score that matters to you."""
    grading: Annotated[str | None, _GRADING] = None
    """Count only tasks that were graded so: "separate" if the code under test could not reach
    its tests."""
    level: float = 0.95
    """The confidence level of the intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutComparisonOptions:
    """How rollouts are compared."""

    min_effect: float | None = None
    """The smallest difference in mean score that matters to you."""
    grading: Annotated[str | None, _GRADING] = None
    """Compare only tasks that were graded so: "separate" if the code under test could not reach
    its tests."""
    level: float = 0.95
    """The confidence level, for all verdicts together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegradeOptions:
    """How trials of a rollout are graded after their run."""

    latest: bool = False
    """Take the latest rollout, as a name alone does."""
    judge: Annotated[str | None, Option(without="that of the run")] = None
    """The model that scores rubrics without tests."""
    budget: float | None = None
    """The most dollars that the judge may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTaskOptions:
    """What a task that is captured from commits says."""

    title: Annotated[str | None, Option(without="the subject of the end commit")] = None
    """What people call it."""
    instructions: Annotated[str | None, Option(without="the messages of the commits")] = None
    """What the agent is asked to do."""
    subdir: str | None = None
    """The folder of the repository that the task is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheckOptions:
    """How a task is checked."""

    tries: int = 3
    """How often the reference solution is graded."""
    overrides: Annotated[Path | None, Option(without="the overrides.json of the task")] = None
    """Overrides to apply."""
    sandbox: Annotated[str | None, Option(without="bubblewrap")] = None
    """Where it is graded."""
    build_network: bool = False
    """Let the building of an image reach the network."""
    allow_network: Annotated[tuple[str, ...], Option(repeated=True)] = ()
    """Where a task that asks for a network may connect, by an HTTP(S) proxy: public, HOST or
    HOST:PORT. May be repeated."""

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
    """Values that apply to every task of a benchmark and override its file."""

    agent: str | None = None
    """Agent for every task, overriding the file: a name (see 'assay bench agents'), or
    my_agent.py:MyAgent for a class in a file."""
    sandbox: str | None = None
    """Sandbox for every task, overriding the file: bubblewrap, docker, modal, none, or
    mine.py:Class."""
    model_map: Annotated[
        Mapping[str, str] | None,
        Option(given=tuple[str, ...], read=read_model_map, repeated=True),
    ] = None
    """Replace a model with another, as OLD=NEW. May be repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSummaryOptions:
    """Options of a benchmark summary."""

    baseline: Annotated[str | None, Option(without="the first arm")] = None
    """Arm that the others are compared with."""
    min_effect: float | None = None
    """Smallest difference in mean score that matters."""
    grading: Annotated[str | None, _GRADING] = None
    """Include only tasks graded in this way: "separate" means that the code under test could
    not access its tests."""
    level: float = 0.95
    """Confidence level of the intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutComparisonOptions:
    """Options of a comparison of rollouts."""

    min_effect: float | None = None
    """Smallest difference in mean score that matters."""
    grading: Annotated[str | None, _GRADING] = None
    """Compare only tasks graded in this way: "separate" means that the code under test could
    not access its tests."""
    level: float = 0.95
    """Confidence level for all verdicts together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegradeOptions:
    """Options for grading trials after their run."""

    latest: bool = False
    """Use the latest rollout, the default if only a name is given."""
    judge: Annotated[str | None, Option(without="the judge of the run")] = None
    """Model that scores rubrics without tests."""
    budget: float | None = None
    """Maximum cost of the judge, in dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTaskOptions:
    """Texts of a task that is created from commits."""

    title: Annotated[str | None, Option(without="the subject of the end commit")] = None
    """Title of the task."""
    instructions: Annotated[str | None, Option(without="the commit messages")] = None
    """Instructions for the agent."""
    subdir: str | None = None
    """Folder of the repository to which the task is limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheckOptions:
    """Options for checking a task."""

    tries: int = 3
    """Number of times the reference solution is graded."""
    overrides: Annotated[Path | None, Option(without="the task's overrides.json")] = None
    """Overrides file to apply."""
    sandbox: Annotated[str | None, Option(without="bubblewrap")] = None
    """Sandbox for the grading."""
    build_network: bool = False
    """Allow network access while images are built."""
    allow_network: Annotated[tuple[str, ...], Option(repeated=True)] = ()
    """Destinations for a task that requests a network, through an HTTP(S) proxy: public, HOST
    or HOST:PORT. May be repeated."""

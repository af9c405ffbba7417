"""Interface between a run and its kind of trial.

A kind lists the trials of a run and executes one of them. The run does everything else:
journals, resume, storage, budget, interim analyses, results. A kind is pickled to worker
processes without its models, except built-in ones: workers call the models of the driver.

An arm is an entry of a run: a model or an agent with its settings. Each arm becomes one
experiment of the run, and one subject of its statistics.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from assay.runs.engine import Context
from assay.runs.plan import Plan, Trial
from assay.store.recorder import Recorder
from assay.store.records import RunRecord, SessionHeader, SessionRecord
from assay.store.run_folder import RunFolder
from assay.types import ChatModel

if TYPE_CHECKING:
    from assay.models.pool import ModelPool
    from assay.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An agent, its model if any, and the settings in which it differs from its run."""

    label: str
    """Name shown to users, unique within the run."""
    series: str
    """Name of the series that its experiments belong to."""
    model: str | None
    """Model name; None for an agent that calls no model."""
    agent: str | None = None
    """Path or name of a user-defined agent; None for the built-in agent."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that override those of the run, by name."""
    version: Mapping[str, Any] = field(default_factory=dict)
    """Everything that defines its version; any change creates a new version."""
    tags: Mapping[str, Any] = field(default_factory=dict)
    """Tags of its experiment."""
    is_compared: bool = True
    """Whether the user chose it; False for baselines that are added for reference."""


P = TypeVar("P")
C_co = TypeVar("C_co", bound="RunConfiguration", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnd:
    """Result of a finished trial; the value of its `TrialVerdict`."""

    stop_reason: str
    outcomes: Mapping[str, float] = field(default_factory=dict)
    """Metric values, as stored."""


class ProviderCapacity(NamedTuple):
    """Number of calls of an arm that may be in flight at its provider, or in this process."""

    name: str
    """Provider name; arms with the same provider share its capacity."""
    calls: Callable[[], int]
    """Returns the number of calls currently allowed."""


class TrialKind(ABC, Generic[P]):
    """One kind of trial: an episode, a coding task, a training run.

    Methods below `close` are called in the driver process only.
    """

    name: str
    models: Mapping[str, ChatModel]
    """Models by name. Those of providers always run in the driver process."""

    @abstractmethod
    def resumes(self, trial: Trial[P]) -> bool:
        """Return whether an interrupted trial continues; if not, it restarts."""

    @abstractmethod
    def plan(self, run: RunRecord) -> Plan[P]:
        """Return all trials of a run, one group per arm; every call returns an equal plan."""

    @abstractmethod
    def header(self, trial: Trial[P]) -> SessionHeader | SessionRecord:
        """Return the first records of a trial's journal: a header, optionally with given turns.

        An attempt replays given turns as if an earlier attempt had recorded them.
        """

    @abstractmethod
    async def attempt(self, trial: Trial[P], recorder: Recorder, context: Context) -> TrialEnd:
        """Execute a trial once, continuing from the end of the recorder's journal.

        Exceptions are classified by `assay.runs.control.classify`. The time that counts is
        added to `recorder.seconds`.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close everything that attempts have opened."""

    def capacities(
        self, run: "PreparedRun[Any]", pool: "ModelPool | None"
    ) -> Mapping[str, ProviderCapacity]:
        """Return the capacities that limit the open trials, by arm label."""
        return {}

    def on_stored(self, run: RunRecord, connection: Any) -> None:
        """Store additional data of newly stored trials; called in the writer thread."""

    def measure(
        self, store: "Store", experiment_ids: Sequence[str], on_message: Callable[[str], None]
    ) -> None:
        """Store additional outcomes after all trials have ended."""

    def analyse(self, result: Any) -> Mapping[str, Any]:
        """Return the aggregates of all trials for the results file, given a `RunResult`."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """Settings of a run that do not depend on its kind of trial."""

    database: Path
    max_open: int
    """Maximum number of open trials."""
    max_arms: int = 1
    """Maximum number of arms that run at the same time."""
    executor: str = "asyncio"
    """Executor of the trials: asyncio, processes or ray."""
    workers: int | None = None
    ray_address: str = "auto"
    traces_dir: Path | None = None
    """Folder for the files of the run; None if its kind writes its own."""
    save_traces: bool = False
    """Whether each trial gets a file."""
    save_detailed_results: bool = False
    """Whether the results file lists every trial."""
    until_decided: str | None = None
    """Metric that decides when to stop; None to run all trials."""
    min_effect: float | None = None
    """Smallest difference in that metric that matters."""
    less_is_better: bool = False


class RunConfiguration(Protocol):
    """Configuration of a run, such as `RunConfig`."""

    def make_run_settings(self) -> RunSettings:
        """Return the settings that the run itself uses."""
        ...


@dataclass(frozen=True, slots=True)
class PreparedRun(Generic[C_co]):
    """A configured run that has not started yet."""

    config: C_co
    record: RunRecord
    arms: tuple[Arm, ...]
    """Arms, in the order of the experiments in the record."""
    resumed: RunFolder | None
    """Folder of the run being resumed; None for a new run."""
    sources: Mapping[str, str]
    """Source of each setting's value, by setting name."""
    warnings: tuple[str, ...]
    allow_different: frozenset[str] = frozenset()
    """Names from `ALLOWED`: differences that are accepted on resume."""

    @property
    def settings(self) -> RunSettings:
        """Settings that the run itself uses."""
        return self.config.make_run_settings()

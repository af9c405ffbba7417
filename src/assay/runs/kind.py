"""What a kind of trial gives to a run, and what it gets for that.

A kind says which trials there are and how one is tried; journals, resume, storing, budget,
looks and results are the run's. A kind is light and picklable, but for its models: an executor
in another process gets it by pickle, and asks the models of the driver.

What plays in a run: each arm is an experiment of it, and a subject of statistics.
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
    """An agent, a model or none, and the settings in which it differs from its run."""

    label: str
    """What users call it; no other arm of the run has it."""
    series: str
    """What one follows over time."""
    model: str | None
    """Who is asked, by name; None for an agent that asks nobody."""
    agent: str | None = None
    """Where an agent of the user's own is, or what it is called; None for ours."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By name, what it has other than the run."""
    version: Mapping[str, Any] = field(default_factory=dict)
    """All that makes a version of it; a change makes a new one."""
    tags: Mapping[str, Any] = field(default_factory=dict)
    """Of its experiment."""
    is_compared: bool = True
    """Whether it was asked for; False for baselines that play beside."""


P = TypeVar("P")
C_co = TypeVar("C_co", bound="RunConfiguration", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnd:
    """What a trial that ended came to; the value of its verdict."""

    stop_reason: str
    outcomes: Mapping[str, float] = field(default_factory=dict)
    """What it earned, by metric; as stored."""


class ProviderCapacity(NamedTuple):
    """How many calls of an arm may be in flight at its provider, or in this process."""

    name: str
    """The provider; arms with the same one share its calls."""
    calls: Callable[[], int]
    """Returns how many calls are allowed now."""


class TrialKind(ABC, Generic[P]):
    """One kind of trial: an episode, a coding task, a training run.

    Methods below `close` are called in the driver process only.
    """

    name: str
    models: Mapping[str, ChatModel]
    """Models by name. They always run in the driver process."""

    @abstractmethod
    def resumes(self, trial: Trial[P]) -> bool:
        """Return whether an interrupted trial continues; if not, it restarts."""

    @abstractmethod
    def plan(self, run: RunRecord) -> Plan[P]:
        """Return all trials of a run, a group for each arm; the same ones each time."""

    @abstractmethod
    def header(self, trial: Trial[P]) -> SessionHeader | SessionRecord:
        """Return what the journal of a trial begins with: a header, or given turns as well.

        An attempt finds those turns recorded, as if an earlier one had made them.
        """

    @abstractmethod
    async def attempt(self, trial: Trial[P], recorder: Recorder, context: Context) -> TrialEnd:
        """Execute a trial once, from where the recorder's journal ends.

        What it raises is classified by `assay.runs.control.classify`. The time that counts is
        added to `recorder.seconds`.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close what attempts have opened."""

    def capacities(
        self, run: "PreparedRun[Any]", pool: "ModelPool | None"
    ) -> Mapping[str, ProviderCapacity]:
        """Return the capacities that bound the open trials of an arm, by its label."""
        return {}

    def on_stored(self, run: RunRecord, connection: Any) -> None:
        """Store more of trials that were just stored; called in the thread of the writer."""

    def measure(
        self, store: "Store", experiment_ids: Sequence[str], on_message: Callable[[str], None]
    ) -> None:
        """Store further outcomes of the trials, after all have ended."""

    def analyse(self, result: Any) -> Mapping[str, Any]:
        """Return what the results file holds of all trials together, for a `RunResult`."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What a run takes from its configuration, whatever its trials are."""

    database: Path
    max_open: int
    """Trials that are open at once, at most."""
    max_arms: int = 1
    """Arms that run at once, at most."""
    executor: str = "asyncio"
    """Where trials run: asyncio, processes or ray."""
    workers: int | None = None
    ray_address: str = "auto"
    traces_dir: Path | None = None
    """The folder for the files of the run; None if its kind writes its own."""
    save_traces: bool = False
    """Whether each trial gets a file."""
    save_detailed_results: bool = False
    """Whether the results file lists every trial."""
    until_decided: str | None = None
    """The outcome that decides when to stop; None to run all trials."""
    min_effect: float | None = None
    """The smallest difference in it that matters."""
    less_is_better: bool = False


class RunConfiguration(Protocol):
    """A configuration of a run, such as `RunConfig`."""

    def run_settings(self) -> RunSettings:
        """Return what the run itself takes from it."""
        ...


@dataclass(frozen=True, slots=True)
class PreparedRun(Generic[C_co]):
    """What a command means, before anything has started."""

    config: C_co
    record: RunRecord
    arms: tuple[Arm, ...]
    """Who plays, in the order of the experiments of the record."""
    resumed: RunFolder | None
    """The folder of the run that goes on; None for a new one."""
    sources: Mapping[str, str]
    """For each setting, who chose it."""
    warnings: tuple[str, ...]
    allow_different: frozenset[str] = frozenset()
    """What a resumed run may have otherwise than before; of `ALLOWED`."""

    @property
    def settings(self) -> RunSettings:
        """What the run itself takes from the configuration."""
        return self.config.run_settings()

"""Training runs as trials of a launch: its settings, its seeds, and the execution of one run.

The journal of a run lists its checkpoints; everything else is in the run's folder. A run that
was stopped, killed or lost resumes from its last checkpoint, without repeated steps in curves.
All attempts of a run, on any machine, need access to its folder.

The default seeds are a fixed list, so that two architectures are trained with the same ones.
"""

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from assay.core.aio import count_usable_cpus
from assay.core.canonical_json import canonical_json
from assay.core.settings import Configuration, Counts, Setting
from assay.core.values import ValueType, choice, label, path, text, value_type, whole
from assay.errors import UsageError
from assay.runs.control import Interrupted
from assay.runs.engine import Context
from assay.runs.kind import Arm, RunSettings, TrialEnd, TrialKind
from assay.runs.plan import Group, Plan, Trial
from assay.store.location import DATABASE_VARIABLE, DEFAULT_DATABASE
from assay.store.recorder import Recorder
from assay.store.records import PlayedRecord, RunRecord, SessionHeader
from assay.store.schema import StoredKind
from assay.store.training_runs import TrainingRun
from assay.store.training_tables import series_experiment
from assay.training.trainers import (
    CommandTrainer,
    PPOTrainer,
    RunProgress,
    TrainedSeed,
    Trainer,
)
from assay.types import ChatModel, TrialState

SEEDS: Final = (
    *(1072, 2043, 3014, 4085, 5156, 6227, 7298, 8369, 9440, 10511),
    *(11582, 12653, 13724, 14795, 15866, 16937, 18008, 19079, 20150, 21221),
    *(22292, 23363, 24434, 25505, 26576, 27647, 28718, 29789, 30860, 31931),
)
"""All default seeds; an extended set gets the next ones."""
DEFAULT_SEEDS: Final = 15
"""Default number of seeds of a launch."""
_MAX_SEED: Final = 2**31 - 1


def resolve_seeds(seeds: Sequence[int] = ()) -> tuple[int, ...]:
    """Resolve the seeds of a launch.

    Args:
        seeds: Empty for the first 15 of the list; one number up to 30 for that many of them; or
            the seeds themselves.

    Raises:
        UsageError: A seed is repeated or out of range, or the number of seeds is invalid.
    """
    if not seeds:
        return SEEDS[:DEFAULT_SEEDS]
    if len(seeds) == 1 and seeds[0] <= len(SEEDS):
        if seeds[0] < 1:
            raise UsageError(
                f"--seeds {seeds[0]} is not a valid number of seeds; give 1 to {len(SEEDS)}"
            )
        return SEEDS[: seeds[0]]
    for seed in seeds:
        if not 0 <= seed <= _MAX_SEED:
            raise UsageError(
                f"seed {seed} is not allowed; give whole numbers from 0 to {_MAX_SEED}"
            )
        if seeds.count(seed) > 1:
            raise UsageError(f"seed {seed} is given twice; give each run its own seed")
    return tuple(seeds)


NOTHING, RUN, SAMPLE, VERSION = Counts
_BYTES_PER_RUN: Final = 1 << 30
"""Memory in bytes assumed for one run on this machine."""


@value_type("a table of settings")
def _parse_table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError
    canonical_json(value)
    return dict(value)


@value_type("one or more whole numbers, each once", option=int, words="+")
def _parse_seeds(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(seed) is int for seed in value):
        raise ValueError
    return resolve_seeds([*value]) if len(value) != 1 else tuple(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig(Configuration):
    """Settings of a launch, which trains one configuration with several seeds."""

    base_run_name: str = Setting("", ValueType(str, "a name"), NOTHING, in_files=True).about(
        "Start of the run names"
    )
    architecture: str = Setting("vit_reset", label).about("Network architecture")
    curriculum: str = Setting("terrain_2", label).about("Distribution of training worlds")
    environment: str = Setting("crafter", label).about("Training environment")
    training: Mapping[str, Any] | None = Setting(None, _parse_table, in_files=True).about(
        "All settings of the built-in trainer except the seed; empty if a command trains"
    )
    command: str | None = Setting(None, text(100_000)).about(
        "Command of another trainer, with {seed} and {folder} in it"
    )
    seeds: tuple[int, ...] = Setting(SEEDS[:DEFAULT_SEEDS], _parse_seeds, SAMPLE).about(
        "Seeds, or the number of seeds from the fixed list"
    )
    parallel: int | None = Setting(
        None, whole(1, 1024), NOTHING, without="as many as fit this machine"
    ).about("Maximum number of runs at the same time")
    retries: int = Setting(2, ValueType(int, "a whole number of at least 0"), NOTHING).about(
        "Maximum number of retries of a run that ends early"
    )
    executor: str = Setting("processes", choice("processes", "ray"), NOTHING).about(
        "Where runs are executed: worker processes, or the nodes of a Ray cluster"
    )
    ray_address: str = Setting("auto", label, NOTHING).about("Head of the Ray cluster")
    folder: Path = Setting("training", path, NOTHING).about("Folder for the runs")
    database: Path = Setting(DEFAULT_DATABASE, path, NOTHING, variable=DATABASE_VARIABLE).about(
        "DuckDB file for curves"
    )
    extended_from: int = Setting(
        0, ValueType(int, "a whole number"), SAMPLE, in_files=True
    ).about("Number of runs in the set before it was extended")

    def complete(self) -> None:
        """Check that the names of runs are valid file names."""
        name = f"{self.base_run_name or 'x'}.{self.architecture}"
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or (
            not name.isascii() or len(name) > 76 or not name[0].isalnum()
        ):
            raise UsageError(
                f"{name!r} is not allowed as the name of runs; give at most 76 letters, "
                "digits, '-', '_' and '.', starting with a letter or digit"
            )

    @property
    def benchmark_folder(self) -> Path:
        """Folder of this launch."""
        return self.folder / self.base_run_name

    @property
    def threads(self) -> int:
        """CPUs that a run uses."""
        return int((self.training or {}).get("threads", 1))

    @property
    def max_parallel(self) -> int:
        """Number of runs at the same time."""
        if self.parallel is not None:
            return self.parallel
        if self.executor == "ray":
            return len(self.seeds)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        fitting = min(count_usable_cpus() // self.threads, memory // _BYTES_PER_RUN)
        return max(1, min(fitting, len(self.seeds)))

    @property
    def workers(self) -> int | None:
        """Number of worker processes; None for one per CPU of a cluster."""
        return self.parallel if self.executor == "ray" else self.max_parallel

    def make_run_settings(self) -> RunSettings:
        """Return the settings of the run engine; all planned runs are executed."""
        return RunSettings(
            database=self.database,
            max_open=self.max_parallel,
            executor=self.executor,
            workers=self.workers,
            ray_address=self.ray_address,
        )


def format_run_name(base: str, architecture: str, seed: int) -> str:
    """Return the name of a training run, in the database and as a folder."""
    return f"{base}.{architecture}.seed{seed}"


def make_trainer(config: LaunchConfig) -> Trainer:
    """Create the trainer of a launch."""
    if config.command is None:
        return PPOTrainer(config.training or {})
    return CommandTrainer(
        config.command, config.architecture, config.curriculum, config.environment
    )


def list_arms(config: LaunchConfig) -> tuple[Arm, ...]:
    """Return the arms of the run: only the architecture."""
    version = {
        name: config.stored()[name]
        for name in ("architecture", "curriculum", "environment", "training", "command")
    }
    series = config.base_run_name or "launch"
    return (Arm(label=config.architecture, series=series, model=None, version=version),)


def list_seeds(config: LaunchConfig, launch: str) -> tuple[TrainedSeed, ...]:
    """Return all runs of a launch, in the order of their seeds."""
    return tuple(
        TrainedSeed(
            format_run_name(config.base_run_name, config.architecture, seed),
            seed,
            index,
            launch,
        )
        for index, seed in enumerate(config.seeds)
    )


class TrainingKind(TrialKind[TrainedSeed]):
    """Trial kind of launches: one training run for each seed."""

    name = StoredKind.TRAINING.value

    def __init__(self, config: LaunchConfig, facts: Mapping[str, Any]) -> None:
        """Set the configuration, and the facts to store with every run."""
        self.models: Mapping[str, ChatModel] = {}
        self._config, self._facts = config, facts
        self.states: dict[str, TrialState] = {}
        """States of the stored runs, by name."""
        self._with_curves: set[str] = set()
        self._trainer = make_trainer(config)
        # Absolute, because attempts may have another working directory or run on another node.
        self._folder = config.benchmark_folder.absolute()

    def get_folder(self, run: TrainedSeed) -> Path:
        """Return the folder of a run."""
        return self._folder / run.run_id

    def get_log_path(self, run: TrainedSeed) -> Path:
        """Return the path of a run's log."""
        return self._folder / "logs" / f"{run.run_id}.log"

    def resumes(self, trial: Trial[TrainedSeed]) -> bool:
        """Return True: a run resumes from its last checkpoint."""
        return True

    def plan(self, run: RunRecord) -> Plan[TrainedSeed]:
        """Plan one group with all seeds."""
        label = self._config.architecture
        trials = [
            Trial(seed.run_id, label, seed.position, seed)
            for seed in list_seeds(self._config, run.id)
        ]
        return Plan((Group.of(label, trials),))

    def header(self, trial: Trial[TrainedSeed]) -> SessionHeader:
        """Return the first record of a run's journal."""
        run, config = trial.payload, self._config
        return SessionHeader(
            session_id=run.run_id,
            run_id=run.launch,
            experiment_id=series_experiment(config.base_run_name, config.architecture).id,
            subject=config.architecture,
            task=f"{config.environment}/{config.curriculum}",
            seed=run.seed,
            episode=run.position,
            created_at=time.time(),
            metadata={"folder": str(self.get_folder(run)), "log": str(self.get_log_path(run))},
            trial_kind=self.name,
        )

    async def attempt(
        self, trial: Trial[TrainedSeed], recorder: Recorder, context: Context
    ) -> TrialEnd:
        """Train to the end, from the last checkpoint if there is one."""
        run, loop = trial.payload, asyncio.get_running_loop()
        cancelled = threading.Event()
        progress_recorder = _ProgressRecorder(recorder, context)
        folder, log = self.get_folder(run), self.get_log_path(run)
        log.parent.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()

        def on_progress(progress: RunProgress) -> None:
            loop.call_soon_threadsafe(progress_recorder.record, progress)

        work = asyncio.ensure_future(
            asyncio.to_thread(
                self._trainer.train,
                run,
                folder,
                log,
                on_progress,
                lambda: cancelled.is_set() or context.stopping,
            )
        )
        try:
            steps = await asyncio.shield(work)
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.wait([work])
            raise
        finally:
            recorder.seconds += time.monotonic() - started
        if steps is None:
            raise Interrupted("stopped on request; a resume continues from the last checkpoint")
        await recorder.wait_until_written()
        return TrialEnd(stop_reason="trained")

    def on_stored(self, run: RunRecord, connection: Any) -> None:
        """Store the curves of stored runs that lack them."""
        from assay.store.queries import committed_sessions
        from assay.store.training_tables import write_training_runs

        self.states.update(committed_sessions(connection, run.id))
        for seed in list_seeds(self._config, run.id):
            state = self.states.get(seed.run_id)
            if state is not None and seed.run_id not in self._with_curves:
                write_training_runs(connection, [self._load_run(seed, state)], swap=True)
                if state is not TrialState.INFRASTRUCTURE:
                    self._with_curves.add(seed.run_id)

    def _load_run(self, run: TrainedSeed, state: TrialState) -> TrainingRun:
        ended = state is TrialState.RESULT
        loaded = self._trainer.load_run(run, self.get_folder(run), ended=ended)
        return replace(
            loaded,
            series=self._config.base_run_name,
            provenance={**loaded.provenance, **self._facts},
        )

    async def close(self) -> None:
        """Do nothing: no resources are held between runs."""


class _ProgressRecorder:
    """Records each new checkpoint of a run in its journal, and forwards the progress."""

    def __init__(self, recorder: Recorder, context: Context) -> None:
        self._recorder, self._context = recorder, context
        self._checkpoint: str | None = None
        self._turn = 1
        while recorder.has_turn(self._turn):
            self._turn += 1

    def record(self, progress: RunProgress) -> None:
        if progress.checkpoint not in (None, self._checkpoint):
            self._checkpoint = progress.checkpoint
            self._recorder.add_played(
                PlayedRecord(turn=self._turn, at=time.time(), asked=(str(progress.checkpoint),))
            )
            self._turn += 1
        # If a listener raised, the engine is stopping all trials already.
        with suppress(Interrupted):
            self._context.report_progress(progress)

"""The training run as a kind of trial: its journal names the checkpoints, its files the rest.

A run that was stopped, killed or lost resumes from its last checkpoint; curves have no step
twice. The folder must be the same wherever its attempts run.
"""

import asyncio
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.experiments.curves import series_experiment
from assay.experiments.training import TrainingRun
from assay.runs import Arm, TrialEnd
from assay.traces.recorder import Recorder
from assay.traces.records import PlayedRecord, RunRecord, SessionHeader
from assay.traces.schema import StoredKind
from assay.trials import Context, Group, Interrupted, Plan, Trial
from assay.types import ChatModel, TrialState

from .config import LaunchConfig, run_name
from .trainers import CommandTrainer, PPOTrainer, RunProgress, TrainedSeed, Trainer

__all__ = ["TrainingKind", "arms_of", "seeds_of", "trainer_of"]


def trainer_of(config: LaunchConfig) -> Trainer:
    """Who trains."""
    if config.command is None:
        return PPOTrainer(config.training or {})
    return CommandTrainer(
        config.command, config.architecture, config.curriculum, config.environment
    )


def arms_of(config: LaunchConfig) -> tuple[Arm, ...]:
    """The architecture; there is one."""
    version = {
        name: config.stored()[name]
        for name in ("architecture", "curriculum", "environment", "training", "command")
    }
    series = config.base_run_name or "launch"
    return (Arm(label=config.architecture, series=series, model=None, version=version),)


def seeds_of(config: LaunchConfig, launch: str) -> tuple[TrainedSeed, ...]:
    """Every run of a launch, in the order of its seeds."""
    return tuple(
        TrainedSeed(
            run_name(config.base_run_name, config.architecture, seed), seed, index, launch
        )
        for index, seed in enumerate(config.seeds)
    )


class TrainingKind:
    """One training run for each seed."""

    name = StoredKind.TRAINING.value

    def __init__(self, config: LaunchConfig, facts: Mapping[str, Any]) -> None:
        """Say what is launched, and what all its runs have in common, to be stored."""
        self.models: Mapping[str, ChatModel] = {}
        self._config, self._facts = config, facts
        self._trainer = trainer_of(config)
        # Attempts may run in another folder, or on another node.
        self._place = config.place.absolute()

    def folder(self, run: TrainedSeed) -> Path:
        """Where a run is kept."""
        return self._place / run.run_id

    def log(self, run: TrainedSeed) -> Path:
        """What a run has said."""
        return self._place / "logs" / f"{run.run_id}.log"

    def resumes(self, trial: Trial[TrainedSeed]) -> bool:
        """From its last checkpoint."""
        return True

    def plan(self, run: RunRecord) -> Plan[TrainedSeed]:
        """A group of all seeds."""
        label = self._config.architecture
        trials = [
            Trial(seed.run_id, label, seed.place, seed)
            for seed in seeds_of(self._config, run.id)
        ]
        return Plan((Group.of(label, trials),))

    def header(self, trial: Trial[TrainedSeed]) -> SessionHeader:
        """What the journal of a run begins with."""
        run, config = trial.payload, self._config
        return SessionHeader(
            session_id=run.run_id,
            run_id=run.launch,
            experiment_id=series_experiment(config.base_run_name, config.architecture).id,
            subject=config.architecture,
            task=f"{config.environment}/{config.curriculum}",
            seed=run.seed,
            episode=run.place,
            created_at=time.time(),
            metadata={"folder": str(self.folder(run)), "log": str(self.log(run))},
            trial_kind=self.name,
        )

    async def attempt(
        self, trial: Trial[TrainedSeed], recorder: Recorder, context: Context
    ) -> TrialEnd:
        """Train, or resume, until the end."""
        run, loop = trial.payload, asyncio.get_running_loop()
        cancelled = threading.Event()
        notes = _Notes(recorder, context)
        folder, log = self.folder(run), self.log(run)
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()

        def tell(progress: RunProgress) -> None:
            loop.call_soon_threadsafe(notes.take, progress)

        work = asyncio.ensure_future(
            asyncio.to_thread(
                self._trainer.train,
                run,
                folder,
                log,
                tell,
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
            recorder.seconds += time.monotonic() - began
        if steps is None:
            raise Interrupted("asked to stop; resume begins at its last checkpoint")
        await recorder.kept()
        return TrialEnd(stop_reason="trained")

    def recorded(self, run: TrainedSeed, state: TrialState) -> TrainingRun:
        """A run that has ended, as the store has it."""
        ended = state is TrialState.RESULT
        told = self._trainer.recorded(run, self.folder(run), ended=ended)
        return replace(
            told,
            series=self._config.base_run_name,
            provenance={**told.provenance, **self._facts},
        )

    async def close(self) -> None:
        """Nothing is held open between runs."""


class _Notes:
    """Writes down each new checkpoint of a run, and hands on how far it is."""

    def __init__(self, recorder: Recorder, context: Context) -> None:
        self._recorder, self._context = recorder, context
        self._checkpoint: str | None = None
        self._turn = 1
        while recorder.knows(self._turn):
            self._turn += 1

    def take(self, progress: RunProgress) -> None:
        if progress.checkpoint not in (None, self._checkpoint):
            self._checkpoint = progress.checkpoint
            self._recorder.add_played(
                PlayedRecord(turn=self._turn, at=time.time(), asked=(str(progress.checkpoint),))
            )
            self._turn += 1
        # The engine knows already if its listener raised, and asks all to leave.
        with suppress(Interrupted):
            self._context.progress(progress)

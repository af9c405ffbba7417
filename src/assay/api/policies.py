"""Training of policies; their learning curves are stored in the database during training."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.errors import UsageError
from assay.runs.configuration import COMMAND_LINE, resolve
from assay.store.opening import Where, store_at

if TYPE_CHECKING:
    from assay.stats.intervals import Interval
    from assay.training.config import TrainingConfig
    from assay.training.training_loop import TrainingEnd, TrainingProgress

_SCORE_SEED = 0
"""Seed of the random draws for the interval of a score."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Configuration and folder of a training run that has not started."""

    config: "TrainingConfig"
    sources: Mapping[str, str]
    """Source of each setting's value."""
    folder: Path
    done: int
    """Number of steps already completed in that folder."""

    @property
    def run_id(self) -> str:
        """Id of the run in the database."""
        return self.folder.resolve().name


class HeldOutResult(NamedTuple):
    """Result of a policy on held-out worlds, and of random actions in the same worlds."""

    metric: str
    policy: "Interval"
    random: "Interval"

    @property
    def ratio(self) -> float | None:
        """Policy mean divided by random mean; None if the random mean is not positive."""
        return self.policy.point / self.random.point if self.random.point > 0 else None


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """Result of a training run that ended or was stopped."""

    plan: TrainingPlan
    end: "TrainingEnd"
    worlds: int
    """Number of held-out worlds played; 0 before the first evaluation."""
    evaluated: tuple[HeldOutResult, ...]


def plan_training(
    config: Path | str | None = None,
    *,
    folder: Path | str | None = None,
    resume: Path | str | None = None,
    source: str = COMMAND_LINE,
    **settings: Any,
) -> TrainingPlan:
    """Plan a training run; nothing is started, and torch is not needed.

    Args:
        config: TOML file with [training], [ppo], [evaluation] and [machine].
        folder: Folder of the run; default: below training/, with a name made of its settings.
        resume: Folder of a run to resume; its settings apply, except those of the machine.
        source: Source of the settings, for messages.
        **settings: Values by the names of `TrainingConfig`.

    Raises:
        UsageError: A setting is invalid, or there is no run to resume.
    """
    from assay.training.config import TrainingConfig
    from assay.training.folder import TrainingFolder

    if resume is not None and (config is not None or folder is not None):
        raise UsageError(
            "--resume uses the settings and folder of its run; omit the file and --folder"
        )
    stored = None
    if resume is not None:
        stored = TrainingFolder(Path(resume)).read_config().stored()
    resolved = resolve(
        TrainingConfig,
        settings,
        None if config is None else Path(config),
        source=source,
        stored=stored,
    )
    path = resume or folder or Path("training") / resolved.config.name
    run = TrainingFolder(Path(path))
    done = run.read_status()["step"] if run.path.exists() else 0
    return TrainingPlan(resolved.config, resolved.sources, run.path, done)


def train(
    config: Path | str | None = None,
    *,
    folder: Path | str | None = None,
    resume: Path | str | None = None,
    database: Where = None,
    watch: "Callable[[TrainingProgress], None]" = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> TrainingResult:
    """Train a policy, or resume training in its folder, and store its learning curves.

    Settings have the names of `TrainingConfig`: architecture, curriculum, seed, total_steps and
    so on. Repeating the call resumes a run that was stopped or killed, with the same curve.

    Args:
        config: TOML file; arguments override it.
        folder: Folder of the run; default: below training/, with a name made of its settings.
        resume: Folder of a run to resume.
        database: Database to write to.
        watch: Called after each update.
        stop: Called after each update; if it returns True, a checkpoint is written and training
            ends.
        **settings: Values by the names of `TrainingConfig`.
    """
    plan = plan_training(config, folder=folder, resume=resume, source="assay.train", **settings)
    return train_planned(plan, database=database, watch=watch, stop=stop)


def train_planned(
    plan: TrainingPlan,
    *,
    database: Where = None,
    watch: "Callable[[TrainingProgress], None]" = lambda progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> TrainingResult:
    """Execute a training plan; see `train`."""
    from assay.training.config import require_training_packages

    require_training_packages(plan.config.wandb, plan.config.environment)
    from assay.training.training_loop import log_progress_to_wandb
    from assay.training.training_loop import train as train_in_folder

    store = store_at(database)

    def on_progress(progress: "TrainingProgress") -> None:
        log(progress)
        if progress.checkpoint is not None and progress.step < progress.total:
            _store_curves(plan, store)
        watch(progress)

    with log_progress_to_wandb(plan.config, plan.folder) as log:
        end = train_in_folder(plan.config, plan.folder, watch=on_progress, stop=stop)
    _store_curves(plan, store)
    return TrainingResult(plan, end, *_read_evaluation(plan.folder))


def _store_curves(plan: TrainingPlan, store: Any) -> None:
    from assay.store.training_tables import write_training_runs
    from assay.training.folder import read_training_run

    series = f"{plan.config.curriculum}.{plan.config.architecture}"
    run = read_training_run(plan.folder, name=plan.run_id, series=series)
    with store.writing() as connection:
        write_training_runs(connection, [run], swap=True)


def _read_evaluation(folder: Path) -> tuple[int, tuple[HeldOutResult, ...]]:
    """Return the last evaluation of a run, with intervals."""
    import numpy as np

    from assay.stats.intervals import mean_interval
    from assay.stats.score import crafter_score_interval

    path = folder / "evaluation.json"
    if not path.exists():
        return 0, ()
    evaluation = json.loads(path.read_bytes())
    sides = [evaluation[side] for side in ("policy", "random")]
    values = {
        "reward": [[episode["reward"] for episode in side] for side in sides],
        "achievements": [[sum(episode["reached"]) for episode in side] for side in sides],
        "steps": [[episode["length"] for episode in side] for side in sides],
    }
    results = [
        HeldOutResult(metric, mean_interval(policy), mean_interval(random))
        for metric, (policy, random) in values.items()
    ]
    scores = [
        crafter_score_interval(
            [episode["reached"] for episode in side], rng=np.random.default_rng(_SCORE_SEED)
        ).interval
        for side in sides
    ]
    return len(evaluation["policy"]), (*results, HeldOutResult("score", *scores))

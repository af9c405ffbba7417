"""Hyperparameter search: trials one after another, then the winner on seeds not used before.

The folder of a sweep contains `sweep.json` (the plan), `optuna.log` (Optuna's journal),
`results.json` and a folder for each run. Running the same plan in the same folder resumes it:
trials that ended are kept, and an interrupted one is run again in its folder. The options of a
trial are determined by the plan, its number and the trials before it, so that an interrupted
search gives the same result.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.core.canonical_json import derive_id
from assay.core.files import atomic_write
from assay.core.options import takes_options
from assay.core.text import format_install_command
from assay.errors import UsageError
from assay.stats.intervals import Interval, mean_interval
from assay.stats.learning_curves import DEFAULT_PERCENT, auc
from assay.store.opening import Where, store_at
from assay.store.training_runs import Curve, TrainingRun, TrainingStatus
from assay.training.sweep_space import (
    Choices,
    Pruner,
    Sampler,
    SweepOptions,
    SweepPlan,
    read_space,
)
from assay.training.trainers import Trained, TrialTrainer

if TYPE_CHECKING:
    import optuna

_PLAN_FILE, _RESULTS_FILE, _JOURNAL_FILE = "sweep.json", "results.json", "optuna.log"
_STUDY_NAME = "sweep"
_FOLDER_ATTRIBUTE = "folder"
"""User attribute of an Optuna trial with the name of its folder."""


@dataclass(frozen=True, slots=True)
class SweepTrial:
    """One run of a sweep."""

    folder: str
    """Folder name, within the folder of the sweep."""
    options: Mapping[str, Any]
    """Chosen options."""
    seed: int
    state: str
    """"complete", "pruned" or "failed"."""
    value: float | None
    """AUC of the last quarter of its curve; None if it did not complete."""
    steps: int
    note: str | None = None


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Result of a sweep."""

    plan: SweepPlan
    name: str
    trials: tuple[SweepTrial, ...]
    winner: SweepTrial | None
    """The best completed trial."""
    fresh: tuple[SweepTrial, ...]
    """Runs of the winner on fresh seeds."""

    @property
    def fresh_mean(self) -> Interval | None:
        """Mean on fresh seeds with its 95 % interval; None with fewer than two runs."""
        values = [trial.value for trial in self.fresh if trial.value is not None]
        return mean_interval(values, level=0.95) if len(values) > 1 else None

    @property
    def steps(self) -> int:
        """Training steps used by the search."""
        return sum(trial.steps for trial in self.trials)


def require_optuna() -> None:
    """Raise UsageError if Optuna is not installed."""
    from importlib.util import find_spec

    if find_spec("optuna") is None:
        raise UsageError(
            "a sweep needs optuna, not installed here; install with: "
            f"{format_install_command('train')}; or print only the plan with --dry-run"
        )


def search(
    plan: SweepPlan,
    folder: Path,
    trainer: TrialTrainer,
    *,
    record: Callable[[TrainingRun], None] = lambda run: None,
    watch: Callable[[SweepTrial], None] = lambda trial: None,
) -> SweepResult:
    """Run a sweep in a folder, or resume the one that is there.

    `record` is called with the training run of each trial and each fresh seed, and `watch` with
    each trial as it ends.

    Raises:
        UsageError: The folder contains another sweep, or Optuna is missing.
    """
    require_optuna()
    _write_or_check_plan(plan, folder)
    sweep = _SweepRunner(plan, folder, trainer, record, watch)
    sweep.run_trials()
    return sweep.run_fresh()


def _write_or_check_plan(plan: SweepPlan, folder: Path) -> None:
    """Write the plan, or check that it equals the one in the folder."""
    content = json.loads(json.dumps(plan.as_dict()))
    path = folder / _PLAN_FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(path, json.dumps(content, indent=2).encode() + b"\n")
        return
    stored = json.loads(path.read_text("utf-8"))
    if differing := [name for name in content if stored.get(name) != content[name]]:
        raise UsageError(
            f"{str(folder)!r} contains a sweep with a different {', '.join(differing)}; resume "
            "it with its original settings, or name another --folder"
        )


class _SweepRunner:
    def __init__(
        self,
        plan: SweepPlan,
        folder: Path,
        trainer: TrialTrainer,
        record: Callable[[TrainingRun], None],
        watch: Callable[[SweepTrial], None],
    ) -> None:
        self._plan, self._folder, self._trainer = plan, folder, trainer
        self._record, self._watch = record, watch
        self._trials, self._fresh = _read_results(folder / _RESULTS_FILE)
        self._journal = _open_journal(plan, folder / _JOURNAL_FILE)
        self._study = _make_study(plan)
        self._interrupted: dict[str, dict[str, Any]] = {}
        self._restore_trials()

    def _restore_trials(self) -> None:
        """Add the finished trials in Optuna's journal to the study in memory."""
        from optuna.trial import TrialState

        unmatched = {
            trial.user_attrs.get(_FOLDER_ATTRIBUTE): trial
            for trial in self._journal.get_trials(deepcopy=False)
        }
        for name, result in self._trials.items():
            if (trial := unmatched.pop(name, None)) is not None:
                self._study.add_trial(trial)
                if not trial.state.is_finished():
                    self._report_to_optuna(len(self._study.trials) - 1, result)
        # Older versions drew options from another random stream, so a trial keeps its own.
        self._interrupted = {
            name: trial.params or trial.system_attrs.get("fixed_params", {})
            for name, trial in unmatched.items()
            if name and trial.state in (TrialState.RUNNING, TrialState.WAITING)
        }

    def run_trials(self) -> None:
        """Run all remaining trials of the plan."""
        grid = (
            self._plan.space.list_combinations() if self._plan.sampler is Sampler.GRID else []
        )
        while (number := len(self._trials)) < self._plan.planned_trials:
            name = f"trial-{number:03}"
            if options := grid[number] if grid else self._interrupted.get(name):
                self._study.enqueue_trial(options)
            self._study.sampler = _make_sampler(self._plan, number)
            trial = self._study.ask()
            trial.set_user_attr(_FOLDER_ATTRIBUTE, name)
            result = self._run_trial(trial, _suggest_options(trial, self._plan), name)
            self._report_to_optuna(trial.number, result)
            # In this order, because a trial that is not in the results is run again.
            self._journal.add_trial(self._study.trials[-1])
            self._trials[name] = result
            self._write_results()

    def run_fresh(self) -> SweepResult:
        """Run the winner on each remaining fresh seed of the plan."""
        winner = _find_best(self._plan, [*self._trials.values()])
        for seed in self._plan.seeds if winner is not None else ():
            name = f"winner.seed{seed}"
            if name not in self._fresh and winner is not None:
                self._fresh[name] = self._train(
                    winner.options, name, seed, lambda step, value: True
                )
                self._write_results()
        return SweepResult(
            self._plan,
            self._folder.resolve().name,
            tuple(self._trials.values()),
            winner,
            tuple(self._fresh.values()),
        )

    def _report_to_optuna(self, number: int, result: SweepTrial) -> None:
        from optuna.trial import TrialState

        if result.value is not None:
            self._study.tell(number, result.value)
        else:
            pruned = result.state == "pruned"
            self._study.tell(number, state=TrialState.PRUNED if pruned else TrialState.FAIL)

    def _run_trial(
        self, trial: "optuna.Trial", options: Mapping[str, Any], name: str
    ) -> SweepTrial:
        pruned = False

        def keep(step: int, value: float) -> bool:
            nonlocal pruned
            if math.isfinite(value):
                trial.report(value, step)
                pruned = trial.should_prune()
            return not pruned

        return self._train(options, name, self._plan.seed, keep, lambda: pruned)

    def _train(
        self,
        options: Mapping[str, Any],
        name: str,
        seed: int,
        keep: Callable[[int, float], bool],
        pruned: Callable[[], bool] = lambda: False,
    ) -> SweepTrial:
        all_options = {**self._plan.space.fixed, **options}
        trained = self._trainer(all_options, seed=seed, folder=self._folder / name, keep=keep)
        value, note = _compute_objective(trained, self._plan.metric)
        state = "pruned" if pruned() else "failed" if value is None else "complete"
        steps = max((int(c.steps_P[-1]) for c in trained.curves.values() if len(c)), default=0)
        if state != "complete":
            value = None
        note = f"after {steps:,} steps" if state == "pruned" else note
        result = SweepTrial(name, dict(options), seed, state, value, steps, note)
        self._record(self._make_training_run(result, all_options, trained.curves))
        self._watch(result)
        return result

    def _make_training_run(
        self, trial: SweepTrial, options: Mapping[str, Any], curves: Mapping[str, Curve]
    ) -> TrainingRun:
        sweep = self._folder.resolve().name
        fresh = trial.folder.startswith("winner")
        ended = TrainingStatus.FINISHED if trial.value is not None else TrainingStatus.CRASHED
        return TrainingRun(
            id=f"{sweep}/{trial.folder}",
            series=f"{sweep}.winner" if fresh else sweep,
            seed=trial.seed,
            status=ended,
            configuration={**options, "total_steps": self._plan.total_steps},
            provenance={
                **{"sweep": sweep, "sampler": self._plan.sampler, "pruner": self._plan.pruner},
                **{"state": trial.state, "note": trial.note},
            },
            source=str(self._folder / trial.folder),
            curves=curves,
        )

    def _write_results(self) -> None:
        results = {
            "trials": [asdict(trial) for trial in self._trials.values()],
            "fresh": [asdict(trial) for trial in self._fresh.values()],
        }
        atomic_write(
            self._folder / _RESULTS_FILE, json.dumps(results, indent=2).encode() + b"\n"
        )


def _compute_objective(trained: Trained, metric: str) -> tuple[float | None, str | None]:
    """Return the objective value of a trial, or None and the reason."""
    curve = trained.curves.get(metric)
    if trained.failure is not None:
        return None, trained.failure
    if curve is None:
        known = ", ".join(sorted(trained.curves)[:12]) or "none"
        return None, f"it did not log {metric!r}; its metrics: {known}"
    try:
        return auc(curve.steps_P, curve.values_P, percent=DEFAULT_PERCENT), None
    except UsageError as error:
        return None, str(error)


def _find_best(plan: SweepPlan, trials: Sequence[SweepTrial]) -> SweepTrial | None:
    completed = [trial for trial in trials if trial.value is not None]
    sign = -1 if plan.minimize else 1
    return max(completed, key=lambda trial: sign * (trial.value or 0.0), default=None)


def _read_results(path: Path) -> tuple[dict[str, SweepTrial], dict[str, SweepTrial]]:
    if not path.exists():
        return {}, {}
    results = json.loads(path.read_text("utf-8"))
    trials, fresh = (
        {trial["folder"]: SweepTrial(**trial) for trial in results[part]}
        for part in ("trials", "fresh")
    )
    return trials, fresh


def _open_journal(plan: SweepPlan, journal: Path) -> "optuna.Study":
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(journal))),
        study_name=_STUDY_NAME,
        load_if_exists=True,
        direction=_choose_direction(plan),
    )


def _make_study(plan: SweepPlan) -> "optuna.Study":
    import optuna

    pruner = {
        Pruner.MEDIAN: lambda: optuna.pruners.MedianPruner(
            n_startup_trials=4, n_warmup_steps=plan.total_steps // 4
        ),
        Pruner.HALVING: lambda: optuna.pruners.SuccessiveHalvingPruner(
            min_resource=max(1, plan.total_steps // 64)
        ),
        Pruner.NONE: optuna.pruners.NopPruner,
    }[plan.pruner]()
    return optuna.create_study(direction=_choose_direction(plan), pruner=pruner)


def _choose_direction(plan: SweepPlan) -> Literal["minimize", "maximize"]:
    return "minimize" if plan.minimize else "maximize"


def _make_sampler(plan: SweepPlan, number: int) -> "optuna.samplers.BaseSampler":
    import optuna

    seed = int(derive_id("sweep", plan.seed, number), 16) % 2**32
    tpe = plan.sampler is Sampler.TPE
    return (optuna.samplers.TPESampler if tpe else optuna.samplers.RandomSampler)(seed=seed)


def _suggest_options(trial: "optuna.Trial", plan: SweepPlan) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, domain in plan.space.space.items():
        if isinstance(domain, Choices):
            options[name] = trial.suggest_categorical(name, domain.values)
        elif domain.whole:
            low, high = int(domain.low), int(domain.high)
            options[name] = trial.suggest_int(name, low, high, log=domain.log)
        else:
            options[name] = trial.suggest_float(name, domain.low, domain.high, log=domain.log)
    return options


SWEEP_WINNER = "winner.toml"
"""Name of the file with the winner's settings, written if `assay train` is the trainer."""


@takes_options
def plan_sweep(space: Path | str, *, options: SweepOptions) -> SweepPlan:
    """Return the plan of a sweep and its cost; nothing is started, and Optuna is not needed.

    Args:
        space: A TOML file with [fixed] and [space].
        options: Budget and objective of the sweep.
    """
    return SweepPlan(space=read_space(Path(space)), **asdict(options))


def sweep_command(plan: "SweepPlan", folder: Path | str) -> list[str]:
    """Return the command of a first trial: the first value or lower bound of each option."""
    from assay.training.trainers import TrialCommand

    options = {**plan.space.fixed, **plan.space.get_first_values()}
    trainer = TrialCommand(plan.command, plan.metric, plan.total_steps)
    return trainer.make_arguments(options, plan.seed, Path(folder) / "trial-000")


def sweep(
    plan: "SweepPlan",
    folder: Path | str,
    *,
    trainer: "TrialTrainer | None" = None,
    watch: "Callable[[SweepTrial], None]" = lambda trial: None,
    database: Where = None,
) -> "SweepResult":
    """Run a sweep in a folder, or resume the one that is there.

    If `assay train` is the trainer, the winner's settings are written to `SWEEP_WINNER` in the
    folder, a file for `assay train` and `assay launch`.

    Args:
        plan: The result of `plan_sweep`.
        folder: Folder for all files.
        trainer: A callable, instead of the command of the plan.
        watch: Called with each trial as it ends.
        database: The database for the curves of all runs; created if missing.
    """
    from assay.store.training_tables import write_training_runs
    from assay.training.sweep_space import DEFAULT_COMMAND
    from assay.training.trainers import TrialCommand

    store = store_at(database)
    is_builtin = trainer is None and plan.command == DEFAULT_COMMAND
    if trainer is None:
        trainer = TrialCommand(plan.command, plan.metric, plan.total_steps)

    def record(run: "TrainingRun") -> None:
        with store.writing() as connection:
            write_training_runs(connection, [run], swap=True)

    result = search(plan, Path(folder), trainer, record=record, watch=watch)
    if is_builtin and result.winner is not None:
        _write_winner(result.plan, result.winner, Path(folder))
    return result


def _write_winner(plan: "SweepPlan", winner: "SweepTrial", folder: Path) -> None:
    """Write the winner's settings to a file for `assay train` and `assay launch`."""
    from assay.core.files import atomic_write
    from assay.runs.configuration import format_configuration
    from assay.training.config import TrainingConfig

    text = format_configuration(
        TrainingConfig,
        {**plan.space.fixed, **winner.options},
        f"# Winner of the sweep in this folder: {winner.folder}.",
    )
    atomic_write(folder / SWEEP_WINNER, text.encode())

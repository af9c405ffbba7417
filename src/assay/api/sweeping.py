"""Sweeps: hyperparameters are searched, and what wins is run on fresh seeds."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from assay.traces.opening import Where, store_at

if TYPE_CHECKING:
    from assay.experiments.training import TrainingRun
    from assay.sweeps import SweepPlan, SweepResult, SweepTrial, TrialTrainer

__all__ = ["SWEEP_WINNER", "plan_sweep", "sweep", "sweep_command"]

SWEEP_WINNER = "winner.toml"
"""In the folder of a sweep by `assay train`: what won, as a file that it takes."""


def plan_sweep(
    space: Path | str,
    *,
    sampler: str = "tpe",
    pruner: str = "median",
    trials: int = 20,
    total_steps: int = 100_000,
    metric: str = "overview/reward",
    minimize: bool = False,
    seed: int = 1,
    fresh_seeds: int = 5,
    command: str | None = None,
) -> "SweepPlan":
    """What a sweep would do and spend; nothing is started, and Optuna is not needed.

    Args:
        space: A TOML file with [fixed] and [space].
        sampler: tpe, random or grid.
        pruner: median, halving or none.
        trials: At most so many.
        total_steps: Of each run.
        metric: What is searched for: the area below the last quarter of its curve.
        minimize: Whether less of it is better.
        seed: Of the training of every trial, and of the search.
        fresh_seeds: Runs of what wins, on seeds that the search never saw.
        command: A program that trains and logs metrics.jsonl into {folder}; `assay train` if
            None.
    """
    from assay.sweeps import DEFAULT_COMMAND, Pruner, Sampler, SweepPlan, read_space

    return SweepPlan(
        space=read_space(Path(space)),
        sampler=Sampler(sampler),
        pruner=Pruner(pruner),
        trials=trials,
        total_steps=total_steps,
        metric=metric,
        minimize=minimize,
        seed=seed,
        fresh_seeds=fresh_seeds,
        command=DEFAULT_COMMAND if command is None else command,
    )


def sweep_command(plan: "SweepPlan", folder: Path | str) -> list[str]:
    """The command of a first trial, with the first value or the lower bound of each option.

    Args:
        plan: What `plan_sweep` settled.
        folder: That of the sweep.
    """
    from assay.sweeps import TrialCommand

    options = {**plan.space.fixed, **plan.space.first()}
    trainer = TrialCommand(plan.command, plan.metric, plan.total_steps)
    return trainer.arguments(options, plan.seed, Path(folder) / "trial-000")


def sweep(
    plan: "SweepPlan",
    folder: Path | str,
    *,
    trainer: "TrialTrainer | None" = None,
    watch: "Callable[[SweepTrial], None]" = lambda trial: None,
    database: Where = None,
) -> "SweepResult":
    """Run a sweep in a folder, or resume the one that is there.

    If `assay train` trains, the folder gets `SWEEP_WINNER`, a file for it and `assay launch`.

    Args:
        plan: What `plan_sweep` settled.
        folder: Where everything is kept.
        trainer: A callable, instead of the command of the plan.
        watch: Told each trial as it ends.
        database: The store for the curves of all runs, made if missing.
    """
    from assay.experiments.curves import write_training_runs
    from assay.sweeps import DEFAULT_COMMAND, TrialCommand, search

    store = store_at(database)
    by_us = trainer is None and plan.command == DEFAULT_COMMAND
    if trainer is None:
        trainer = TrialCommand(plan.command, plan.metric, plan.total_steps)

    def record(run: "TrainingRun") -> None:
        with store.writing() as connection:
            write_training_runs(connection, [run], swap=True)

    found = search(plan, Path(folder), trainer, record=record, watch=watch)
    if by_us and found.winner is not None:
        _write_winner(found.plan, found.winner, Path(folder))
    return found


def _write_winner(plan: "SweepPlan", winner: "SweepTrial", folder: Path) -> None:
    """What won, as a file that `assay train` and `assay launch` take."""
    from assay._util.files import atomic_write
    from assay.runs.template import configuration_file
    from assay.training import TrainingConfig

    text = configuration_file(
        TrainingConfig,
        {**plan.space.fixed, **winner.options},
        f"# What won the sweep in this folder: {winner.folder}.",
    )
    atomic_write(folder / SWEEP_WINNER, text.encode())

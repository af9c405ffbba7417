"""`assay train`: train a policy with PPO."""

import shlex
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from assay.cli import run_options
from assay.cli.options import Database, Flag, open_store
from assay.cli.output import JobBars, Show, compiling_shown, note, program, say, say_json
from assay.cli.progress_text import duration
from assay.cli.tables import say_table
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.api.policies import TrainingPlan, TrainingResult
    from assay.stats.intervals import Interval
    from assay.training.training_loop import TrainingProgress

FAILED, INTERRUPTED = 1, 130
_LINES = 10
"""Number of progress lines outside a terminal."""


def train(
    config: Path | None = None,
    /,
    *,
    options: "run_options.TrainOptions | None" = None,
    folder: Annotated[
        Path | None, Parameter(show_default="training/<curriculum>.<architecture>.seed<seed>")
    ] = None,
    resume: Annotated[Path | None, Parameter(show_default=False)] = None,
    dry_run: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Train a policy with PPO and evaluate it on held-out worlds.

    Ctrl-C writes a checkpoint and stops; the same command resumes the run, with the same curve
    as an uninterrupted run. Curves are saved in the database for 'assay variance' and 'assay
    analysis'. Requires the extra 'train' (torch); '--dry-run' does not.

    For example:

        assay train --architecture mlp --curriculum classic --total-steps 200_000
        assay train --architecture trxl --seed 1072 --dry-run

    Args:
        config: TOML file with [training], [ppo], [evaluation] and [machine].
        options: Settings of the run; they override the file.
        folder: Folder for metrics and checkpoints.
        resume: Resume the run in this folder, with its settings.
        dry_run: Print the settings and the network size without starting anything.
        database: DuckDB file for the curves.
        show: Output options.
    """
    from assay.api.policies import plan_training, train_planned
    from assay.training.config import require_training_packages

    plan = plan_training(config, folder=folder, resume=resume, **(options or {}))
    if dry_run:
        return _planned(plan, show)
    require_training_packages(plan.config.wandb, plan.config.environment)
    if not (show.quiet or show.json):
        _say_size(plan)
    with _stopped_by_ctrl_c() as stop, compiling_shown(show), _watching(plan, show) as watch:
        result = train_planned(
            plan, database=open_store(database, show), watch=watch, stop=stop
        )
    if show.json:
        say_json(_as_json(result))
    elif not show.quiet:
        _say_result(result, database)
    return _exit_code(result)


def _exit_code(result: "TrainingResult") -> int:
    from assay.training.folder import TrainState

    end = result.end
    if end.state is TrainState.STOPPED:
        note(f"stopped after step {end.steps:,}; a checkpoint is written")
        note(f"Resume: {program()} train --resume {shlex.quote(str(result.plan.folder))}")
        return INTERRUPTED
    if end.state is TrainState.DIVERGED:
        note(f"diverged: {end.reason}; try a lower --learning-rate")
        return FAILED
    return 0


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a stop request; the second interrupts immediately."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        note("stopping after this update; Ctrl-C again stops at once")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _watching(
    plan: "TrainingPlan", show: Show
) -> "Iterator[Callable[[TrainingProgress], None]]":
    """Show progress: a bar in a terminal, lines elsewhere."""
    total, told, began = plan.config.total_steps, plan.done, time.monotonic()

    def tell(progress: "TrainingProgress") -> None:
        nonlocal told
        standing, step = _standing(progress), progress.step
        bars.update("", completed=min(step, progress.total), description=standing)
        if bars.drawn or (step < told + max(1, total // _LINES) and step < progress.total):
            return
        told = step
        each = (time.monotonic() - began) / max(1, step - plan.done)
        seconds = each * max(0, progress.total - step)
        left = f", {duration(seconds)} left" if seconds else ""
        bars.notice(f"step {step:,}: {standing}{left}")

    steps = "{task.completed:,} of {task.total:,} steps"
    with JobBars(show, steps, "bar", "{task.description}", "left") as bars:
        bars.begin("", "", total=total, completed=plan.done)
        yield tell


def _standing(progress: "TrainingProgress") -> str:
    metrics = progress.metrics
    words = [f"{metrics['time/steps_per_second']:,.0f} steps/s"]
    if "overview/reward" in metrics:
        words.append(f"reward {metrics['overview/reward']:.2f}")
    if "eval/score" in metrics:
        words.append(f"held-out score {metrics['eval/score']:.2f}")
    return ", ".join(words)


def _say_size(plan: "TrainingPlan") -> None:
    config, capacity = plan.config, plan.config.capacity
    say(
        f"{config.architecture} (width {config.resolved_width}) on {config.environment},"
        f" {config.curriculum}, seed {config.seed}: {capacity.parameters:,} parameters,"
        f" {capacity.flops:,} FLOPs a step played,"
        f" {capacity.training_flops(config.epochs):,} trained"
    )
    say(f"folder: {plan.folder}" + (f", resumed at step {plan.done:,}" if plan.done else ""))


def _planned(plan: "TrainingPlan", show: Show) -> int:
    config, capacity = plan.config, plan.config.capacity
    if show.json:
        say_json(
            {
                "config": config.with_default_width().stored(),
                "parameters": capacity.parameters,
                "flops_per_step": capacity.flops,
                "training_flops_per_step": capacity.training_flops(config.epochs),
                "folder": str(plan.folder),
                "run": plan.run_id,
                "steps_done": plan.done,
            }
        )
        return 0
    _say_size(plan)
    rows = [
        (name, str(value), plan.sources[name])
        for name, value in config.with_default_width().stored().items()
    ]
    say_table(("setting", "value", "from"), rows, ("setting", "from"))
    say("time: not known before the first steps are made")
    say("nothing was started (--dry-run)")
    return 0


def _say_result(result: "TrainingResult", database: Path) -> None:
    plan = result.plan
    if result.evaluated:
        say(f"on {result.worlds} held-out worlds, with intervals of 95 %:")
        rows = [
            (
                each.metric,
                _interval(each.policy),
                _interval(each.random),
                "" if each.ratio is None else f"{each.ratio:.2f}x",
            )
            for each in result.evaluated
        ]
        say_table(("", "policy", "random actions", "ratio"), rows, ("",))
    where = [] if database == DEFAULT_DATABASE else ["--database", str(database)]
    say("next:")
    for words in (
        ["curves", "show", plan.run_id, *where],
        ["run", "--agents", f"checkpoint:{plan.folder}", "--difficulty", "classic", *where],
    ):
        say(f"  {program()} {shlex.join(words)}")


def _interval(interval: "Interval") -> str:
    return f"{interval.point:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _as_json(result: "TrainingResult") -> dict[str, Any]:
    end = result.end
    return {
        "run": result.plan.run_id,
        "folder": str(result.plan.folder),
        "state": end.state,
        "reason": end.reason,
        "steps": end.steps,
        "checkpoint": None if end.checkpoint is None else str(end.checkpoint),
        "metrics": dict(end.metrics),
        "held_out": {
            each.metric: {
                "policy": each.policy._asdict(),
                "random": each.random._asdict(),
                "ratio": each.ratio,
            }
            for each in result.evaluated
        },
        "worlds": result.worlds,
    }

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
from assay.cli.output import (
    JobBars,
    OutputOptions,
    find_program,
    print_json,
    print_line,
    print_note,
    show_compilation,
)
from assay.cli.progress_text import format_duration
from assay.cli.tables import print_table
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.api.policies import TrainingPlan, TrainingResult
    from assay.stats.intervals import Interval
    from assay.training.training_loop import TrainingProgress

FAILED, INTERRUPTED = 1, 130
_MAX_LINES = 10
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
    show: OutputOptions = OutputOptions(),
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
        return _print_plan(plan, show)
    require_training_packages(plan.config.wandb, plan.config.environment)
    if not (show.quiet or show.json):
        _print_size(plan)
    with _stop_on_ctrl_c() as stop, show_compilation(show), _show_progress(plan, show) as watch:
        result = train_planned(
            plan, database=open_store(database, show), watch=watch, stop=stop
        )
    if show.json:
        print_json(_to_json(result))
    elif not show.quiet:
        _print_result(result, database)
    return _choose_exit_code(result)


def _choose_exit_code(result: "TrainingResult") -> int:
    from assay.training.folder import TrainState

    end = result.end
    if end.state is TrainState.STOPPED:
        print_note(f"stopped after step {end.steps:,}; a checkpoint is written")
        print_note(
            f"Resume: {find_program()} train --resume {shlex.quote(str(result.plan.folder))}"
        )
        return INTERRUPTED
    if end.state is TrainState.DIVERGED:
        print_note(f"diverged: {end.reason}; try a lower --learning-rate")
        return FAILED
    return 0


@contextmanager
def _stop_on_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a stop request; the second interrupts immediately."""
    requested = False

    def request_stop(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        print_note("stopping after this update; press Ctrl-C again to stop immediately")

    before = signal.signal(signal.SIGINT, request_stop)
    try:
        yield lambda: requested
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _show_progress(
    plan: "TrainingPlan", show: OutputOptions
) -> "Iterator[Callable[[TrainingProgress], None]]":
    """Show progress: a bar in a terminal, lines elsewhere."""
    total, printed_step, began = plan.config.total_steps, plan.done, time.monotonic()

    def print_progress(progress: "TrainingProgress") -> None:
        nonlocal printed_step
        text, step = _format_progress(progress), progress.step
        bars.update("", completed=min(step, progress.total), description=text)
        if bars.are_drawn or (
            step < printed_step + max(1, total // _MAX_LINES) and step < progress.total
        ):
            return
        printed_step = step
        seconds_per_step = (time.monotonic() - began) / max(1, step - plan.done)
        seconds = seconds_per_step * max(0, progress.total - step)
        left = f", {format_duration(seconds)} left" if seconds else ""
        bars.print_message(f"step {step:,}: {text}{left}")

    steps = "{task.completed:,} of {task.total:,} steps"
    with JobBars(show, steps, "bar", "{task.description}", "left") as bars:
        bars.add("", "", total=total, completed=plan.done)
        yield print_progress


def _format_progress(progress: "TrainingProgress") -> str:
    metrics = progress.metrics
    words = [f"{metrics['time/steps_per_second']:,.0f} steps/s"]
    if "overview/reward" in metrics:
        words.append(f"reward {metrics['overview/reward']:.2f}")
    if "eval/score" in metrics:
        words.append(f"held-out score {metrics['eval/score']:.2f}")
    return ", ".join(words)


def _print_size(plan: "TrainingPlan") -> None:
    config, capacity = plan.config, plan.config.capacity
    print_line(
        f"{config.architecture} (width {config.resolved_width}) on {config.environment},"
        f" {config.curriculum}, seed {config.seed}: {capacity.parameters:,} parameters,"
        f" {capacity.flops:,} FLOPs per step to play,"
        f" {capacity.training_flops(config.epochs):,} to train"
    )
    print_line(
        f"folder: {plan.folder}" + (f", resumed at step {plan.done:,}" if plan.done else "")
    )


def _print_plan(plan: "TrainingPlan", show: OutputOptions) -> int:
    config, capacity = plan.config, plan.config.capacity
    if show.json:
        print_json(
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
    _print_size(plan)
    rows = [
        (name, str(value), plan.sources[name])
        for name, value in config.with_default_width().stored().items()
    ]
    print_table(("setting", "value", "from"), rows, ("setting", "from"))
    print_line("time: unknown until the first steps are done")
    print_line("nothing was started (--dry-run)")
    return 0


def _print_result(result: "TrainingResult", database: Path) -> None:
    plan = result.plan
    if result.evaluated:
        print_line(f"on {result.worlds} held-out worlds, with 95 % CI:")
        rows = [
            (
                metric.metric,
                _format_interval(metric.policy),
                _format_interval(metric.random),
                "" if metric.ratio is None else f"{metric.ratio:.2f}x",
            )
            for metric in result.evaluated
        ]
        print_table(("", "policy", "random actions", "ratio"), rows, ("",))
    where = [] if database == DEFAULT_DATABASE else ["--database", str(database)]
    print_line("next:")
    for words in (
        ["curves", "show", plan.run_id, *where],
        ["run", "--agents", f"checkpoint:{plan.folder}", "--difficulty", "classic", *where],
    ):
        print_line(f"  {find_program()} {shlex.join(words)}")


def _format_interval(interval: "Interval") -> str:
    return f"{interval.point:.2f} ({interval.low:.2f} to {interval.high:.2f})"


def _to_json(result: "TrainingResult") -> dict[str, Any]:
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
            metric.metric: {
                "policy": metric.policy._asdict(),
                "random": metric.random._asdict(),
                "ratio": metric.ratio,
            }
            for metric in result.evaluated
        },
        "worlds": result.worlds,
    }

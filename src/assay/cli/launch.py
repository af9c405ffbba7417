"""`assay launch`: train one configuration with many seeds."""

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from assay.cli import run_options
from assay.cli.options import Flag, Given, Text, option_groups
from assay.cli.output import (
    OutputOptions,
    StatusDisplay,
    command_line,
    find_program,
    print_error,
    print_json,
    print_line,
    print_note,
    print_warning,
    show_spinner,
)
from assay.cli.progress_text import format_duration
from assay.cli.run import stop_on_signals
from assay.cli.run_options import RUN_GROUP, RunFlag
from assay.cli.tables import Whole
from assay.core.text import counted
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.runs.events import Event
    from assay.training.launch.run import LaunchResult, PreparedLaunch

_PROGRESS_INTERVAL_S = 30.0
"""Seconds between progress lines outside a terminal."""


class LaunchDisplay(StatusDisplay):
    """Display of a launch, updated by its events."""

    def __init__(self, total: int, *, silent: bool) -> None:
        super().__init__(silent=silent)
        self._total = total
        self._done = 0
        self._running: dict[str, str] = {}
        self._started_at: dict[str, float] = {}
        self._printed_at = time.monotonic()

    def __call__(self, event: "Event") -> None:
        """Update the display after an event."""
        from assay.runs.events import (
            TrialEnded,
            TrialInterrupted,
            TrialProgress,
            TrialRetried,
            TrialSkipped,
            TrialStarted,
        )

        match event:
            case TrialSkipped():
                self._done += 1
            case TrialStarted(trial=trial):
                self._running[trial.id] = "starting"
                self._started_at[trial.id] = time.monotonic()
                self.print_message(f"{trial.id} started")
            case TrialProgress(trial=trial, payload=progress):
                self._running[trial.id] = _format_progress(progress)
            case TrialRetried(trial=trial, wait=wait, verdict=verdict):
                self._running.pop(trial.id, None)
                message = verdict.error.message if verdict.error else verdict.reason
                self.print_message(f"{trial.id} will be retried in {wait:.0f} s: {message}")
            case TrialInterrupted(trial=trial):
                self._running.pop(trial.id, None)
                self.print_message(f"{trial.id} stopped")
            case TrialEnded(trial=trial, verdict=verdict):
                self._done += 1
                last = self._running.pop(trial.id, "")
                elapsed = format_duration(
                    time.monotonic() - self._started_at.get(trial.id, time.monotonic())
                )
                error = verdict.error
                message = f"failed: {error.message}" if error else f"finished at {last}"
                self.print_message(
                    f"[{self._done}/{self._total}] {trial.id} {message} ({elapsed})"
                )
        self.update()
        if self._status is None and time.monotonic() - self._printed_at > _PROGRESS_INTERVAL_S:
            self._printed_at = time.monotonic()
            self.print_message(self.format_status())

    def format_status(self) -> str:
        """Return the progress of each run."""
        runs = "; ".join(f"{name}: {how}" for name, how in self._running.items())
        return f"{self._done} of {self._total} runs ended{'; ' if runs else ''}{runs}"


def _format_progress(progress: Any) -> str:
    total = "" if progress.total is None else f" of {progress.total:,}"
    reward = "" if progress.reward is None else f", reward {progress.reward:.2f}"
    return f"step {progress.step:,}{total}{reward}"


FAILED, INFRASTRUCTURE, INTERRUPTED = 1, 3, 130
_CONFIGURATION_GROUP = Group("Configuration", sort_key=0)
_EXECUTION_GROUP = Group("Execution", sort_key=1)


@Parameter(name="*", group=_CONFIGURATION_GROUP)
@dataclass(frozen=True, kw_only=True)
class _ConfigurationOptions:
    """Settings that define what is trained."""

    architecture: Annotated[str | None, Parameter(show_default="vit_reset")] = None
    """Network architecture."""
    curriculum: Annotated[str | None, Parameter(show_default="terrain_2")] = None
    """Distribution of training worlds."""
    environment: Annotated[str | None, Parameter(show_default="crafter")] = None
    """Training environment; mettagrid is the ICL recipe of resource chains."""
    seeds: Annotated[
        tuple[Whole, ...] | None,
        Parameter(negative="", consume_multiple=True, show_default="15"),
    ] = None
    """Number of seeds from the fixed list, up to 30; or two or more seeds."""
    command: Text = None
    """Command of another trainer with {seed} and {folder}; it writes {folder}/metrics.jsonl."""


@Parameter(name="*", group=_EXECUTION_GROUP)
@dataclass(frozen=True, kw_only=True)
class _ExecutionOptions:
    """Settings that define where the runs are executed."""

    parallel: Annotated[Whole | None, Parameter(show_default="as many as fit this machine")] = (
        None
    )
    """Maximum number of runs at the same time."""
    retries: Annotated[Whole | None, Parameter(show_default="2")] = None
    """Maximum number of retries of a run that ends early."""
    executor: Annotated[str | None, Parameter(show_default="processes")] = None
    """Where runs are executed: processes on this machine, or ray for a cluster."""
    ray_address: Annotated[str | None, Parameter(show_default="auto")] = None
    """With --executor ray: HOST:PORT of the cluster's head, auto, or local."""
    skypilot: Flag = False
    """Submit every seed to SkyPilot as a job."""
    gpus: Whole = 4
    """With --skypilot: number of GPUs per job."""
    accelerator: str = "L4"
    """With --skypilot: GPU type."""
    folder: Annotated[Path | None, Parameter(show_default="training")] = None
    """Folder for runs, logs and the manifest."""
    database: Annotated[
        Path | None, Parameter(show_default=f"$ASSAY_DATABASE, else {DEFAULT_DATABASE}")
    ] = None
    """DuckDB file for the curves."""

    def collect_settings(self) -> dict[str, Any]:
        """Return the settings of the launch, without SkyPilot options, by name."""
        cloud = ("skypilot", "gpus", "accelerator")
        return {name: value for name, value in vars(self).items() if name not in cloud}


@option_groups(
    {"benchmark": _CONFIGURATION_GROUP, "start": RUN_GROUP},
    benchmark="assay.training.options:BenchmarkOptions",
    start="assay.training.options:ResumeOptions",
)
def launch(
    config: Path | None = None,
    /,
    *,
    configuration: _ConfigurationOptions = _ConfigurationOptions(),
    benchmark: Given,
    options: "run_options.LaunchOptions | None" = None,
    execution: _ExecutionOptions = _ExecutionOptions(),
    start: Given,
    dry_run: RunFlag = False,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Train one configuration with many seeds and record every run.

    Ctrl-C writes checkpoints and stops; the same command, or --resume, completes the launch. A
    manifest is written before the first run. The built-in trainer requires the extra 'train'
    (torch); '--dry-run' and '--command' do not.

    For example:

        assay launch --architecture vit_reset --curriculum terrain_2 --dry-run
        assay launch --architecture trxl --base-run-name treatment_trxl --total-steps 200_000
        assay launch --command "python train.py --seed {seed} --out {folder}" --seeds 5

    Args:
        config: TOML file for the built-in trainer, as for 'assay train'.
        configuration: Architecture, worlds and seeds.
        benchmark: Name of the benchmark, and what it is compared with.
        options: Settings of the built-in trainer.
        execution: Where the runs are executed.
        start: Launch to resume or extend, if any.
        dry_run: Print the command for every seed without starting anything.
        show: Output options.
    """
    from assay.training.launch.run import prepare_launch

    prepared = prepare_launch(
        {**vars(configuration), **execution.collect_settings()},
        options,
        config,
        command=shlex.join(["assay", *command_line.get()]),
        **benchmark,
        **start,
    )
    for warning in () if show.quiet else prepared.run.warnings:
        print_warning(warning)
    if prepared.finished and not dry_run:
        return _print_finished(prepared, show)
    if execution.skypilot:
        return _launch_on_skypilot(
            prepared, execution.gpus, execution.accelerator, dry_run, show
        )
    if dry_run:
        return _print_plan(prepared, show)
    return _execute(prepared, show)


def _execute(prepared: "PreparedLaunch", show: OutputOptions) -> int:
    from assay.runs.control import Stop
    from assay.runs.events import CallbackObserver
    from assay.training.launch.run import launch_prepared

    silent = show.quiet or show.json
    if not silent:
        for line in _describe_launch(prepared):
            print_note(line)
        if prepared.run.resumed is not None:
            print_note(
                f"resuming {prepared.run.record.id}, which is unfinished; --fresh starts anew"
            )
    stop = Stop()
    database_option = _format_database_option(prepared)
    resume_command = (
        f"{find_program()} launch --resume {prepared.run.record.id}{database_option}"
    )
    display = LaunchDisplay(len(prepared.seeds), silent=silent)
    with stop_on_signals(stop, display.print_message, resume_command), display:
        observer = CallbackObserver(display, display.print_message)
        result = launch_prepared(prepared, observer=observer, stop=stop)
    return _print_end(prepared, result, resume_command, show)


def _print_finished(prepared: "PreparedLaunch", show: OutputOptions) -> int:
    """Print the result of a launch that an earlier process completed."""
    from assay.training.launch.run import launch_prepared

    name = prepared.config.base_run_name
    if not (show.quiet or show.json):
        print_note(
            f"launch {name!r} is already finished; its result follows. --extend {name} "
            "--seeds 30 adds seeds; another --base-run-name starts a new launch"
        )
    return _print_end(prepared, launch_prepared(prepared), "", show)


def _print_end(
    prepared: "PreparedLaunch", result: "LaunchResult", resume_command: str, show: OutputOptions
) -> int:
    from assay.training.launch.run import mark_launch_shown

    if show.json:
        print_json(_to_json(prepared, result))
    elif show.quiet:
        print_line(str(prepared.config.benchmark_folder))
    else:
        _print_result(prepared, result, resume_command)
    mark_launch_shown(prepared)
    return _choose_exit_code(result)


def _choose_exit_code(result: "LaunchResult") -> int:
    if result.run.interrupted:
        return INTERRUPTED
    if result.failed or result.run.status != "finished":
        return INFRASTRUCTURE
    return FAILED if result.diverged else 0


def _print_result(
    prepared: "PreparedLaunch", result: "LaunchResult", resume_command: str
) -> None:
    done = len(set(result.run_ids) & {seed.run_id for seed in prepared.seeds})
    print_line(
        f"{done} of {counted(len(prepared.seeds), 'run')} finished: "
        f"{prepared.config.benchmark_folder}"
    )
    for run_id in result.failed:
        print_error(f"{run_id} ended early; see {prepared.config.benchmark_folder / 'logs'}")
    for run_id in result.diverged:
        print_error(
            f"{run_id} failed, and a retry would fail too; see "
            f"{prepared.config.benchmark_folder / 'logs'}"
        )
    if result.failed or result.run.status != "finished":
        print_line(f"Unfinished. Retry: {resume_command}")
    if prepared.config.extended_from:
        print_line(
            f"This set was extended from {prepared.config.extended_from} to "
            f"{len(prepared.manifest.seeds)} runs: analyse all of them together. 'assay "
            "analysis' corrects for the looks it has recorded; report any others."
        )
    if len(result.run_ids) > 1:
        print_line("next:")
        print_line(f"  {_format_variance_command(prepared, result.run_ids)}")


def _format_variance_command(prepared: "PreparedLaunch", run_ids: tuple[str, ...]) -> str:
    return f"{find_program()} variance {shlex.join(run_ids)}{_format_database_option(prepared)}"


def _format_database_option(prepared: "PreparedLaunch") -> str:
    database = prepared.config.database
    if database == DEFAULT_DATABASE:
        return ""
    return f" --database {shlex.quote(str(database))}"


def _describe_launch(prepared: "PreparedLaunch") -> list[str]:
    config = prepared.config
    lines = [
        f"{config.base_run_name}: {config.architecture}, "
        f"{counted(len(prepared.seeds), 'seed')}, {config.max_parallel} at a time",
        f"recipe: {prepared.recipe}",
    ]
    changes = prepared.changes
    if changes is not None:
        changed_files = changes.stat or "no changes"
        lines.append(f"trainer since {changes.origin} ({changes.since[:12]}): {changed_files}")
    reference = f"control {prepared.control!r}" if prepared.control else "the defaults"
    if prepared.difference:
        lines.append(f"differences from {reference}: {'; '.join(prepared.difference)}")
    lines.append(f"manifest: {config.benchmark_folder / 'manifest'}")
    return lines


def _print_plan(prepared: "PreparedLaunch", show: OutputOptions) -> int:
    commands = [shlex.join(words) for words in prepared.commands]
    if show.json:
        print_json(
            {
                "base_run_name": prepared.config.base_run_name,
                "recipe": prepared.recipe,
                "configuration": prepared.config.stored(),
                "difference": list(prepared.difference),
                "trainer_changes": prepared.changes and prepared.changes.stat,
                "run_ids": [seed.run_id for seed in prepared.seeds],
                "commands": commands,
            }
        )
        return 0
    for line in _describe_launch(prepared):
        print_line(f"# {line}")
    for command in commands:
        print_line(command)
    print_line(f"# {_format_variance_command(prepared, prepared.manifest.run_ids)}")
    print_line("# nothing was started (--dry-run)")
    return 0


def _launch_on_skypilot(
    prepared: "PreparedLaunch", gpus: int, accelerator: str, dry: bool, show: OutputOptions
) -> int:
    from assay.training.launch.run import launch_on_skypilot, skypilot_tasks
    from assay.training.launch.skypilot import format_yaml

    with show_spinner(show, "checking the tasks"):
        planned = skypilot_tasks(prepared, gpus=gpus, accelerator=accelerator)
    if dry:
        if show.json:
            print_json({"checked": planned.checked, "tasks": list(planned.tasks)})
            return 0
        for line in _describe_launch(prepared):
            print_line(f"# {line}")
        for task in planned.tasks:
            for line in ("---", *format_yaml(task).splitlines()):
                print_line(line)
        print_line(f"# {planned.checked}; nothing was started (--dry-run)")
        return 0
    names = launch_on_skypilot(prepared, planned, notice=print_note)
    print_line(f"{counted(len(names), 'job')} launched; 'sky jobs queue' shows them")
    return 0


def _to_json(prepared: "PreparedLaunch", result: "LaunchResult") -> dict[str, Any]:
    return {
        "launch": result.run.run_id,
        "base_run_name": result.base_run_name,
        "status": result.run.status,
        "interrupted": result.run.interrupted,
        "run_ids": list(result.run_ids),
        "failed": list(result.failed),
        "diverged": list(result.diverged),
        "folder": str(prepared.config.benchmark_folder),
        "manifest": str(prepared.config.benchmark_folder / "manifest"),
        "variance": _format_variance_command(prepared, result.run_ids),
    }

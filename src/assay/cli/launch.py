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
    Show,
    StatusDisplay,
    command_line,
    complain,
    note,
    program,
    say,
    say_json,
    warn,
    working,
)
from assay.cli.progress_text import duration
from assay.cli.run import stopped_by_signals
from assay.cli.run_options import WHICH, RunFlag
from assay.cli.tables import Whole
from assay.core.text import counted
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.runs.events import Event
    from assay.training.launch.run import LaunchResult, PreparedLaunch

_EVERY_S = 30.0
"""Seconds between progress lines outside a terminal."""


class LaunchDisplay(StatusDisplay):
    """Display of a launch, updated by its events."""

    def __init__(self, total: int, *, silent: bool) -> None:
        super().__init__(silent=silent)
        self._total = total
        self._done = 0
        self._open: dict[str, str] = {}
        self._begun: dict[str, float] = {}
        self._told = time.monotonic()

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
                self._open[trial.id] = "starting"
                self._begun[trial.id] = time.monotonic()
                self.notice(f"{trial.id} is started")
            case TrialProgress(trial=trial, payload=progress):
                self._open[trial.id] = _standing(progress)
            case TrialRetried(trial=trial, wait=wait, verdict=verdict):
                self._open.pop(trial.id, None)
                said = verdict.error.message if verdict.error else verdict.reason
                self.notice(f"{trial.id} is tried again in {wait:.0f} s: {said}")
            case TrialInterrupted(trial=trial):
                self._open.pop(trial.id, None)
                self.notice(f"{trial.id} is stopped")
            case TrialEnded(trial=trial, verdict=verdict):
                self._done += 1
                last = self._open.pop(trial.id, "")
                took = duration(time.monotonic() - self._begun.get(trial.id, time.monotonic()))
                error = verdict.error
                said = f"failed: {error.message}" if error else f"finished at {last}"
                self.notice(f"[{self._done}/{self._total}] {trial.id} {said} ({took})")
        self.update()
        if self._status is None and time.monotonic() - self._told > _EVERY_S:
            self._told = time.monotonic()
            self.notice(self.status())

    def status(self) -> str:
        """Return the progress of each run."""
        each = "; ".join(f"{name}: {how}" for name, how in self._open.items())
        return f"{self._done} of {self._total} runs ended{'; ' if each else ''}{each}"


def _standing(progress: Any) -> str:
    of = "" if progress.total is None else f" of {progress.total:,}"
    reward = "" if progress.reward is None else f", reward {progress.reward:.2f}"
    return f"step {progress.step:,}{of}{reward}"


FAILED, INFRASTRUCTURE, INTERRUPTED = 1, 3, 130
_WHAT = Group("What is launched", sort_key=0)
_WHERE = Group("Where, and how many at once", sort_key=1)


@Parameter(name="*", group=_WHAT)
@dataclass(frozen=True, kw_only=True)
class _What:
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


@Parameter(name="*", group=_WHERE)
@dataclass(frozen=True, kw_only=True)
class _Where:
    """Settings that define where the runs are executed."""

    parallel: Annotated[Whole | None, Parameter(show_default="what the machine holds")] = None
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

    def settings(self) -> dict[str, Any]:
        """Return the settings of the launch, without SkyPilot options, by name."""
        cloud = ("skypilot", "gpus", "accelerator")
        return {name: value for name, value in vars(self).items() if name not in cloud}


@option_groups(
    {"benchmark": _WHAT, "start": WHICH},
    benchmark="assay.training.options:BenchmarkOptions",
    start="assay.training.options:ResumeOptions",
)
def launch(
    config: Path | None = None,
    /,
    *,
    what: _What = _What(),
    benchmark: Given,
    options: "run_options.LaunchOptions | None" = None,
    where: _Where = _Where(),
    start: Given,
    dry_run: RunFlag = False,
    show: Show = Show(),
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
        what: Architecture, worlds and seeds.
        benchmark: Name of the benchmark, and what it is compared with.
        options: Settings of the built-in trainer.
        where: Where the runs are executed.
        start: Launch to resume or extend, if any.
        dry_run: Print the command for every seed without starting anything.
        show: Output options.
    """
    from assay.training.launch.run import prepare_launch

    prepared = prepare_launch(
        {**vars(what), **where.settings()},
        options,
        config,
        command=shlex.join(["assay", *command_line.get()]),
        **benchmark,
        **start,
    )
    for warning in () if show.quiet else prepared.run.warnings:
        warn(warning)
    if prepared.finished and not dry_run:
        return _finished(prepared, show)
    if where.skypilot:
        return _on_skypilot(prepared, where.gpus, where.accelerator, dry_run, show)
    if dry_run:
        return _planned(prepared, show)
    return _run(prepared, show)


def _run(prepared: "PreparedLaunch", show: Show) -> int:
    from assay.runs.control import Stop
    from assay.runs.events import CallbackObserver
    from assay.training.launch.run import launch_prepared

    silent = show.quiet or show.json
    if not silent:
        for line in _about(prepared):
            note(line)
        if prepared.run.resumed is not None:
            note(f"resuming {prepared.run.record.id}, which is unfinished; --fresh starts anew")
    stop = Stop()
    again = f"{program()} launch --resume {prepared.run.record.id}{_where(prepared)}"
    display = LaunchDisplay(len(prepared.seeds), silent=silent)
    with stopped_by_signals(stop, display.notice, again), display:
        observer = CallbackObserver(display, display.notice)
        result = launch_prepared(prepared, observer=observer, stop=stop)
    return _ended(prepared, result, again, show)


def _finished(prepared: "PreparedLaunch", show: Show) -> int:
    """Print the result of a launch that an earlier process completed."""
    from assay.training.launch.run import launch_prepared

    name = prepared.config.base_run_name
    if not (show.quiet or show.json):
        note(
            f"launch {name!r} is finished, and this is its result; --extend {name} --seeds 30 "
            "adds seeds to it, another --base-run-name launches anew"
        )
    return _ended(prepared, launch_prepared(prepared), "", show)


def _ended(prepared: "PreparedLaunch", result: "LaunchResult", again: str, show: Show) -> int:
    from assay.training.launch.run import mark_launch_shown

    if show.json:
        say_json(_as_json(prepared, result))
    elif show.quiet:
        say(str(prepared.config.benchmark_folder))
    else:
        _say_result(prepared, result, again)
    mark_launch_shown(prepared)
    return _exit_code(result)


def _exit_code(result: "LaunchResult") -> int:
    if result.run.interrupted:
        return INTERRUPTED
    if result.failed or result.run.status != "finished":
        return INFRASTRUCTURE
    return FAILED if result.diverged else 0


def _say_result(prepared: "PreparedLaunch", result: "LaunchResult", again: str) -> None:
    done = len(set(result.run_ids) & {seed.run_id for seed in prepared.seeds})
    say(
        f"{done} of {counted(len(prepared.seeds), 'run')} finished: "
        f"{prepared.config.benchmark_folder}"
    )
    for run_id in result.failed:
        complain(
            f"{run_id} ended before its time; see {prepared.config.benchmark_folder / 'logs'}"
        )
    for run_id in result.diverged:
        complain(
            f"{run_id} failed, and would again; see {prepared.config.benchmark_folder / 'logs'}"
        )
    if result.failed or result.run.status != "finished":
        say(f"Unfinished. Try again: {again}")
    if prepared.config.extended_from:
        say(
            f"This set was extended from {prepared.config.extended_from} to "
            f"{len(prepared.manifest.seeds)} runs: judge all of them together. 'assay analysis'"
            " corrects for its earlier looks; say what else you have looked at."
        )
    if len(result.run_ids) > 1:
        say("next:")
        say(f"  {_variance(prepared, result.run_ids)}")


def _variance(prepared: "PreparedLaunch", run_ids: tuple[str, ...]) -> str:
    return f"{program()} variance {shlex.join(run_ids)}{_where(prepared)}"


def _where(prepared: "PreparedLaunch") -> str:
    database = prepared.config.database
    if database == DEFAULT_DATABASE:
        return ""
    return f" --database {shlex.quote(str(database))}"


def _about(prepared: "PreparedLaunch") -> list[str]:
    config = prepared.config
    lines = [
        f"{config.base_run_name}: {config.architecture}, "
        f"{counted(len(prepared.seeds), 'seed')}, {config.max_parallel} at a time",
        f"recipe: {prepared.recipe}",
    ]
    changes = prepared.changes
    if changes is not None:
        said = changes.stat or "nothing has changed"
        lines.append(f"trainer since {changes.origin} ({changes.since[:12]}): {said}")
    against = f"control {prepared.control!r}" if prepared.control else "the defaults"
    if prepared.difference:
        lines.append(f"other than {against}: {'; '.join(prepared.difference)}")
    lines.append(f"manifest: {config.benchmark_folder / 'manifest'}")
    return lines


def _planned(prepared: "PreparedLaunch", show: Show) -> int:
    commands = [shlex.join(words) for words in prepared.commands]
    if show.json:
        say_json(
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
    for line in _about(prepared):
        say(f"# {line}")
    for command in commands:
        say(command)
    say(f"# {_variance(prepared, prepared.manifest.run_ids)}")
    say("# nothing was started (--dry-run)")
    return 0


def _on_skypilot(
    prepared: "PreparedLaunch", gpus: int, accelerator: str, dry: bool, show: Show
) -> int:
    from assay.training.launch.run import launch_on_skypilot, skypilot_tasks
    from assay.training.launch.skypilot import format_yaml

    with working(show, "checking the tasks"):
        sky = skypilot_tasks(prepared, gpus=gpus, accelerator=accelerator)
    if dry:
        if show.json:
            say_json({"checked": sky.checked, "tasks": list(sky.tasks)})
            return 0
        for line in _about(prepared):
            say(f"# {line}")
        for task in sky.tasks:
            for line in ("---", *format_yaml(task).splitlines()):
                say(line)
        say(f"# {sky.checked}; nothing was started (--dry-run)")
        return 0
    names = launch_on_skypilot(prepared, sky, notice=note)
    say(f"{counted(len(names), 'job')} launched; 'sky jobs queue' shows them")
    return 0


def _as_json(prepared: "PreparedLaunch", result: "LaunchResult") -> dict[str, Any]:
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
        "variance": _variance(prepared, result.run_ids),
    }

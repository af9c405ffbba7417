"""Preparation and execution of launches, which train one configuration with many seeds."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from assay.core.options import takes_options
from assay.errors import UsageError
from assay.runs.configuration import COMMAND_LINE, resolve
from assay.store.opening import store_at
from assay.training.options import BenchmarkOptions, ResumeOptions

if TYPE_CHECKING:
    from assay.runs.control import Stop
    from assay.runs.events import Event, RunObserver
    from assay.runs.executors import TrialExecutor
    from assay.runs.kind import PreparedRun
    from assay.runs.run import RunResult
    from assay.store.records import StoredRun
    from assay.training.launch.kind import LaunchConfig, TrainingKind
    from assay.training.launch.manifest import LaunchManifest, TrainerChanges
    from assay.training.trainers import TrainedSeed

_HANG_S = 600.0
"""Seconds without activity in any thread, after which a worker counts as hung."""
_ICL_ENVIRONMENT = "mettagrid"
_UNSHOWN_MARK = "unshown"
"""Marker file in the folder of a launch whose result was not shown yet."""


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """A launch that is resolved and checked but not started."""

    run: "PreparedRun[LaunchConfig]"
    kind: "TrainingKind"
    seeds: "tuple[TrainedSeed, ...]"
    """Runs of this launch."""
    manifest: "LaunchManifest"
    """Manifest with this set as its last."""
    changes: "TrainerChanges | None"
    """Changes of the trainer since the last benchmark or the given commit."""
    difference: tuple[str, ...]
    """Differences from the control, or from the defaults."""
    control: str | None
    finished: bool = False
    """Whether an earlier process finished it, so that only its result is left to show."""

    @property
    def config(self) -> "LaunchConfig":
        """Settings of the launch."""
        return self.run.config

    @property
    def commands(self) -> list[list[str]]:
        """Command lines that would train each seed separately."""
        from assay.training.launch.kind import make_trainer

        trainer = make_trainer(self.config)
        return [
            trainer.make_command(seed, self.config.benchmark_folder / seed.run_id)
            for seed in self.seeds
        ]

    @property
    def recipe(self) -> str:
        """Description of the training recipe."""
        config = self.config
        if config.command is not None:
            return f"the given command, on {config.environment}/{config.curriculum}"
        if config.environment == _ICL_ENVIRONMENT:
            return f"ICL: resource chains to discover within the episode, {config.curriculum}"
        return (
            f"PPO on {config.environment} worlds, {config.curriculum}; for the ICL recipe of "
            f"resource chains use --environment {_ICL_ENVIRONMENT}"
        )


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """Result of a launch."""

    run: "RunResult"
    base_run_name: str
    run_ids: tuple[str, ...]
    """All finished runs of the benchmark, including earlier sets."""
    failed: tuple[str, ...]
    """Runs that ended early; the same command retries them."""
    diverged: tuple[str, ...]
    """Runs that failed, and would fail again."""


@dataclass(frozen=True, slots=True)
class SkyLaunch:
    """SkyPilot tasks, one for each seed."""

    tasks: tuple[Mapping[str, Any], ...]
    checked: str
    """How the tasks were checked."""


@takes_options
def launch(
    *,
    config: Path | str | None = None,
    training: Mapping[str, Any] | None = None,
    benchmark: BenchmarkOptions,
    start: ResumeOptions,
    listen: "Callable[[Event], None] | None" = None,
    notice: Callable[[str], None] | None = None,
    **settings: Any,
) -> LaunchResult:
    """Train one configuration with many seeds; repeating the call resumes what is unfinished.

    Settings have the names of `LaunchConfig`: architecture, curriculum, environment, seeds,
    command, parallel, retries, executor, ray_address, folder and database.

    Args:
        config: A TOML file for the built-in trainer, as for `assay.train`.
        training: Settings of the built-in trainer by name; they override the file.
        benchmark: Name of the benchmark, and what it is compared with.
        start: Launch to resume or extend, if any.
        listen: Callback for events of `assay.runs`.
        notice: Callback for messages.
        **settings: Settings that differ from their defaults.
    """
    from assay.runs.events import CallbackObserver

    prepared = prepare_launch(
        settings,
        training,
        None if config is None else Path(config),
        benchmark=benchmark,
        start=start,
        command="assay.launch(...)",
        source="assay.launch",
    )
    result = launch_prepared(prepared, observer=CallbackObserver(listen, notice))
    mark_launch_shown(prepared)
    return result


@takes_options
def prepare_launch(
    settings: Mapping[str, Any],
    training: Mapping[str, Any] | None = None,
    file: Path | None = None,
    *,
    benchmark: BenchmarkOptions,
    start: ResumeOptions,
    command: str = "",
    source: str = COMMAND_LINE,
) -> PreparedLaunch:
    """Resolve and check a launch, without starting it.

    Args:
        settings: Values by the field names of `LaunchConfig`; None means not given.
        training: Values by the field names of `TrainingConfig`, for the built-in trainer.
        file: A TOML file for the built-in trainer.
        benchmark: Name of the benchmark, and what it is compared with.
        start: Launch to resume or extend, if any.
        command: The command line, for the record.
        source: Origin of the settings, for messages.
    """
    from assay.runs.kind import PreparedRun
    from assay.runs.prepare import make_run_record, prepare_run
    from assay.training.launch.kind import LaunchConfig, list_arms

    base_run_name, resume, extend = benchmark.base_run_name, start.resume, start.extend
    chosen = {name: value for name, value in settings.items() if value is not None}
    if sum(name is not None for name in (base_run_name, resume, extend)) > 1:
        raise UsageError("--base-run-name, --resume and --extend exclude each other; give one")
    before = None
    if extend is not None:
        before, chosen = _extend_benchmark(extend, chosen)
        base_run_name = extend
    elif resume is None:
        chosen = _add_training_settings(chosen, training or {}, file, source)
    common: dict[str, Any] = {"command": command, "fresh": start.fresh, "source": source}
    run: PreparedRun[LaunchConfig] | None = None
    if resume is not None or base_run_name is None:
        run = prepare_run(LaunchConfig, list_arms, chosen, resume=resume, **common)
    finished = None
    if run is None or run.resumed is None:
        if base_run_name is None and not start.fresh:
            base_run_name = _find_unshown_launch(chosen, source)
        chosen["base_run_name"] = base_run_name or time.strftime("icl_benchmark_%Y%m%d_%H%M%S")
        resolved = resolve(LaunchConfig, chosen, source=source)
        config, name = resolved.config, _make_launch_id(resolved.config)
        if not start.fresh:
            finished = _find_finished_launch(config, name)
        if finished is None:
            run = prepare_run(LaunchConfig, list_arms, chosen, run_id=name, **common)
        else:
            arms = list_arms(config)
            record = make_run_record(config, arms, name, command)
            record = replace(record, created_at=finished.created_at)
            run = PreparedRun(config, record, arms, None, resolved.sources, resolved.warnings)
    if run.resumed is not None:
        stored = run.resumed.record.configuration
        config = replace(
            run.config, base_run_name=stored["base_run_name"], folder=Path(stored["folder"])
        )
        run = replace(run, config=config)
    launch = _complete_launch(run, before, benchmark)
    return replace(launch, finished=finished is not None)


def _complete_launch(
    run: "PreparedRun[LaunchConfig]",
    before: "LaunchManifest | None",
    benchmark: BenchmarkOptions,
) -> PreparedLaunch:
    from assay.store.training_tables import series_experiment
    from assay.training.launch.kind import TrainingKind, list_seeds
    from assay.training.launch.manifest import (
        LaunchManifest,
        LaunchSet,
        find_latest_manifest,
        find_trainer_changes,
        list_differences,
        locate_trainer,
        read_launch_manifest,
    )

    config = run.config
    # All runs of a benchmark belong to one experiment, however often it is extended.
    experiment = series_experiment(config.base_run_name, config.architecture)
    run = replace(run, record=replace(run.record, experiments=(experiment,)))
    trainer = locate_trainer(config.command is None)
    latest = find_latest_manifest(config.folder, config.base_run_name)
    control = benchmark.control
    control_manifest = None if control is None else read_launch_manifest(config.folder, control)
    reference: Mapping[str, Any] = (
        _make_default_settings(config)
        if control_manifest is None
        else control_manifest.configuration
    )
    seeds = list_seeds(config, run.record.id)
    launch_set = LaunchSet(
        run.record.id,
        run.record.created_at,
        config.seeds,
        tuple(seed.run_id for seed in seeds),
        trainer.commit,
    )
    earlier = _list_earlier_sets(config, before, run.record.id)
    manifest = LaunchManifest(
        config.base_run_name,
        config.architecture,
        config.stored(),
        trainer.commit,
        (*earlier, launch_set),
    )
    facts = {
        "launch": {
            "id": run.record.id,
            "base_run_name": config.base_run_name,
            "seeds": len(manifest.seeds),
            "extended_from": config.extended_from,
            "trainer_commit": trainer.commit,
            "trainer_changed": bool(trainer.dirty),
            "manifest": str(config.benchmark_folder.absolute() / "manifest"),
        }
    }
    return PreparedLaunch(
        run,
        TrainingKind(config, facts),
        seeds,
        manifest,
        find_trainer_changes(trainer, benchmark.since, latest),
        tuple(list_differences(config.stored(), reference)),
        control,
    )


def _list_earlier_sets(
    config: "LaunchConfig", before: "LaunchManifest | None", launch_id: str
) -> Any:
    """Return the sets of a benchmark before this one."""
    from assay.training.launch.manifest import read_launch_manifest

    if before is None and config.extended_from:
        before = read_launch_manifest(config.folder, config.base_run_name)
    sets = () if before is None else before.sets
    return tuple(part for part in sets if part.launch != launch_id)


def _make_default_settings(config: "LaunchConfig") -> dict[str, Any]:
    from assay.training.launch.kind import LaunchConfig

    training = _resolve_training({}, None, COMMAND_LINE) if config.command is None else None
    return LaunchConfig(training=training).stored()


def _resolve_training(
    training: Mapping[str, Any], file: Path | None, source: str
) -> dict[str, Any]:
    from assay.training.config import TrainingConfig

    resolved = resolve(
        TrainingConfig, training, file, source=source
    ).config.with_default_width()
    return {name: value for name, value in resolved.stored().items() if name != "seed"}


def _add_training_settings(
    chosen: dict[str, Any], training: Mapping[str, Any], file: Path | None, source: str
) -> dict[str, Any]:
    """Return the settings of a launch with the checked settings of its trainer."""
    from assay.training.launch.kind import resolve_seeds
    from assay.training.trainers import PLACEHOLDERS, fill_command

    names = ("architecture", "curriculum", "environment")
    chosen = {**chosen, "seeds": resolve_seeds(chosen.get("seeds", ()))}
    if chosen.get("command") is not None:
        fill_command(chosen["command"], dict.fromkeys(PLACEHOLDERS, "x"))
        trainer_settings = [name for name, value in training.items() if value is not None]
        if trainer_settings or file is not None:
            name = (
                f"--{trainer_settings[0].replace('_', '-')}" if trainer_settings else str(file)
            )
            raise UsageError(
                f"{name} applies to the built-in trainer only; put it into --command instead"
            )
        return chosen
    training_choices = {name: chosen[name] for name in names if name in chosen}
    if "seed" in training and training["seed"] is not None:
        raise UsageError("a launch has many seeds; give --seeds, or use 'assay train --seed'")
    resolved = _resolve_training({**training, **training_choices}, file, source)
    return {**chosen, **{name: resolved[name] for name in names}, "training": resolved}


def _extend_benchmark(
    name: str, chosen: Mapping[str, Any]
) -> "tuple[LaunchManifest, dict[str, Any]]":
    """Return an existing benchmark, and the settings of a launch for the seeds it lacks."""
    from assay.training.launch.kind import SEEDS, LaunchConfig, resolve_seeds
    from assay.training.launch.manifest import read_launch_manifest

    folder = Path(chosen.get("folder", "training"))
    manifest = read_launch_manifest(folder, name)
    allowed = ("seeds", "folder", "database", "parallel", "retries", "executor", "ray_address")
    for setting in chosen:
        if setting not in allowed:
            raise UsageError(
                f"--extend keeps all settings of {name!r}, so that its runs are comparable; "
                f"leave out --{setting.replace('_', '-')}"
            )
    wanted = resolve_seeds(chosen.get("seeds", (len(SEEDS),)))
    present = manifest.seeds
    if missing := [seed for seed in present if seed not in wanted]:
        raise UsageError(
            f"{name!r} has seed {missing[0]}, which is missing in --seeds; an extended set "
            "keeps "
            f"all its runs: give {len(present) + 1} to {len(SEEDS)}, or its seeds and more"
        )
    new = tuple(seed for seed in wanted if seed not in present)
    if not new and len(manifest.sets) > 1:
        # The same command was repeated, for the last set.
        new = manifest.sets[-1].seeds
        present = tuple(seed for seed in present if seed not in new)
    if not new:
        raise UsageError(
            f"{name!r} already has these {len(wanted)} seeds; give --seeds a number from "
            f"{len(present) + 1} to {len(SEEDS)}"
        )
    kept = {
        setting: value
        for setting, value in manifest.configuration.items()
        if setting in LaunchConfig.counted() and setting not in ("seeds", "extended_from")
    }
    return manifest, {**kept, **chosen, "seeds": new, "extended_from": len(present)}


def _make_launch_id(config: "LaunchConfig") -> str:
    more = f".to{config.extended_from + len(config.seeds)}" if config.extended_from else ""
    return f"{config.base_run_name}.{config.architecture}{more}"


def _find_finished_launch(config: "LaunchConfig", launch_id: str) -> "StoredRun | None":
    """Return the stored launch with this id, if it is finished.

    Raises:
        UsageError: It is finished with another configuration.
    """
    from assay.runs.configuration import list_differences
    from assay.runs.prepare import find_stored_run

    stored = find_stored_run(config.database, launch_id)
    if stored is None or stored.status != "finished":
        return None
    name = config.base_run_name
    if changes := list_differences(type(config), stored.configuration, config.stored()):
        raise UsageError(
            f"launch {name!r} is finished with another configuration: {'; '.join(changes)}; "
            f"add seeds with --extend {name} --seeds 30, or start a new launch with another "
            "--base-run-name"
        )
    return stored


def _find_unshown_launch(chosen: Mapping[str, Any], source: str) -> str | None:
    """Return the base name of a finished launch like this one that was not shown, if any."""
    from assay.training.launch.kind import LaunchConfig

    folder = resolve(LaunchConfig, chosen, source=source).config.folder
    for mark in sorted(folder.glob(f"*/{_UNSHOWN_MARK}"), reverse=True):
        name = mark.parent.name
        config = resolve(LaunchConfig, {**chosen, "base_run_name": name}, source=source).config
        with suppress(UsageError):
            if _find_finished_launch(config, _make_launch_id(config)) is not None:
                return name
    return None


def mark_launch_shown(prepared: PreparedLaunch) -> None:
    """Record that the result was shown, so that the same command starts a new launch."""
    (prepared.config.benchmark_folder / _UNSHOWN_MARK).unlink(missing_ok=True)


def launch_prepared(
    prepared: PreparedLaunch,
    *,
    observer: "RunObserver | None" = None,
    stop: "Stop | None" = None,
) -> LaunchResult:
    """Execute a launch that `prepare_launch` returned, after writing its manifest."""
    from assay.runs.control import Retries
    from assay.runs.events import SILENT
    from assay.runs.run import execute_run, make_finished_result
    from assay.training.launch.manifest import locate_trainer, write_launch_manifest
    from assay.types import TrialState

    config, run, kind = prepared.config, prepared.run, prepared.kind
    if config.command is None and not prepared.finished:
        from assay.training.config import require_training_packages

        require_training_packages(
            str((config.training or {}).get("wandb", "off")), config.environment
        )
    if prepared.finished:
        result = make_finished_result(run.record.id, config.database)
    else:
        trainer = locate_trainer(config.command is None)
        write_launch_manifest(
            config.benchmark_folder,
            prepared.manifest,
            trainer,
            prepared.changes,
            prepared.difference,
        )
        (config.benchmark_folder / _UNSHOWN_MARK).touch()
        result = execute_run(
            run,
            kind,
            executor=_make_executor(config),
            retries=Retries(attempts=config.retries + 1),
            observer=observer or SILENT,
            stop=stop,
        )
    # A killed process may have left sessions without curves.
    with store_at(config.database).writing() as connection:
        kind.on_stored(run.record, connection)
    states = {seed.run_id: kind.states.get(seed.run_id) for seed in prepared.seeds}
    return LaunchResult(
        result,
        config.base_run_name,
        tuple(
            run_id
            for run_id in prepared.manifest.run_ids
            if states.get(run_id, TrialState.RESULT) is TrialState.RESULT
        ),
        tuple(name for name, state in states.items() if state is TrialState.INFRASTRUCTURE),
        tuple(name for name, state in states.items() if state is TrialState.FAILURE),
    )


def _make_executor(config: "LaunchConfig") -> "TrialExecutor":
    from assay.runs.executor_choice import make_executor
    from assay.runs.executors import InProcessExecutor

    if config.command is not None and config.executor == "processes":
        return InProcessExecutor()  # each command runs in a separate process already
    return make_executor(config.make_run_settings(), _HANG_S, max_trials=1)


def skypilot_tasks(prepared: PreparedLaunch, *, gpus: int, accelerator: str) -> SkyLaunch:
    """Build and check the SkyPilot tasks of a launch, one for each seed."""
    from assay.training.launch.skypilot import check_tasks, make_task

    extra = _ICL_ENVIRONMENT if prepared.config.environment == _ICL_ENVIRONMENT else "train"
    tasks = tuple(
        make_task(seed.run_id, words, gpus=gpus, accelerator=accelerator, extra=extra)
        for seed, words in zip(prepared.seeds, prepared.commands, strict=True)
    )
    return SkyLaunch(tasks, check_tasks(tasks))


def launch_on_skypilot(
    prepared: PreparedLaunch, sky: SkyLaunch, *, notice: Callable[[str], None]
) -> Sequence[str]:
    """Submit every seed to SkyPilot as a managed job; return the names of the jobs.

    Raises:
        UsageError: It is not installed, cannot access a cloud, or rejects a task.
    """
    from assay.training.launch.manifest import locate_trainer, write_launch_manifest
    from assay.training.launch.skypilot import format_yaml

    program = which("sky")
    if program is None:
        raise UsageError(
            "--skypilot needs SkyPilot, and the program 'sky' was not found; install it in a "
            "separate environment, such as with pipx install skypilot, and run 'sky check' to "
            "list the clouds it can use; --dry-run shows the tasks without it"
        )
    config = prepared.config
    trainer = locate_trainer(config.command is None)
    write_launch_manifest(
        config.benchmark_folder,
        prepared.manifest,
        trainer,
        prepared.changes,
        prepared.difference,
    )
    names: list[str] = []
    for task in sky.tasks:
        file = config.benchmark_folder / "skypilot" / f"{task['name']}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(format_yaml(task), "utf-8")
        done = subprocess.run(
            [
                program,
                "jobs",
                "launch",
                "--yes",
                "--detach-run",
                "--name",
                task["name"],
                str(file),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            output = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise UsageError(
                f"SkyPilot rejected {task['name']}: "
                f"{output[-1] if output else done.returncode}; "
                f"run 'sky check' to list the clouds it can use; launched so far: {len(names)}"
            )
        names.append(str(task["name"]))
        notice(f"{task['name']} was launched")
    return names

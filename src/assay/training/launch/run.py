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
from assay.training.launch.options import BenchmarkOptions, ResumeOptions

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
_ICL = "mettagrid"
_UNSHOWN = "unshown"
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
        from assay.training.launch.kind import trainer_of

        trainer = trainer_of(self.config)
        return [
            trainer.command_of(seed, self.config.place / seed.run_id) for seed in self.seeds
        ]

    @property
    def recipe(self) -> str:
        """Description of the training recipe."""
        config = self.config
        if config.command is not None:
            return f"the command that was given, on {config.environment}/{config.curriculum}"
        if config.environment == _ICL:
            return f"ICL: resource chains to be discovered in the episode, {config.curriculum}"
        return (
            f"PPO on worlds of {config.environment}, {config.curriculum}; the ICL recipe of "
            f"resource chains is --environment {_ICL}"
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
    """Train the same for many seeds; the same call again finishes what was left.

    Settings have the names of `LaunchConfig`: architecture, curriculum, environment, seeds,
    command, parallel, retries, executor, ray_address, folder and database.

    Args:
        config: A TOML file for our trainer, as `assay.train` takes it.
        training: Settings of our trainer by name; they count before the file.
        benchmark: What it is called and compared with.
        start: Which launch is continued, if any.
        listen: Callback for events of `assay.runs`.
        notice: Callback for messages.
        **settings: What to choose; the rest has its default.
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
    launch_shown(prepared)
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
    """Settle what a launch would do, and check all that can be checked; starts nothing.

    Args:
        settings: What to choose, by the names of `LaunchConfig`; None means not chosen.
        training: The same for our trainer, by those of `TrainingConfig`.
        file: A TOML file for our trainer.
        benchmark: What it is called and compared with.
        start: Which launch is continued, if any.
        command: The command line, for the record.
        source: Who gives the settings, for messages.
    """
    from assay.runs.kind import PreparedRun
    from assay.runs.prepare import make_run_record, prepare_run
    from assay.training.launch.kind import LaunchConfig, arms_of

    base_run_name, resume, extend = benchmark.base_run_name, start.resume, start.extend
    given = {name: value for name, value in settings.items() if value is not None}
    if sum(name is not None for name in (base_run_name, resume, extend)) > 1:
        raise UsageError("--base-run-name, --resume and --extend each name a launch; give one")
    before = None
    if extend is not None:
        before, given = _extended(extend, given)
        base_run_name = extend
    elif resume is None:
        given = _with_training(given, training or {}, file, source)
    rest: dict[str, Any] = {"command": command, "fresh": start.fresh, "source": source}
    run: PreparedRun[LaunchConfig] | None = None
    if resume is not None or base_run_name is None:
        run = prepare_run(LaunchConfig, arms_of, given, resume=resume, **rest)
    finished = None
    if run is None or run.resumed is None:
        if base_run_name is None and not start.fresh:
            base_run_name = _unshown(given, source)
        given["base_run_name"] = base_run_name or time.strftime("icl_benchmark_%Y%m%d_%H%M%S")
        resolved = resolve(LaunchConfig, given, source=source)
        config, name = resolved.config, _launch_id(resolved.config)
        if not start.fresh:
            finished = _finished(config, name)
        if finished is None:
            run = prepare_run(LaunchConfig, arms_of, given, run_id=name, **rest)
        else:
            arms = arms_of(config)
            record = make_run_record(config, arms, name, command)
            record = replace(record, created_at=finished.created_at)
            run = PreparedRun(config, record, arms, None, resolved.sources, resolved.warnings)
    if run.resumed is not None:
        kept = run.resumed.record.configuration
        began = replace(
            run.config, base_run_name=kept["base_run_name"], folder=Path(kept["folder"])
        )
        run = replace(run, config=began)
    settled = _settled(run, before, benchmark)
    return replace(settled, finished=finished is not None)


def _settled(
    run: "PreparedRun[LaunchConfig]",
    before: "LaunchManifest | None",
    benchmark: BenchmarkOptions,
) -> PreparedLaunch:
    from assay.store.training_tables import series_experiment
    from assay.training.launch.kind import TrainingKind, seeds_of
    from assay.training.launch.manifest import (
        LaunchManifest,
        LaunchSet,
        differences,
        latest_manifest,
        read_launch_manifest,
        trainer_changes,
        trainer_place,
    )

    config = run.config
    # All runs of a benchmark belong to one experiment, however often it is extended.
    experiment = series_experiment(config.base_run_name, config.architecture)
    run = replace(run, record=replace(run.record, experiments=(experiment,)))
    place = trainer_place(config.command is None)
    last = latest_manifest(config.folder, config.base_run_name)
    control = benchmark.control
    compared = None if control is None else read_launch_manifest(config.folder, control)
    plain: Mapping[str, Any] = _defaults(config) if compared is None else compared.configuration
    seeds = seeds_of(config, run.record.id)
    new = LaunchSet(
        run.record.id,
        run.record.created_at,
        config.seeds,
        tuple(seed.run_id for seed in seeds),
        place.commit,
    )
    earlier = _earlier_sets(config, before, run.record.id)
    manifest = LaunchManifest(
        config.base_run_name,
        config.architecture,
        config.stored(),
        place.commit,
        (*earlier, new),
    )
    facts = {
        "launch": {
            "id": run.record.id,
            "base_run_name": config.base_run_name,
            "seeds": len(manifest.seeds),
            "extended_from": config.extended_from,
            "trainer_commit": place.commit,
            "trainer_changed": bool(place.dirty),
            "manifest": str(config.place.absolute() / "manifest"),
        }
    }
    return PreparedLaunch(
        run,
        TrainingKind(config, facts),
        seeds,
        manifest,
        trainer_changes(place, benchmark.since, last),
        tuple(differences(config.stored(), plain)),
        control,
    )


def _earlier_sets(
    config: "LaunchConfig", before: "LaunchManifest | None", launch_id: str
) -> Any:
    """Return the sets of a benchmark before this one."""
    from assay.training.launch.manifest import read_launch_manifest

    if before is None and config.extended_from:
        before = read_launch_manifest(config.folder, config.base_run_name)
    sets = () if before is None else before.sets
    return tuple(part for part in sets if part.launch != launch_id)


def _defaults(config: "LaunchConfig") -> dict[str, Any]:
    from assay.training.launch.kind import LaunchConfig

    training = _training_settings({}, None, COMMAND_LINE) if config.command is None else None
    return LaunchConfig(training=training).stored()


def _training_settings(
    training: Mapping[str, Any], file: Path | None, source: str
) -> dict[str, Any]:
    from assay.training.config import TrainingConfig

    resolved = resolve(TrainingConfig, training, file, source=source).config.resolved()
    return {name: value for name, value in resolved.stored().items() if name != "seed"}


def _with_training(
    given: dict[str, Any], training: Mapping[str, Any], file: Path | None, source: str
) -> dict[str, Any]:
    """Return the settings of a launch with the checked settings of its trainer."""
    from assay.training.launch.kind import chosen_seeds
    from assay.training.trainers import PLACEHOLDERS, command_words

    names = ("architecture", "curriculum", "environment")
    given = {**given, "seeds": chosen_seeds(given.get("seeds", ()))}
    if given.get("command") is not None:
        command_words(given["command"], dict.fromkeys(PLACEHOLDERS, "x"))
        said = [name for name, value in training.items() if value is not None]
        if said or file is not None:
            what = f"--{said[0].replace('_', '-')}" if said else str(file)
            raise UsageError(
                f"{what} is for our trainer, and --command names another; put it into that"
            )
        return given
    chosen = {name: given[name] for name in names if name in given}
    if "seed" in training and training["seed"] is not None:
        raise UsageError("a launch has many seeds; give --seeds, or use 'assay train --seed'")
    settled = _training_settings({**training, **chosen}, file, source)
    return {**given, **{name: settled[name] for name in names}, "training": settled}


def _extended(name: str, given: Mapping[str, Any]) -> "tuple[LaunchManifest, dict[str, Any]]":
    """Return an existing benchmark, and the settings of a launch for the seeds it lacks."""
    from assay.training.launch.kind import SEEDS, LaunchConfig, chosen_seeds
    from assay.training.launch.manifest import read_launch_manifest

    folder = Path(given.get("folder", "training"))
    manifest = read_launch_manifest(folder, name)
    allowed = ("seeds", "folder", "database", "parallel", "retries", "executor", "ray_address")
    for setting in given:
        if setting not in allowed:
            raise UsageError(
                f"--extend takes all settings of {name!r}, so that its runs belong together; "
                f"leave out --{setting.replace('_', '-')}"
            )
    wanted = chosen_seeds(given.get("seeds", (len(SEEDS),)))
    there = manifest.seeds
    if missing := [seed for seed in there if seed not in wanted]:
        raise UsageError(
            f"{name!r} has seed {missing[0]}, which --seeds leaves out; an extended set keeps "
            f"all its runs: give {len(there) + 1} to {len(SEEDS)}, or these seeds and more"
        )
    new = tuple(seed for seed in wanted if seed not in there)
    if not new and len(manifest.sets) > 1:
        # The same command was repeated, for the last set.
        new = manifest.sets[-1].seeds
        there = tuple(seed for seed in there if seed not in new)
    if not new:
        raise UsageError(
            f"{name!r} has all of these {len(wanted)} seeds; give --seeds a number from "
            f"{len(there) + 1} to {len(SEEDS)}"
        )
    kept = {
        setting: value
        for setting, value in manifest.configuration.items()
        if setting in LaunchConfig.counted() and setting not in ("seeds", "extended_from")
    }
    return manifest, {**kept, **given, "seeds": new, "extended_from": len(there)}


def _launch_id(config: "LaunchConfig") -> str:
    more = f".to{config.extended_from + len(config.seeds)}" if config.extended_from else ""
    return f"{config.base_run_name}.{config.architecture}{more}"


def _finished(config: "LaunchConfig", launch_id: str) -> "StoredRun | None":
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
            f"--extend {name} --seeds 30 adds seeds to it, another --base-run-name launches "
            "anew"
        )
    return stored


def _unshown(given: Mapping[str, Any], source: str) -> str | None:
    """Return the base name of a finished launch like this one that was not shown, if any."""
    from assay.training.launch.kind import LaunchConfig

    folder = resolve(LaunchConfig, given, source=source).config.folder
    for mark in sorted(folder.glob(f"*/{_UNSHOWN}"), reverse=True):
        name = mark.parent.name
        config = resolve(LaunchConfig, {**given, "base_run_name": name}, source=source).config
        with suppress(UsageError):
            if _finished(config, _launch_id(config)) is not None:
                return name
    return None


def launch_shown(prepared: PreparedLaunch) -> None:
    """Record that the result was shown, so that the same command starts a new launch."""
    (prepared.config.place / _UNSHOWN).unlink(missing_ok=True)


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
    from assay.training.launch.manifest import trainer_place, write_launch_manifest
    from assay.types import TrialState

    config, run, kind = prepared.config, prepared.run, prepared.kind
    if config.command is None and not prepared.finished:
        from assay.training.config import require_train

        require_train(str((config.training or {}).get("wandb", "off")), config.environment)
    if prepared.finished:
        result = make_finished_result(run.record.id, config.database)
    else:
        place = trainer_place(config.command is None)
        write_launch_manifest(
            config.place, prepared.manifest, place, prepared.changes, prepared.difference
        )
        (config.place / _UNSHOWN).touch()
        result = execute_run(
            run,
            kind,
            executor=_executor(config),
            retries=Retries(attempts=config.retries + 1),
            observer=observer or SILENT,
            stop=stop,
        )
    # A killed process may have left sessions without curves.
    with store_at(config.database).writing() as connection:
        kind.on_stored(run.record, connection)
    ours = {seed.run_id: kind.states.get(seed.run_id) for seed in prepared.seeds}
    return LaunchResult(
        result,
        config.base_run_name,
        tuple(
            run_id
            for run_id in prepared.manifest.run_ids
            if ours.get(run_id, TrialState.RESULT) is TrialState.RESULT
        ),
        tuple(name for name, state in ours.items() if state is TrialState.INFRASTRUCTURE),
        tuple(name for name, state in ours.items() if state is TrialState.FAILURE),
    )


def _executor(config: "LaunchConfig") -> "TrialExecutor":
    from assay.runs.executor_choice import make_executor
    from assay.runs.executors import InProcessExecutor

    if config.command is not None and config.executor == "processes":
        return InProcessExecutor()  # each command runs in a separate process already
    return make_executor(config.make_run_settings(), _HANG_S, max_trials=1)


def skypilot_tasks(prepared: PreparedLaunch, *, gpus: int, accelerator: str) -> SkyLaunch:
    """Build and check the SkyPilot tasks of a launch, one for each seed."""
    from assay.training.launch.skypilot import check_tasks, sky_task

    extra = _ICL if prepared.config.environment == _ICL else "train"
    tasks = tuple(
        sky_task(seed.run_id, words, gpus=gpus, accelerator=accelerator, extra=extra)
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
    from assay.training.launch.manifest import trainer_place, write_launch_manifest
    from assay.training.launch.skypilot import as_yaml

    program = which("sky")
    if program is None:
        raise UsageError(
            "--skypilot needs SkyPilot, and there is no program 'sky': install it in an "
            "environment of its own, such as by pipx install skypilot; then 'sky check' says "
            "which clouds it may use; --dry-run shows the tasks without it"
        )
    config = prepared.config
    place = trainer_place(config.command is None)
    write_launch_manifest(
        config.place, prepared.manifest, place, prepared.changes, prepared.difference
    )
    names: list[str] = []
    for task in sky.tasks:
        file = config.place / "skypilot" / f"{task['name']}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(as_yaml(task), "utf-8")
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
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise UsageError(
                f"SkyPilot refuses {task['name']}: {said[-1] if said else done.returncode}; "
                f"'sky check' says which clouds it may use; {len(names)} were launched"
            )
        names.append(str(task["name"]))
        notice(f"{task['name']} is launched")
    return names

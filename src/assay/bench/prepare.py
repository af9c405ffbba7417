"""Preparation of a benchmark: checks before anything is started, the plan, and its cost."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from assay.agents.chat_models import check_reachable, is_builtin, make_model, make_pool
from assay.bench.attempt import make_entry_agent, make_sandbox_setup, resolve_limits
from assay.bench.base import Allowed
from assay.bench.coders.programs import read_agent_file
from assay.bench.config import (
    BenchConfig,
    TaskEntry,
    find_agent_files,
    find_overrides,
    make_arm_labels,
    make_arms,
    read_benchmark,
)
from assay.bench.kind import list_specs
from assay.bench.manifest import RolloutFolder, claim_rollout, read_manifest
from assay.bench.options import TaskReplacements
from assay.bench.rollouts import find_rollout
from assay.bench.task import PYTHON, BaseImages, RunnableTask
from assay.bench.task_layouts import load_any_task
from assay.core.aio import run_in_own_loop
from assay.core.canonical_json import content_hash
from assay.core.options import takes_options
from assay.core.text import counted
from assay.errors import SandboxUnavailable, UsageError
from assay.models.budget import Budget
from assay.models.pool import ModelPool
from assay.runs.configuration import list_differences
from assay.runs.kind import PreparedRun
from assay.runs.options import WhichRun
from assay.runs.prepare import find_stored_run, prepare_run
from assay.sandboxes.backends import choose_backend
from assay.sandboxes.base import ResourceLimits, SandboxBackend
from assay.sandboxes.egress import describe_network
from assay.sandboxes.modal.backend import ModalBackend, check_program
from assay.sandboxes.self_test import verify_enforcement
from assay.types import ChatModel

UNSHOWN = "unshown"
"""Name of a file next to the manifest that exists until the result has been shown."""


@dataclass(frozen=True, slots=True)
class PreparedBench:
    """A benchmark that is ready to start."""

    run: PreparedRun[BenchConfig]
    tasks: tuple[RunnableTask, ...]
    """Task of each entry of the file."""
    backends: Mapping[str, SandboxBackend]
    """Sandbox backends by their names in the file."""
    finished: bool = False
    """Whether an earlier process finished the run but ended before it showed the result."""

    @property
    def config(self) -> BenchConfig:
        """All settings."""
        return self.run.config

    @property
    def trials(self) -> int:
        """Number of trials."""
        return sum(entry.rollouts for entry in self.config.tasks)

    @property
    def folder(self) -> RolloutFolder:
        """Folder of its files."""
        return RolloutFolder(self.config.data_dir, self.config.name, self.config.stamp)


@takes_options
def prepare_bench(
    file: Path | None,
    settings: Mapping[str, Any],
    *,
    command: str = "",
    replacements: TaskReplacements,
    which: WhichRun,
    dry: bool = False,
    source: str = "command line",
    models: Mapping[str, ChatModel] | None = None,
) -> PreparedBench:
    """Decide and check everything about a benchmark that can be checked; start nothing.

    Args:
        file: The TOML file; None for a run that is resumed.
        settings: Values by the names of `BenchConfig`; None means not set.
        command: The command line, for the record.
        replacements: Values that apply to every task.
        which: A new run, or an unfinished one.
        dry: Leave out what only a run needs: keys, sandboxes, a folder.
        source: Origin of the settings, for error messages and the record.
        models: Models given by the calling program, by name.
    """
    values = {name: value for name, value in settings.items() if value is not None}
    if file is not None:
        file_values = read_benchmark(file, replacements=replacements)
        entries = tuple(TaskEntry(**entry) for entry in file_values["tasks"])
        merged = {**file_values, **values}
        keys = [key for key in ("allow_repos", "allow_variables") if key in merged]
        tasks = _load_tasks(entries, BenchConfig(**{key: merged[key] for key in keys}).allowed)
        hashes = [
            content_hash(read_agent_file(spec)) for spec in find_agent_files(entries).values()
        ]
        checksums = [task.definition.checksum for task in tasks]
        values = {**file_values, "checksums": checksums, "agent_hashes": hashes, **values}
    prepared: PreparedRun[BenchConfig] = prepare_run(
        BenchConfig,
        make_arms,
        values,
        command=command,
        which=which,
        source=source,
    )
    if file is not None and prepared.resumed is not None:
        # A repeated command resumes its run in the folders where it started.
        kept = prepared.resumed.record.configuration
        config = replace(prepared.config, stamp=kept["stamp"], data_dir=Path(kept["data_dir"]))
        prepared = replace(prepared, config=config)
    if prepared.resumed is None and not (which.fresh or dry):
        unshown = _find_unshown_run(prepared)
        if unshown is not None:
            return PreparedBench(unshown, tasks, {}, finished=True)
    config = prepared.config
    tasks = _load_tasks(config.tasks, config.allowed)
    _check_tasks(config, tasks)
    backends = {entry.sandbox: choose_backend(entry.sandbox) for entry in config.tasks}
    notes = (*prepared.warnings, *_describe_network(config, tasks))
    prepared = replace(prepared, warnings=notes)
    if dry:
        warnings = (
            *notes,
            *_list_missing_keys(config, models or {}),
            *_describe_remote_sandboxes(config, tasks, backends),
        )
        prepared = replace(prepared, warnings=warnings)
    else:
        # Check the user's input before the state of this machine.
        _check_models(config, models or {}, reach=False)
        unenforced = _check_sandboxes(config, tasks, backends)
        prepared = replace(prepared, warnings=(*prepared.warnings, *unenforced))
        _check_models(config, models or {}, reach=True)
        _check_python(config, tasks, backends)
        if prepared.resumed is None:
            stamp = claim_rollout(config.data_dir, config.name).stamp
            stamped = replace(config, stamp=stamp)
            record = replace(prepared.record, configuration=stamped.stored())
            prepared = replace(prepared, config=stamped, record=record)
    return PreparedBench(prepared, tasks, backends)


def prepare_bench_resume(
    rollout: str,
    settings: Mapping[str, Any],
    *,
    command: str = "",
    models: Mapping[str, ChatModel] | None = None,
) -> PreparedBench:
    """Prepare the rest of an interrupted benchmark.

    Args:
        rollout: A name (its latest rollout), `name@stamp`, a tag, or a path.
        settings: `data_dir`, the folder of benchmarks, and the settings that may change:
            `database`, `parallel` and `budget`; None means not set.
        command: The command line, for the record.
        models: Models given by the calling program, by name.
    """
    manifest = find_rollout(rollout, settings.get("data_dir") or Path("data")).manifest
    if manifest.finished:
        raise UsageError(
            f"{manifest.name}@{manifest.created_at} is finished; "
            f"'assay bench summarize {manifest.name} --rollout {manifest.created_at}' shows it"
        )
    database = settings.get("database") or Path(manifest.database)
    return prepare_bench(
        None,
        {**settings, "database": database},
        command=command,
        resume=manifest.run,
        models=models,
    )


def _find_unshown_run(prepared: PreparedRun[BenchConfig]) -> PreparedRun[BenchConfig] | None:
    """Find a finished run with these settings whose result has not been shown yet."""
    config = prepared.config
    folder = config.data_dir / "rollouts" / config.name
    for marker in sorted(folder.glob(f"*/{UNSHOWN}"), reverse=True):
        manifest = read_manifest(marker.parent)
        stored = find_stored_run(config.database, manifest.run)
        if (
            stored is not None
            and stored.status == "finished"
            and not list_differences(BenchConfig, stored.configuration, config.stored())
        ):
            return replace(
                prepared,
                config=replace(config, stamp=manifest.created_at),
                record=replace(prepared.record, id=stored.id),
            )
    return None


def _load_tasks(entries: Sequence[TaskEntry], allowed: Allowed) -> tuple[RunnableTask, ...]:
    """Load the task of each entry; a folder with the same overrides is read once."""
    loaded: dict[tuple[str, Path | None], RunnableTask] = {}
    tasks = []
    for entry in entries:
        key = (entry.prepared_dir, find_overrides(entry))
        if key not in loaded:
            loaded[key] = load_any_task(Path(entry.prepared_dir), key[1], allowed)
        tasks.append(loaded[key])
    folders: dict[str, str] = {}
    for entry, task in zip(entries, tasks, strict=True):
        task_id = task.definition.task_id
        other = folders.setdefault(task_id, entry.prepared_dir)
        if Path(other).resolve() != Path(entry.prepared_dir).resolve():
            raise UsageError(
                f"{other} and {entry.prepared_dir} both contain a task {task_id!r}; "
                "change task_id in one tb_meta.json, or the name in one task.toml"
            )
    return tuple(tasks)


def _check_tasks(config: BenchConfig, tasks: Sequence[RunnableTask]) -> None:
    """Raise UsageError if a task changed since the run began, or does not suit its agent."""
    for entry, checksum, task in zip(config.tasks, config.checksums, tasks, strict=True):
        if checksum != task.definition.checksum:
            raise UsageError(
                f"{entry.prepared_dir} changed after the run started; restore it and "
                "resume, or start a new run with --fresh"
            )
        agent = make_entry_agent(entry, config)
        if agent.needs_model and entry.model is None:
            raise UsageError(
                f"{entry.prepared_dir}: agent {entry.agent!r} needs a model, but the task "
                "has none; add the key model"
            )
        if agent.runs_inside and entry.sandbox == "none":
            raise UsageError(
                f"{entry.prepared_dir}: agent {entry.agent!r} must be mounted in its sandbox, "
                "which 'none' cannot do; use bubblewrap, docker or modal"
            )
        if agent.program is not None and entry.sandbox == ModalBackend.name:
            check_program(agent.name)
        if entry.agent == "oracle" and not task.definition.has_reference:
            raise UsageError(
                f"{entry.prepared_dir} has no reference solution for the agent 'oracle'; add "
                f"{task.reference_file}"
            )


def _check_sandboxes(
    config: BenchConfig, tasks: Sequence[RunnableTask], backends: Mapping[str, SandboxBackend]
) -> list[str]:
    """Check that every task can run and be graded here; return unenforced limits."""
    images = BaseImages.parse(config.base_images, network=config.build_network)
    unenforced: dict[str, None] = {}
    for entry, task in zip(config.tasks, tasks, strict=True):
        backend = backends[entry.sandbox]
        task.check_runnable(backend, images, judged=config.judge is not None)
        limits = resolve_limits(task.definition, entry, config.allow_network)
        enforcement = verify_enforcement(backend, limits)
        if missing := enforcement.self_test.partition("; not held: ")[2]:
            unenforced[f"sandbox {backend.name!r} does not enforce a limit: {missing}"] = None
    return [*unenforced]


def _check_python(
    config: BenchConfig, tasks: Sequence[RunnableTask], backends: Mapping[str, SandboxBackend]
) -> None:
    """Raise UsageError if a Python agent's image lacks Python; this may build the image."""
    for entry, task in zip(config.tasks, tasks, strict=True):
        if config.get_agent_hash(entry.agent) is None or task.image is None:
            continue
        limits = resolve_limits(task.definition, entry, config.allow_network)
        with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
            settings = make_sandbox_setup(
                entry, config, backends[entry.sandbox], limits, Path(folder)
            )
            if not run_in_own_loop(partial(task.has_python, settings)):
                raise UsageError(
                    f"agent {entry.agent!r} needs {PYTHON} in {task.image}, which does not "
                    "have it; install it in environment/Dockerfile, or use react-coder"
                )


def _check_models(config: BenchConfig, models: Mapping[str, ChatModel], *, reach: bool) -> None:
    settings = config.make_model_settings()
    pool = make_pool(settings, None if config.budget is None else Budget(config.budget))
    try:
        make_models(config, pool, models)
        if reach:
            check_reachable(pool, settings)
    finally:
        pool.close()


def _list_missing_keys(config: BenchConfig, models: Mapping[str, ChatModel]) -> tuple[str, ...]:
    """Describe what must be set before the models can be called."""
    pool = make_pool(config.make_model_settings())
    try:
        entries = [
            pool.entry(name, retired=True)
            for name in _list_called_models(config, models)
            if name not in models
        ]
        return tuple(dict.fromkeys(hint for entry in entries for hint in pool.missing(entry)))
    finally:
        pool.close()


def _describe_remote_sandboxes(
    config: BenchConfig, tasks: Sequence[RunnableTask], backends: Mapping[str, SandboxBackend]
) -> tuple[str, ...]:
    """Describe the sandboxes on other machines, and the tasks that need another sandbox."""
    plans = []
    for entry, task in zip(config.tasks, tasks, strict=True):
        backend = backends[entry.sandbox]
        if isinstance(backend, ModalBackend):
            limits = resolve_limits(task.definition, entry, config.allow_network)
            plans.append(backend.plan(limits, task.image))
        elif task.image is not None:
            try:
                task.check_runnable(backend, BaseImages(names={}), judged=False)
            except UsageError as error:
                plans.append(f"{task.definition.task_id}: {error}")
    return tuple(dict.fromkeys(plans))


def _describe_network(config: BenchConfig, tasks: Sequence[RunnableTask]) -> tuple[str, ...]:
    """Describe which tasks have network access, and which request it but do not have it."""
    notes = []
    for entry, task in zip(config.tasks, [task.definition for task in tasks], strict=True):
        network = resolve_limits(task, entry, config.allow_network).network
        if entry.sandbox != "none" and network:
            notes.append(f"network of {task.task_id}: {describe_network(network)}")
        elif entry.sandbox != "none" and task.asks_network and entry.network is None:
            notes.append(
                f"{task.task_id} requests network access and does not have it; allow it with "
                "--allow-network public, or --allow-network HOST"
            )
    return tuple(dict.fromkeys(notes))


def make_models(
    config: BenchConfig, pool: ModelPool, models: Mapping[str, ChatModel]
) -> dict[str, ChatModel]:
    """Return the models that are called, by name: the caller's models, or from the pool."""
    settings = config.make_model_settings()
    return {
        name: models.get(name) or make_model(name, settings, pool)
        for name in _list_called_models(config, models)
    }


def _list_called_models(config: BenchConfig, models: Mapping[str, ChatModel]) -> list[str]:
    """Return the names of the models that are called."""
    # Agents that call no model may still be labelled with one.
    called = {
        entry.model for entry in config.tasks if make_entry_agent(entry, config).needs_model
    } | {config.judge}
    names, settings = sorted(filter(None, called)), config.make_model_settings()
    for name in names:
        if is_builtin(name, settings) and name not in models:
            raise UsageError(f"{name} plays Crafter and cannot write code; use another model")
    return names


@dataclass(frozen=True, slots=True)
class BenchEstimate:
    """Estimated cost of the trials of one arm."""

    arm: str
    trials: int
    usd: float | None
    """Cost of all trials in dollars; None if unknown."""
    because: str
    """Basis of the estimate, or the reason why it is unknown."""


def bench_plan(prepared: PreparedBench) -> dict[str, Any]:
    """Return the plan of a benchmark as data."""
    config = prepared.config
    labels = make_arm_labels(config)
    return {
        "name": config.name,
        "config": config.config_file,
        "parallel": config.parallel,
        "trials": prepared.trials,
        "tasks": [
            {
                "task_dir": entry.prepared_dir,
                "task_id": task.definition.task_id,
                "checksum": task.definition.checksum,
                "arm": arm,
                "rollouts": entry.rollouts,
            }
            for entry, task, arm in zip(config.tasks, prepared.tasks, labels, strict=True)
        ],
        "disk": _describe_disk_limits(prepared.backends),
        "estimates": [asdict(estimate) for estimate in estimate_bench(prepared)],
    }


def estimate_bench(prepared: PreparedBench) -> tuple[BenchEstimate, ...]:
    """Estimate the cost of each arm from its earlier trials, or else from its limits."""
    config = prepared.config
    trials: dict[str, list[TaskEntry]] = {}
    for spec in list_specs(config, prepared.run.record.id):
        trials.setdefault(spec.arm, []).append(config.tasks[spec.entry])
    earlier_costs = _read_earlier_costs(config)
    estimates = []
    for arm, entries in trials.items():
        n = len(entries)
        limits = [entry.cost_limit for entry in entries if entry.cost_limit is not None]
        if entries[0].model is None and config.judge is None:
            estimates.append(BenchEstimate(arm, n, 0.0, "no model is called"))
        elif arm in earlier_costs:
            mean = sum(earlier_costs[arm]) / len(earlier_costs[arm])
            basis = f"mean of {counted(len(earlier_costs[arm]), 'earlier trial')}"
            estimates.append(BenchEstimate(arm, n, mean * n, basis))
        elif len(limits) == n:
            estimates.append(BenchEstimate(arm, n, sum(limits), "at most, by cost_limit"))
        else:
            basis = "unknown before the first run; --budget and cost_limit limit it"
            estimates.append(BenchEstimate(arm, n, None, basis))
    return tuple(estimates)


def _read_earlier_costs(config: BenchConfig) -> dict[str, list[float]]:
    costs: dict[str, list[float]] = {}
    folder = config.data_dir / "rollouts" / config.name
    for path in sorted(folder.glob("*/manifest.json")):
        for result in read_manifest(path).results:
            if result.cost_usd is not None and result.model_calls:
                costs.setdefault(result.arm, []).append(result.cost_usd)
    return costs


def _describe_disk_limits(backends: Mapping[str, SandboxBackend]) -> dict[str, str]:
    """Return how each kind of sandbox on this machine limits disk space, or why it cannot."""
    limits = {}
    for name, backend in backends.items():
        if not isinstance(backend, ModalBackend):
            try:
                limits[name] = backend.enforcement(ResourceLimits()).disk
            except SandboxUnavailable as error:
                limits[name] = str(error)
    return limits

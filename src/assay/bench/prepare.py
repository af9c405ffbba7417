"""Preparation of a benchmark: checks before anything is started, the plan, and its cost."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from assay.agents.chat_models import (
    check_reachable,
    is_builtin,
    make_model,
    make_pool,
)
from assay.bench.attempt import coder_of, limits_of, workplace_of
from assay.bench.base import Allowed
from assay.bench.coders.python_agent import read_agent_file
from assay.bench.config import (
    BenchConfig,
    TaskEntry,
    agent_files,
    arm_labels,
    arms_of,
    overrides_of,
    read_benchmark,
)
from assay.bench.kind import specs_of
from assay.bench.manifest import (
    RolloutFolder,
    claim_rollout,
    read_manifest,
)
from assay.bench.options import TaskReplacements
from assay.bench.rollouts import select_rollout
from assay.bench.task import PYTHON, BaseImages, Task
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
    tasks: tuple[Task, ...]
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
    own: Mapping[str, ChatModel] | None = None,
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
        own: Models given by the calling program, by name.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    if file is not None:
        said = read_benchmark(file, replacements=replacements)
        entries = tuple(TaskEntry(**entry) for entry in said["tasks"])
        chosen = {**said, **given}
        names = [name for name in ("allow_repos", "allow_variables") if name in chosen]
        tasks = _load(entries, BenchConfig(**{name: chosen[name] for name in names}).allowed)
        hashes = [content_hash(read_agent_file(own)) for own in agent_files(entries).values()]
        checksums = [task.definition.checksum for task in tasks]
        given = {**said, "checksums": checksums, "agent_hashes": hashes, **given}
    prepared: PreparedRun[BenchConfig] = prepare_run(
        BenchConfig,
        arms_of,
        given,
        command=command,
        which=which,
        source=source,
    )
    if file is not None and prepared.resumed is not None:
        # A repeated command resumes its run in the folders where it started.
        kept = prepared.resumed.record.configuration
        began = replace(prepared.config, stamp=kept["stamp"], data_dir=Path(kept["data_dir"]))
        prepared = replace(prepared, config=began)
    if prepared.resumed is None and not (which.fresh or dry):
        shown_first = _unshown(prepared)
        if shown_first is not None:
            return PreparedBench(shown_first, tasks, {}, finished=True)
    config = prepared.config
    tasks = _load(config.tasks, config.allowed)
    _check_tasks(config, tasks)
    backends = {entry.sandbox: choose_backend(entry.sandbox) for entry in config.tasks}
    notes = (*prepared.warnings, *_network_notes(config, tasks))
    prepared = replace(prepared, warnings=notes)
    if dry:
        missing = (
            *notes,
            *_missing(config, own or {}),
            *_elsewhere(config, tasks, backends),
        )
        prepared = replace(prepared, warnings=missing)
    else:
        # Check the user's input before the state of this machine.
        _check_models(config, own or {}, reach=False)
        unheld = _check_sandboxes(config, tasks, backends)
        prepared = replace(prepared, warnings=(*prepared.warnings, *unheld))
        _check_models(config, own or {}, reach=True)
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
    own: Mapping[str, ChatModel] | None = None,
) -> PreparedBench:
    """Prepare the rest of an interrupted benchmark.

    Args:
        rollout: A name (its latest rollout), `name@stamp`, a tag, or a path.
        settings: `data_dir`, the folder of benchmarks, and the settings that may change:
            `database`, `parallel` and `budget`; None means not set.
        command: The command line, for the record.
        own: Models given by the calling program, by name.
    """
    manifest = select_rollout(rollout, settings.get("data_dir") or Path("data")).manifest
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
        own=own,
    )


def _unshown(prepared: PreparedRun[BenchConfig]) -> PreparedRun[BenchConfig] | None:
    """Find a finished run with these settings whose result has not been shown yet."""
    config = prepared.config
    folder = config.data_dir / "rollouts" / config.name
    for mark in sorted(folder.glob(f"*/{UNSHOWN}"), reverse=True):
        known = read_manifest(mark.parent)
        stored = find_stored_run(config.database, known.run)
        if (
            stored is not None
            and stored.status == "finished"
            and not list_differences(BenchConfig, stored.configuration, config.stored())
        ):
            return replace(
                prepared,
                config=replace(config, stamp=known.created_at),
                record=replace(prepared.record, id=stored.id),
            )
    return None


def _load(entries: Sequence[TaskEntry], allowed: Allowed) -> tuple[Task, ...]:
    """Load the task of each entry; a folder with the same overrides is read once."""
    known: dict[tuple[str, Path | None], Task] = {}
    tasks = []
    for entry in entries:
        key = (entry.prepared_dir, overrides_of(entry))
        if key not in known:
            known[key] = load_any_task(Path(entry.prepared_dir), key[1], allowed)
        tasks.append(known[key])
    folders: dict[str, str] = {}
    for entry, task in zip(entries, tasks, strict=True):
        task_id = task.definition.task_id
        other = folders.setdefault(task_id, entry.prepared_dir)
        if Path(other).resolve() != Path(entry.prepared_dir).resolve():
            raise UsageError(
                f"{other} and {entry.prepared_dir} both hold a task {task_id!r}; give one "
                "of them another task_id in its tb_meta.json, or another name in its task.toml"
            )
    return tuple(tasks)


def _check_tasks(config: BenchConfig, tasks: Sequence[Task]) -> None:
    """Raise UsageError if a task changed since the run began, or does not suit its agent."""
    for entry, known, task in zip(config.tasks, config.checksums, tasks, strict=True):
        if known != task.definition.checksum:
            raise UsageError(
                f"{entry.prepared_dir} was changed after the run began; put it back and "
                "resume, or start anew with --fresh"
            )
        coder = coder_of(entry, config)
        if coder.needs_model and entry.model is None:
            raise UsageError(
                f"{entry.prepared_dir}: agent {entry.agent!r} asks a model, and the task names "
                "none; add the key model"
            )
        if coder.runs_inside and entry.sandbox == "none":
            raise UsageError(
                f"{entry.prepared_dir}: agent {entry.agent!r} needs a sandbox that mounts what "
                "it is made of, and 'none' does not; use bubblewrap, docker or modal"
            )
        if coder.program is not None and entry.sandbox == ModalBackend.name:
            check_program(coder.name)
        if entry.agent == "oracle" and not task.definition.has_reference:
            raise UsageError(
                f"{entry.prepared_dir} has no reference solution for the agent 'oracle'; put "
                f"it there as {task.reference_file}"
            )


def _check_sandboxes(
    config: BenchConfig, tasks: Sequence[Task], backends: Mapping[str, SandboxBackend]
) -> list[str]:
    """Check that every task can run and be graded here; return unenforced limits."""
    images = BaseImages.of(config.base_images, network=config.build_network)
    unheld: dict[str, None] = {}
    for entry, task in zip(config.tasks, tasks, strict=True):
        backend = backends[entry.sandbox]
        task.check_runnable(backend, images, judged=config.judge is not None)
        limits = limits_of(task.definition, entry, config.allow_network)
        found = verify_enforcement(backend, limits)
        if missing := found.self_test.partition("; not held: ")[2]:
            unheld[f"sandbox {backend.name!r} does not hold a limit here: {missing}"] = None
    return [*unheld]


def _check_python(
    config: BenchConfig, tasks: Sequence[Task], backends: Mapping[str, SandboxBackend]
) -> None:
    """Raise UsageError if a Python agent's image lacks Python; this may build the image."""
    for entry, task in zip(config.tasks, tasks, strict=True):
        if config.agent_hash(entry.agent) is None or task.image is None:
            continue
        limits = limits_of(task.definition, entry, config.allow_network)
        with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
            place = workplace_of(entry, config, backends[entry.sandbox], limits, Path(folder))
            if not run_in_own_loop(partial(task.has_python, place)):
                raise UsageError(
                    f"agent {entry.agent!r} needs {PYTHON} in {task.image}, which has none; "
                    "add it to environment/Dockerfile, or use react-coder, which needs none"
                )


def _check_models(config: BenchConfig, own: Mapping[str, ChatModel], *, reach: bool) -> None:
    settings = config.make_model_settings()
    pool = make_pool(settings, None if config.budget is None else Budget(config.budget))
    try:
        make_models(config, pool, own)
        if reach:
            check_reachable(pool, settings)
    finally:
        pool.close()


def _missing(config: BenchConfig, own: Mapping[str, ChatModel]) -> tuple[str, ...]:
    """Describe what must be set before the models can be called."""
    pool = make_pool(config.make_model_settings())
    try:
        entries = [
            pool.entry(name, retired=True) for name in _asked(config, own) if name not in own
        ]
        return tuple(dict.fromkeys(words for each in entries for words in pool.missing(each)))
    finally:
        pool.close()


def _elsewhere(
    config: BenchConfig, tasks: Sequence[Task], backends: Mapping[str, SandboxBackend]
) -> tuple[str, ...]:
    """Describe the sandboxes on other machines, and the tasks that need another sandbox."""
    plans = []
    for entry, task in zip(config.tasks, tasks, strict=True):
        backend = backends[entry.sandbox]
        if isinstance(backend, ModalBackend):
            limits = limits_of(task.definition, entry, config.allow_network)
            plans.append(backend.plan(limits, task.image))
        elif task.image is not None:
            try:
                task.check_runnable(backend, BaseImages(names={}), judged=False)
            except UsageError as error:
                plans.append(f"{task.definition.task_id}: {error}")
    return tuple(dict.fromkeys(plans))


def _network_notes(config: BenchConfig, tasks: Sequence[Task]) -> tuple[str, ...]:
    """Describe which tasks have network access, and which request it but do not have it."""
    notes = []
    for entry, task in zip(config.tasks, [task.definition for task in tasks], strict=True):
        reached = limits_of(task, entry, config.allow_network).network
        if entry.sandbox != "none" and reached:
            notes.append(f"network of {task.task_id}: {describe_network(reached)}")
        elif entry.sandbox != "none" and task.asks_network and entry.network is None:
            notes.append(
                f"{task.task_id} asks for a network and gets none; allow it with "
                "--allow-network public, or with the hosts that it needs"
            )
    return tuple(dict.fromkeys(notes))


def make_models(
    config: BenchConfig, pool: ModelPool, own: Mapping[str, ChatModel]
) -> dict[str, ChatModel]:
    """Return the models that are called, by name: the caller's own, or from the pool."""
    settings = config.make_model_settings()
    return {
        name: own.get(name) or make_model(name, settings, pool) for name in _asked(config, own)
    }


def _asked(config: BenchConfig, own: Mapping[str, ChatModel]) -> list[str]:
    """Return the names of the models that are called."""
    # Agents that call no model may still be labelled with one.
    asking = {entry.model for entry in config.tasks if coder_of(entry, config).needs_model} | {
        config.judge
    }
    names, settings = sorted(filter(None, asking)), config.make_model_settings()
    for name in names:
        if is_builtin(name, settings) and name not in own:
            raise UsageError(f"{name} plays Crafter and cannot write code; name another model")
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
    labels = arm_labels(config)
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
        "disk": _disk_limits(prepared.backends),
        "estimates": [asdict(estimate) for estimate in estimate_bench(prepared)],
    }


def estimate_bench(prepared: PreparedBench) -> tuple[BenchEstimate, ...]:
    """Estimate the cost of each arm from its earlier trials, or else from its limits."""
    config = prepared.config
    trials: dict[str, list[TaskEntry]] = {}
    for spec in specs_of(config, prepared.run.record.id):
        trials.setdefault(spec.arm, []).append(config.tasks[spec.entry])
    before = _costs_before(config)
    estimates = []
    for arm, entries in trials.items():
        n = len(entries)
        limits = [entry.cost_limit for entry in entries if entry.cost_limit is not None]
        if entries[0].model is None and config.judge is None:
            estimates.append(BenchEstimate(arm, n, 0.0, "no model is asked"))
        elif arm in before:
            mean = sum(before[arm]) / len(before[arm])
            said = f"~, as in {counted(len(before[arm]), 'earlier trial')}"
            estimates.append(BenchEstimate(arm, n, mean * n, said))
        elif len(limits) == n:
            estimates.append(BenchEstimate(arm, n, sum(limits), "at most, by cost_limit"))
        else:
            said = "not known before it has run once; --budget and cost_limit bound it"
            estimates.append(BenchEstimate(arm, n, None, said))
    return tuple(estimates)


def _costs_before(config: BenchConfig) -> dict[str, list[float]]:
    costs: dict[str, list[float]] = {}
    folder = config.data_dir / "rollouts" / config.name
    for path in sorted(folder.glob("*/manifest.json")):
        for result in read_manifest(path).results:
            if result.cost_usd is not None and result.model_calls:
                costs.setdefault(result.arm, []).append(result.cost_usd)
    return costs


def _disk_limits(backends: Mapping[str, SandboxBackend]) -> dict[str, str]:
    """Return how each kind of sandbox on this machine limits disk space, or why it cannot."""
    held = {}
    for name, backend in backends.items():
        if not isinstance(backend, ModalBackend):
            try:
                held[name] = backend.enforcement(ResourceLimits()).disk
            except SandboxUnavailable as error:
                held[name] = str(error)
    return held

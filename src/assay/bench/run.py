"""Execution of coding benchmarks: combines tasks, sandboxes and models into a run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.agents.chat_models import make_pool
from assay.bench.kind import CodingKind, make_planned_results
from assay.bench.manifest import ArmEntry, Manifest, RolloutFolder, TrialResult, read_manifest
from assay.bench.prepare import UNSHOWN, PreparedBench, make_models, prepare_bench
from assay.core.provenance import collect_provenance
from assay.models.budget import Budget
from assay.runs.control import Retries, Stop
from assay.runs.events import (
    SILENT,
    CallbackObserver,
    Event,
    RetryLog,
    RunObserver,
    TrialProgress,
)
from assay.runs.executor_choice import make_executor
from assay.runs.run import RunResult, execute_run, make_finished_result
from assay.types import ChatModel, TrialState

_HANG_S = 600.0
"""A worker has hung if none of its threads runs for this many seconds."""


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Result of a benchmark."""

    manifest: Manifest
    folder: Path
    run: RunResult

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped on request; it can be resumed."""
        return self.run.interrupted


def bench_run(
    config: Path | str,
    *,
    models: Mapping[str, ChatModel] | None = None,
    model_map: Mapping[str, str] | None = None,
    agent: str | None = None,
    sandbox: str | None = None,
    fresh: bool = False,
    listen: Callable[[Event], None] | None = None,
    notice: Callable[[str], None] | None = None,
    **settings: Any,
) -> BenchResult:
    """Run the benchmark of a TOML file, and return its result.

    Like the command, it resumes the latest unfinished run of the same file and settings.

    Args:
        config: The TOML file.
        models: Your own models, by their names in the file.
        model_map: Replacements of models, by their names in the file.
        agent: Agent for every task, instead of those in the file.
        sandbox: Sandbox for every task, instead of those in the file.
        fresh: Start a new run even if there is an unfinished one.
        listen: Callback for events of `assay.runs`.
        notice: Callback for messages.
        **settings: Values by the names of `BenchConfig`; they override the file.
    """
    observer = CallbackObserver(listen, notice)
    prepared = prepare_bench(
        Path(config),
        settings,
        command="assay.bench_run(...)",
        model_map=model_map,
        agent=agent,
        sandbox=sandbox,
        fresh=fresh,
        source="assay.bench_run",
        models=models or {},
    )
    for warning in prepared.run.warnings:
        observer.on_message(warning)
    result = run_prepared_bench(prepared, observer=observer, models=models or {})
    mark_bench_shown(result)
    return result


def run_prepared_bench(
    prepared: PreparedBench,
    *,
    observer: RunObserver = SILENT,
    stop: Stop | None = None,
    models: Mapping[str, ChatModel] | None = None,
) -> BenchResult:
    """Execute a benchmark from `prepare_bench`."""
    config, run, folder = prepared.config, prepared.run, prepared.folder
    if prepared.finished:
        writer = _ManifestWriter(folder, replace(read_manifest(folder.path), finished=True))
        writer.write()
        result = make_finished_result(run.record.id, config.database)
        return BenchResult(writer.manifest, folder.path, result)
    budget = None if config.budget is None else Budget(config.budget)
    retries = RetryLog(observer)
    pool = make_pool(config.make_model_settings(), budget, retries)
    planned = make_planned_results(config, run.record.id, prepared.tasks, folder)
    manifest = folder.refresh(_make_manifest(prepared, planned))
    writer = _ManifestWriter(folder, manifest, observer)
    kind = CodingKind(
        config,
        run.arms,
        prepared.tasks,
        prepared.backends,
        make_models(config, pool, models or {}),
        folder,
        planned,
    )
    try:
        result = execute_run(
            run,
            kind,
            executor=make_executor(run.settings, _HANG_S),
            retries=Retries(),
            pool=pool,
            observer=writer,
            stop=stop,
        )
    finally:
        pool.close()
    writer.manifest = replace(writer.manifest, finished=result.status == "finished")
    writer.write()
    return BenchResult(writer.manifest, folder.path, replace(result, last_trouble=retries.last))


def mark_bench_shown(result: BenchResult) -> None:
    """Record that the result was shown, so that the same command starts a new run."""
    (result.folder / UNSHOWN).unlink(missing_ok=True)


def count_bench_trials(manifest: Manifest) -> dict[str, int]:
    """Count the trials of a benchmark by how they ended."""
    states = [result.state for result in manifest.results]
    return {
        "trials": len(states),
        "completed": states.count(TrialState.RESULT) + states.count(TrialState.FAILURE),
        "infrastructure": states.count(TrialState.INFRASTRUCTURE),
        "pending": states.count(None),
    }


class _ManifestWriter(RunObserver):
    """Updates the manifest as trials end, and forwards all events and messages."""

    def __init__(
        self, folder: RolloutFolder, manifest: Manifest, observer: RunObserver = SILENT
    ) -> None:
        self._folder, self.manifest, self._observer = folder, manifest, observer

    def on_locked(self) -> None:
        """Write the first manifest, after the run is locked and can be resumed."""
        self.write()
        (self._folder.path / UNSHOWN).touch()

    def on_event(self, event: Event) -> None:
        """Write the result of a trial, if the event has one."""
        if isinstance(event, TrialProgress) and isinstance(event.payload, TrialResult):
            self._add_result(event.payload)
        self._observer.on_event(event)

    def on_message(self, message: str) -> None:
        """Forward the message."""
        self._observer.on_message(message)

    def _add_result(self, result: TrialResult) -> None:
        self._folder.write_result(result)
        results = tuple(
            result if entry.run_id == result.run_id else entry
            for entry in self.manifest.results
        )
        self.manifest = replace(self.manifest, results=results)
        self.write()

    def write(self) -> None:
        """Write the manifest, with the tags that were added in the meantime."""
        if (self._folder.path / "manifest.json").is_file():
            tags = read_manifest(self._folder.path).tags
            self.manifest = replace(self.manifest, tags=tags)
        self._folder.write(self.manifest)


def _make_manifest(prepared: PreparedBench, planned: Sequence[TrialResult]) -> Manifest:
    config, run = prepared.config, prepared.run
    return Manifest(
        config=config.config_file,
        name=config.name,
        created_at=config.stamp,
        results=tuple(planned),
        arms=tuple(
            ArmEntry(
                label=arm.label, agent=str(arm.agent), model=arm.model, settings=arm.settings
            )
            for arm in run.arms
        ),
        run=run.record.id,
        database=str(config.database),
        parallel=config.parallel,
        provenance=collect_provenance().record(),
        configuration=config.stored(),
    )

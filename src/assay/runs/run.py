"""Execution of a prepared run: runs its trials, stores them, and writes its files.

If the run stops early for any reason, journals that are not stored yet are kept, and the same
command resumes from them. Everything specific to the kind of trial is in the `TrialKind`.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from assay.core.aio import run_in_own_loop
from assay.errors import BudgetSpent, StoreBusy, StoreError, UsageError
from assay.judge.subjects import Look
from assay.models.pool import ModelPool
from assay.runs.control import Interrupted, Limits, Retries, Stop, TrialVerdict
from assay.runs.engine import AsyncioExecutor, Context, Rules, run_trials
from assay.runs.events import SILENT, Event, RunObserver, TrialEnded
from assay.runs.executors import InProcessExecutor, TrialExecutor, make_admission_rule
from assay.runs.kind import PreparedRun, RunConfiguration, TrialKind
from assay.runs.looks import CandidateResult, SequentialMonitor
from assay.runs.plan import Admission, GroupCounts, Trial
from assay.runs.resume import load_earlier_progress
from assay.runs.spending import OpenSpending, begin_run, compute_lost_cost, open_spending
from assay.store.ingest import ensure_run, finish_run, store_limits
from assay.store.load import load_experiment, load_outcomes, load_stored_run
from assay.store.looks import store_looks
from assay.store.metric_outcomes import declared_outcomes
from assay.store.queries import EpisodeRow, episodes
from assay.store.records import LimitRecord
from assay.store.results_file import results_name, write_results
from assay.store.run_folder import RunFolder
from assay.store.schema import RunStatus
from assay.store.store import Store
from assay.store.trace_folder import check_trace_folder, publish_traces, write_trace_folder
from assay.store.writer import JournalDamaged, StoringFailed, Writer, WriterEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Result of a run."""

    run_id: str
    database: Path
    status: RunStatus
    interrupted: bool
    """Whether it was stopped on request; it can be resumed."""
    resumed: bool
    """Whether it continued an earlier run."""
    tallies: Mapping[str, GroupCounts]
    """Counts of trials by how they ended, by arm label."""
    episodes: tuple[EpisodeRow, ...]
    """All stored episodes, ordered by arm and episode."""
    results_file: Path | None
    """Path of the results file; None if the run was interrupted."""
    decisions: tuple[CandidateResult, ...] = ()
    """Result of the interim analyses of each candidate, if the run stops when decided."""
    looks: tuple[Look, ...] = ()
    """The individual interim analyses, as stored."""
    outcomes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Metric values of each episode, by session id; empty if the run was interrupted."""
    stopped_by: str | None = None
    """Reason the run stopped by itself (a spent budget); None otherwise."""
    open_spending: Mapping[str, OpenSpending] = field(default_factory=dict)
    """Spending of trials without an end, by arm."""
    lost_usd: float = 0.0
    """Upper bound of the cost of calls whose responses were lost, in dollars."""
    last_trouble: str | None = None
    """Reason for the latest retry of a call; None if no call was retried."""

    @property
    def started(self) -> dict[str, int]:
        """Number of started episodes of each arm, including those of earlier processes."""
        return {name: tally.skipped + tally.started for name, tally in self.tallies.items()}


def execute_run(
    run: PreparedRun[RunConfiguration],
    kind: TrialKind[Any],
    *,
    executor: TrialExecutor | None = None,
    retries: Retries | None = None,
    pool: ModelPool | None = None,
    observer: RunObserver = SILENT,
    stop: Stop | None = None,
) -> RunResult:
    """Execute all trials of a prepared run, or stop on request.

    Args:
        run: The run.
        kind: The kind of its trials.
        executor: Runs the attempts; default: in this process.
        retries: Rules for retries after infrastructure errors.
        pool: Models of providers. Their budget continues from earlier attempts, and a stop
            request ends their waits. Closed by the caller.
        observer: Receives progress and messages.
        stop: Receives stop requests.
    """
    _check_outputs(run)
    active_run = _ActiveRun(run, kind, pool, observer, stop or Stop())
    with active_run.folder.hold():
        observer.on_locked()
        if pool is not None:
            begin_run(run, pool.budget, observer.on_message, active_run.folder)
        active_run.writer.start()
        try:
            active_run.load_earlier_progress()
            tallies = run_in_own_loop(
                lambda: active_run.run_remaining_trials(
                    executor or InProcessExecutor(), retries or Retries()
                )
            )
            if not active_run.writer.drain(active_run.report_storing):
                return active_run.make_interrupted_result()
            return active_run.finish(tallies)
        except StoreBusy:
            if not active_run.stop.is_forced:
                raise
            return active_run.make_interrupted_result()
        finally:
            active_run.writer.close()


def make_finished_result(run_id: str, database: Path) -> RunResult:
    """Return the result of a run that an earlier process finished, without its episodes."""
    return RunResult(
        run_id=run_id,
        database=database,
        status=RunStatus.FINISHED,
        interrupted=False,
        resumed=False,
        tallies={},
        episodes=(),
        results_file=None,
    )


class _ActiveRun(RunObserver):
    """Shared state of one running run; observes its trials."""

    def __init__(
        self,
        run: PreparedRun[RunConfiguration],
        kind: TrialKind[Any],
        pool: ModelPool | None,
        observer: RunObserver,
        stop: Stop,
    ) -> None:
        self.run, self.settings, self.kind = run, run.settings, kind
        self.stop = stop
        self._pool, self._observer = pool, observer
        # User code may change the working directory.
        database = self.settings.database.absolute()
        folder = self.settings.traces_dir
        self._traces_dir = None if folder is None else folder.absolute()
        self._budget_message: str | None = None
        self._done: set[str] = set()
        self._monitor: SequentialMonitor | None = None
        self._store = Store(
            database,
            on_wait=lambda busy: observer.on_message(f"waiting: {busy}"),
            given_up=lambda: stop.is_forced,
        )
        self.folder = run.resumed or RunFolder.create(database, run.record)
        self.writer = Writer(
            self._store,
            on_event=self._report_writer_event,
            then=partial(kind.on_stored, run.record),
            given_up=lambda: stop.is_forced,
        )

    def _report_writer_event(self, event: WriterEvent) -> None:
        match event:
            case JournalDamaged(session_id=session, path=path, reason=reason):
                self._observer.on_message(
                    f"episode {session} cannot be read, {path} is kept: {reason}; move the "
                    "file away to repeat its episode"
                )
            case StoringFailed(session_id=session, reason=reason):
                self._observer.on_message(
                    f"episode {session} could not be stored yet; its journal is kept: {reason}"
                )

    def report_storing(self, count: int) -> None:
        """Report the number of unsaved trials, after all have ended."""
        self._observer.on_message(
            f"storing: {count:,} episodes left; press Ctrl-C twice to quit now; resuming "
            "the run stores them"
        )

    def load_earlier_progress(self) -> None:
        """Submit finished journals of earlier attempts, and set up interim analyses."""
        earlier = load_earlier_progress(self.run, self.folder, self._store, self.writer)
        self._done = set(earlier.outcomes)
        if self.settings.until_decided is not None:
            plan = self.kind.plan(self.run.record)
            self._monitor = SequentialMonitor(
                self.run, plan, earlier_outcomes=earlier.outcomes, unfinished=earlier.unfinished
            )

    async def run_remaining_trials(
        self, executor: TrialExecutor, retries: Retries
    ) -> dict[str, GroupCounts]:
        """Run the remaining trials of the plan."""
        plan, monitor = self.kind.plan(self.run.record), self._monitor
        try:
            async with executor.open(self.kind, self._observer) as start:

                async def run_attempt(trial: Trial[Any], context: Context) -> TrialVerdict:
                    try:
                        return await start(trial, self.folder.path(trial.id), context)
                    except BudgetSpent as error:
                        # Each open trial gets this error; a second request would cancel them.
                        if self._budget_message is None:
                            self._budget_message = str(error)
                            self.stop.request()
                        raise Interrupted(str(error)) from error

                rules = Rules(
                    limits=Limits(
                        max_open=self.settings.max_open,
                        # All arms are open at once: one that is ahead waits for the others.
                        max_groups=len(plan.groups) if monitor else self.settings.max_arms,
                    ),
                    retries=retries,
                    done=self._done.__contains__,
                    admit=monitor.admit if monitor else lambda _: Admission.NOW,
                    room=make_admission_rule(self.kind.capacities(self.run, self._pool)),
                )
                with self.stop.watch(self._on_stop):
                    return await run_trials(
                        plan, AsyncioExecutor(run_attempt), rules, observer=self, stop=self.stop
                    )
        finally:
            await self.kind.close()
            for model in self.kind.models.values():
                await model.close()

    def _on_stop(self) -> None:
        if self._pool is not None:
            self._pool.leave()

    def on_event(self, event: Event) -> None:
        """Submit an ended trial for storage, and forward the event."""
        if isinstance(event, TrialEnded):
            self.writer.submit(self.folder.record, self.folder.path(event.trial.id))
        if self._monitor is not None:
            self._monitor.on_event(event)
        self._observer.on_event(event)

    def finish(self, tallies: Mapping[str, GroupCounts]) -> RunResult:
        """Store the data of the run as a whole, and write its files."""
        record, store = self.run.record, self._store
        complete = not self.folder.journals() and all(
            tally.infrastructure == tally.interrupted == tally.not_started == 0
            for tally in tallies.values()
        )
        interrupted = self.stop.is_requested and not complete
        status = RunStatus.FINISHED if complete else RunStatus.INCOMPLETE
        now = time.time()
        looks = self._monitor.records() if self._monitor else []
        with store.writing() as connection:
            ensure_run(connection, record)
            finish_run(connection, record.id, status, at=now)
            store_limits(connection, record.id, self._make_limit_records())
            store_looks(connection, record.id, looks)
            rows = episodes(connection, run_id=record.id)
        outcomes: Mapping[str, Mapping[str, float]] = {}
        if not interrupted:
            experiments = [experiment.id for experiment in record.experiments]
            self.kind.measure(store, experiments, self._observer.on_message)
            with store.reading() as connection:
                outcomes = load_outcomes(connection, [row.session_id for row in rows])
        result = replace(
            self.make_interrupted_result(),
            status=status,
            interrupted=interrupted,
            tallies=tallies,
            episodes=tuple(rows),
            decisions=self._monitor.comparisons() if self._monitor else (),
            looks=tuple(looks),
            outcomes=outcomes,
            open_spending=open_spending(self.folder),
            lost_usd=compute_lost_cost(self.folder),
            stopped_by=self._budget_message,
        )
        if not interrupted and self._traces_dir is not None:
            results_file = self._write_files(self._traces_dir, now, result)
            result = replace(result, results_file=results_file)
        if complete:
            self.folder.remove()
        return result

    def _make_limit_records(self) -> list[LimitRecord]:
        return [
            LimitRecord(
                provider=provider,
                at=change.at,
                connections=change.limit,
                per_second=change.rate,
                pause_s=change.pause_s,
                reason=change.reason,
            )
            for provider, change in (self._pool.history() if self._pool else ())
        ]

    def _write_files(self, folder: Path, now: float, result: RunResult) -> Path:
        """Write traces, results and their published copies; return the path of the results."""
        settings, store, run_id = self.settings, self._store, self.run.record.id
        shown_folder = settings.traces_dir or folder
        results = shown_folder / run_id / results_name(now)
        write_trace_folder(
            folder, store, run_id, traces=settings.save_traces, results=results.name
        )
        with store.reading() as connection:
            stored = load_stored_run(connection, run_id)
            ids = {row.experiment_id for row in result.episodes}
            declared = {
                id: declared_outcomes(load_experiment(connection, id).tags)
                for id in sorted(ids)
            }
        write_results(
            folder / run_id / results.name,
            stored,
            result.episodes,
            result.outcomes,
            self.kind.analyse(result),
            declared=declared,
            detailed=settings.save_detailed_results,
        )
        for name in publish_traces(folder, run_id):
            self._observer.on_message(
                f"{shown_folder / name} was not written by a run and is kept; the file of this "
                f"run is in {results.parent}"
            )
        return results

    def make_interrupted_result(self) -> RunResult:
        """Return the result of a run that ended before everything was stored."""
        return RunResult(
            run_id=self.run.record.id,
            database=self.settings.database,
            status=RunStatus.INCOMPLETE,
            interrupted=True,
            resumed=self.run.resumed is not None,
            tallies={},
            episodes=(),
            results_file=None,
        )


def _check_outputs(run: PreparedRun[RunConfiguration]) -> None:
    """Raise UsageError before the first trial if the database or a folder is unusable."""
    settings = run.settings
    store = Store(settings.database, patience=0)
    try:
        settings.database.parent.mkdir(parents=True, exist_ok=True)
        with store.writing():
            pass
        if settings.traces_dir is not None:
            check_trace_folder(settings.traces_dir, run.record.id)
    except StoreBusy:
        pass  # it will be free again; until then, journals are enough
    except StoreError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(
            f"cannot create the folder of {str(settings.database)!r}: {error.strerror}; "
            "give another file with --database"
        ) from error

"""A run from its first world to its last row: plays, stores, and leaves files behind.

Whatever stops it, the journals that are not stored yet stay where they are, and the same
command goes on from there. Receives models and worlds; chooses nothing itself.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay._util.loops import run_apart
from assay.errors import BudgetSpent, StoreBusy, StoreError, UsageError
from assay.exchange.results import results_name, write_results
from assay.exchange.trace_folder import check_trace_folder, write_trace_folder
from assay.experiments.looks import store_looks
from assay.experiments.subjects import Look
from assay.metrics import Hook, MetricSet, apply_metrics
from assay.service.client import WorldClient
from assay.traces.folder import RunFolder
from assay.traces.ingest import ensure_run, finish_run, store_limits
from assay.traces.intake import JournalDamaged, StoringFailed, WriterEvent
from assay.traces.load import load_outcomes, load_stored_run
from assay.traces.queries import EpisodeRow, episodes
from assay.traces.records import LimitRecord
from assay.traces.schema import RunStatus
from assay.traces.store import Store
from assay.traces.writer import Writer
from assay.trials import Admission, Event, GroupCounts, Limits, Retries, Stop
from assay.types import ChatModel

from .catch_up import EarlierAttempts, catch_up
from .looks import CandidateResult, SequentialMonitor
from .play import play_all
from .prepare import PreparedRun
from .record import episode_settings, make_plan

__all__ = ["RunResult", "execute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What came of a run."""

    run_id: str
    database: Path
    status: RunStatus
    interrupted: bool
    """Whether it was stopped on request; it can be resumed."""
    resumed: bool
    """Whether it went on from an earlier attempt."""
    tallies: Mapping[str, GroupCounts]
    """How the episodes of each model ended."""
    episodes: tuple[EpisodeRow, ...]
    """Every episode that is stored, in model, episode order."""
    results_file: Path | None
    """Where the numbers are, as a file; None if the run was interrupted."""
    decisions: tuple[CandidateResult, ...] = ()
    """What the looks at each candidate came to, if it was to go on until that is decided."""
    looks: tuple[Look, ...] = ()
    """Those looks one by one, as stored."""
    stopped_by: str | None = None
    """What stopped it, if it was not the user: the budget."""

    @property
    def started(self) -> dict[str, int]:
        """How many episodes of each model were started, now or earlier."""
        return {name: tally.skipped + tally.started for name, tally in self.tallies.items()}


def execute(
    prepared: PreparedRun,
    *,
    models: Mapping[str, ChatModel],
    make_worlds: Callable[[], WorldClient],
    hooks: Sequence[type[Hook]],
    retries: Retries,
    metrics: MetricSet | None = None,
    limits_seen: Callable[[], Iterable[LimitRecord]] = tuple,
    listen: Callable[[Event], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    stop: Stop | None = None,
) -> RunResult:
    """Play a prepared run to its end, or to the wish to stop.

    Args:
        prepared: The run.
        models: Who answers, by name.
        make_worlds: Opens the worlds, inside the event loop that uses them.
        hooks: What watches each episode.
        retries: How infrastructure errors are tried again.
        metrics: What else every episode earns, asked when all are played.
        limits_seen: What providers allowed, asked at the end.
        listen: Who hears of progress.
        notice: Who hears of everything else, in sentences.
        stop: How to stop early.
    """
    config, record = prepared.config, prepared.record
    stop = stop or Stop()
    trouble: list[str] = []

    def out_of_budget(error: BudgetSpent) -> None:
        # Every open episode finds out by itself; asking twice would cut them off.
        if not trouble:
            trouble.append(str(error))
            stop.ask()

    _check_outputs(prepared)
    store = Store(
        config.database,
        on_wait=lambda busy: notice(f"waiting: {busy}"),
        given_up=lambda: stop.forced,
    )
    folder = prepared.resumed or RunFolder.create(config.database, record)
    with folder.hold():
        writer = Writer(store, on_event=lambda event: _tell(event, notice))
        writer.start()
        try:
            left = catch_up(prepared, folder, store, writer)
            lookout = _lookout(prepared, left)
            tallies = run_apart(
                lambda: _play(
                    prepared,
                    folder,
                    writer,
                    done=set(left.earned),
                    lookout=lookout,
                    models=models,
                    make_worlds=make_worlds,
                    hooks=hooks,
                    retries=retries,
                    listen=listen,
                    stop=stop,
                    out_of_budget=out_of_budget,
                )
            )
            writer.drain()
            result = _conclude(
                prepared,
                folder,
                store,
                tallies,
                stop,
                limits_seen(),
                lookout,
                lambda ids: metrics and apply_metrics(store, ids, metrics, notice),
            )
            return replace(result, stopped_by=trouble[0] if trouble else None)
        except StoreBusy:
            if not stop.forced:
                raise
            return _left(prepared)
        finally:
            writer.close()


def _tell(event: WriterEvent, notice: Callable[[str], None]) -> None:
    match event:
        case JournalDamaged(session_id=session, path=path, reason=reason):
            notice(
                f"session {session} could not be read, {path} is kept: {reason}; move it away "
                "to have its episode played anew"
            )
        case StoringFailed(session_id=session, reason=reason):
            notice(f"session {session} is not stored yet, its journal is kept: {reason}")


def _check_outputs(prepared: PreparedRun) -> None:
    """Find out before the first episode that a database or a folder cannot be used at all."""
    config = prepared.config
    store = Store(config.database, patience=0)
    try:
        config.database.parent.mkdir(parents=True, exist_ok=True)
        with store.writing():
            pass
        check_trace_folder(config.traces_dir, store, prepared.record.id)
    except StoreBusy:
        pass  # it will be free again, and until then journals are enough
    except StoreError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(
            f"cannot make the folder of {str(config.database)!r}: {error.strerror}; "
            "name another file with --database"
        ) from error


def _lookout(prepared: PreparedRun, left: EarlierAttempts) -> SequentialMonitor | None:
    config = prepared.config
    if config.until_decided is None:
        return None
    return SequentialMonitor(config, prepared.record.id, known=left.earned, begun=left.begun)


def _left(prepared: PreparedRun) -> RunResult:
    """What is known of a run that was left while another process held the database."""
    return RunResult(
        run_id=prepared.record.id,
        database=prepared.config.database,
        status=RunStatus.INCOMPLETE,
        interrupted=True,
        resumed=prepared.resumed is not None,
        tallies={},
        episodes=(),
        results_file=None,
    )


async def _play(
    prepared: PreparedRun,
    folder: RunFolder,
    writer: Writer,
    *,
    done: set[str],
    lookout: SequentialMonitor | None,
    models: Mapping[str, ChatModel],
    make_worlds: Callable[[], WorldClient],
    hooks: Sequence[type[Hook]],
    retries: Retries,
    listen: Callable[[Event], None],
    stop: Stop,
    out_of_budget: Callable[[BudgetSpent], None],
) -> dict[str, GroupCounts]:
    config = prepared.config
    plan = make_plan(config, prepared.record.id)
    at_once = config.max_concurrent_models if config.concurrent_models else 1
    limits = Limits(
        max_open=config.max_concurrent_episodes,
        # Side by side: who is ahead waits for the others.
        max_groups=at_once if lookout is None else len(plan.groups),
    )

    def hear(event: Event) -> None:
        if lookout is not None:
            lookout.hear(event)
        listen(event)

    try:
        async with make_worlds() as worlds:
            return await play_all(
                plan,
                episode_settings(config),
                models=models,
                worlds=worlds,
                hooks=hooks,
                journal=folder.path,
                ended=lambda path: writer.submit(folder.record, path),
                limits=limits,
                retries=retries,
                done=done.__contains__,
                admit=lookout.admit if lookout else lambda _: Admission.NOW,
                out_of_budget=out_of_budget,
                listen=hear,
                stop=stop,
            )
    finally:
        for model in models.values():
            await model.close()


def _conclude(
    prepared: PreparedRun,
    folder: RunFolder,
    store: Store,
    tallies: Mapping[str, GroupCounts],
    stop: Stop,
    limits_seen: Iterable[LimitRecord],
    lookout: SequentialMonitor | None,
    measure: Callable[[Sequence[str]], object],
) -> RunResult:
    config, run_id = prepared.config, prepared.record.id
    complete = not folder.journals() and all(
        tally.infrastructure == tally.interrupted == tally.not_started == 0
        for tally in tallies.values()
    )
    interrupted = stop.asked and not complete
    status = RunStatus.FINISHED if complete else RunStatus.INCOMPLETE
    now = time.time()
    looks = lookout.records() if lookout else []
    with store.writing() as connection:
        ensure_run(connection, prepared.record)
        finish_run(connection, run_id, status, at=now)
        store_limits(connection, run_id, limits_seen)
        store_looks(connection, run_id, looks)
        rows = episodes(connection, run_id=run_id)
    name = None
    if not interrupted:
        measure([one.id for one in prepared.record.experiments])
        name = results_name(now)
        write_trace_folder(
            config.traces_dir, store, run_id, traces=config.save_traces, results=name
        )
        with store.reading() as connection:
            run = load_stored_run(connection, run_id)
            earned = load_outcomes(connection, [row.session_id for row in rows])
        write_results(
            config.traces_dir / name,
            run,
            rows,
            earned,
            detailed=config.save_detailed_results,
        )
    if complete:
        folder.remove()
    return RunResult(
        run_id=run_id,
        database=config.database,
        status=status,
        interrupted=interrupted,
        resumed=prepared.resumed is not None,
        tallies=tallies,
        episodes=tuple(rows),
        results_file=None if name is None else config.traces_dir / name,
        decisions=lookout.comparisons() if lookout else (),
        looks=tuple(looks),
    )

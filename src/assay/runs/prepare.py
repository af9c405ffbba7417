"""Choice of the run that a command refers to: a new one, or an unfinished one to resume.

Reads configuration and journals, and writes nothing. A repeated command resumes the latest
unfinished run with the same configuration that no living process holds. If an unfinished run
cannot be read, it might be the one that is meant, so a new run is not started without
`--fresh`. `count_remaining` counts the trials and calls that are left.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.core.canonical_json import canonical_json, content_hash, derive_id
from assay.core.options import takes_options
from assay.core.provenance import collect_provenance
from assay.core.settings import Configuration
from assay.core.text import resolve_name, unknown_name_error
from assay.errors import UsageError
from assay.runs.configuration import COMMAND_LINE, list_differences, resolve
from assay.runs.kind import Arm, PreparedRun, RunConfiguration
from assay.runs.options import WhichRun
from assay.runs.plan import Plan
from assay.runs.resume import iterate_sessions
from assay.store.load import load_stored_run
from assay.store.queries import committed_sessions
from assay.store.records import ExperimentRecord, RunRecord, StoredRun
from assay.store.run_folder import RunFolder, RunHeld, unfinished_runs, unreadable_runs
from assay.store.store import Store
from assay.types import TrialState

ALLOWED: Final = ("address", "ledger")
"""Differences that may be allowed on resume: the model server, and a lost ledger."""

_MAX_RUN_ID = 80
_PATIENCE_S = 5.0
"""Seconds to wait while another process holds the database."""


def make_run_id() -> str:
    """Return a unique run id that sorts by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def check_run_id(run_id: str) -> str:
    """Return a user-given run id if it is valid as a folder name; raise UsageError if not."""
    plain = run_id.replace("-", "").replace("_", "").replace(".", "")
    if not (plain.isascii() and plain.isalnum() and len(run_id) <= _MAX_RUN_ID) or (
        run_id.startswith((".", "-"))
    ):
        raise UsageError(
            f"run id {run_id!r} is not allowed; give at most {_MAX_RUN_ID} letters, digits, "
            "'-', '_' and '.', starting with a letter or digit"
        )
    return run_id


@takes_options
def prepare_run(
    configuration: type[Any],
    arms_of: Callable[[Any], tuple[Arm, ...]],
    settings: Mapping[str, Any],
    file: Path | None = None,
    *,
    which: WhichRun,
    command: str = "",
    source: str = COMMAND_LINE,
    base: Mapping[str, Any] | None = None,
) -> PreparedRun[Any]:
    """Resolve the configuration, and find or create the run.

    Args:
        configuration: Class of the configuration.
        arms_of: Returns the arms for a configuration.
        settings: Chosen values by setting name; None means not chosen.
        file: Configuration file.
        which: Options that choose between a new run and an unfinished one.
        command: Command line, for the record.
        source: Source of the settings: the command line, or a program.
        base: Stored settings of another run that replace the defaults of a new run.
    """
    run_id, fresh = which.run_id, which.fresh
    if which.resume is not None and (fresh or run_id is not None):
        raise UsageError("--resume continues an existing run; leave out --fresh and --run-id")
    for name in which.allow_different:
        if name not in ALLOWED:
            raise unknown_name_error("value of --allow-different", name, ALLOWED)
    resolved = resolve(configuration, settings, file, source=source, stored=base)
    database = resolved.config.database
    folder: RunFolder | None = None
    if which.resume is not None:
        selected = folder = _find_named_run(database, which.resume)
        _reject_other_command(selected, configuration)
        stored = selected.record.configuration
        resolved = resolve(configuration, settings, file, source=source, stored=stored)
    elif run_id is not None:
        folder = _find_run_by_id(database, check_run_id(run_id), fresh=fresh)
        if folder is not None:
            _reject_other_command(folder, configuration)
        else:
            run_id = _find_free_id(database, run_id, resolved.config, fresh=fresh)
    elif not fresh:
        folder = _find_same_run(resolved.config)
    if folder is not None:
        _reject_change(folder, resolved.config)
        _reject_held(folder)
    arms = arms_of(resolved.config)
    record = (
        folder.record
        if folder is not None
        else make_run_record(resolved.config, arms, run_id or make_run_id(), command)
    )
    unreadable = unreadable_runs(database)
    if folder is None and not fresh and run_id is None:
        _reject_unreadable(unreadable)
    damaged = [f"{reason}; its run cannot be resumed" for reason in unreadable.values()]
    warnings = (*resolved.warnings, *damaged)
    return PreparedRun(
        resolved.config,
        record,
        arms,
        folder,
        resolved.sources,
        warnings,
        frozenset(which.allow_different),
    )


def make_run_record(
    config: Configuration, arms: Sequence[Arm], run_id: str, command: str
) -> RunRecord:
    """Make the record of a new run, with one experiment per arm."""
    return RunRecord(
        id=run_id,
        command=command,
        configuration=config.stored(),
        provenance=collect_provenance().record(),
        created_at=round(time.time(), 6),
        experiments=tuple(
            ExperimentRecord(
                id=derive_id(run_id, arm.label),
                series=arm.series,
                model=arm.label,
                fingerprint=content_hash(canonical_json(arm.version)),
                tags=arm.tags,
            )
            for arm in arms
        ),
    )


def _reject_unreadable(
    unreadable: Mapping[Path, str],
    name: str = "",
    *,
    alternative: str = "start a new run with --fresh",
) -> None:
    """Raise UsageError if a run with this name prefix is unreadable: it may be meant."""
    for folder, reason in unreadable.items():
        if folder.name.startswith(name):
            raise UsageError(
                f"{reason}; its trials are not repeated without --fresh: use the assay version "
                f"that wrote it, repair the file, move {folder} away, or {alternative}"
            )


def _find_named_run(database: Path, name: str) -> RunFolder:
    folders = {folder.record.id: folder for folder in unfinished_runs(database)}
    match = resolve_name("run", name, zip(folders, folders, strict=True), str.startswith)
    if match is None:
        _reject_unreadable(unreadable_runs(database), name)
        if not folders:
            raise UsageError(
                f"run {name!r} cannot be resumed: {str(database)!r} has no unfinished run; "
                "'assay traces list' lists its episodes"
            )
        raise unknown_name_error("unfinished run", name, [*folders])
    return folders[match.id]


def _find_run_by_id(database: Path, run_id: str, *, fresh: bool) -> RunFolder | None:
    unreadable = {
        path: reason
        for path, reason in unreadable_runs(database).items()
        if path.name == run_id
    }
    _reject_unreadable(unreadable, alternative="choose another --run-id")
    unfinished = next((f for f in unfinished_runs(database) if f.record.id == run_id), None)
    if unfinished is not None and fresh:
        raise UsageError(
            f"run {run_id!r} already exists and is unfinished; leave out --fresh to resume it, "
            "or choose another --run-id"
        )
    return unfinished


def _find_free_id(database: Path, run_id: str, config: Any, *, fresh: bool) -> str:
    """Return an unused run id: the given one, or a numbered variant if `fresh` is set."""
    stored = find_stored_run(database, run_id)
    if stored is None:
        return run_id
    if fresh:
        number = 2
        while find_stored_run(database, f"{run_id}-{number}") is not None:
            number += 1
        return f"{run_id}-{number}"
    changes = list_differences(type(config), stored.configuration, config.stored())
    if changes:
        raise UsageError(
            f"run {run_id!r} is stored with another configuration: {'; '.join(changes)}; "
            "choose another --run-id, or add --fresh to create one"
        )
    if stored.status == "finished":
        raise UsageError(
            f"run {run_id!r} is already finished; 'assay compare {run_id}' shows its results; "
            "choose another --run-id, or add --fresh to run it again under a new id"
        )
    return run_id


def find_stored_run(database: Path, run_id: str) -> StoredRun | None:
    """Return the stored row of a run, or None if the database does not have it."""
    if not database.exists():
        return None
    with Store(database, patience=_PATIENCE_S).reading() as connection, suppress(UsageError):
        return load_stored_run(connection, run_id)
    return None


def _find_same_run(config: Any) -> RunFolder | None:
    stored = config.stored()
    for folder in reversed(unfinished_runs(config.database)):
        if (
            not list_differences(type(config), folder.record.configuration, stored)
            and folder.holder() is None
        ):
            return folder
    return None


def _reject_change(folder: RunFolder, config: Any) -> None:
    changes = list_differences(type(config), folder.record.configuration, config.stored())
    if changes:
        raise UsageError(
            f"run {folder.record.id!r} was started with another configuration: "
            f"{'; '.join(changes)}; restore these options, or start a new run with --fresh"
        )


def _reject_other_command(folder: RunFolder, configuration: type[Configuration]) -> None:
    settings = configuration.counted()
    if (folder.is_benchmark, folder.is_launch) != (
        "stamp" in settings,
        "base_run_name" in settings,
    ):
        raise UsageError(
            f"run {folder.record.id!r} belongs to another command; resume it with "
            f"'{folder.resume_command}'"
        )


def _reject_held(folder: RunFolder) -> None:
    pid = folder.holder()
    if pid is not None:
        raise RunHeld(
            f"run {folder.record.id!r} is being executed by process {pid}; "
            "wait for it, or stop it first",
            pid,
        )


class Remaining(NamedTuple):
    """Maximum numbers of episodes and calls that one arm has left."""

    episodes: int
    calls: int


def count_remaining(
    run: PreparedRun[RunConfiguration],
    plan: Plan[Any],
    turns: int,
    count_copied: Callable[[Any], int] | None = None,
) -> dict[str, Remaining]:
    """Count the episodes and calls that each arm has left; everything, for a new run.

    Args:
        run: The run.
        plan: All its trials.
        turns: Maximum number of calls of one trial.
        count_copied: Returns the number of calls that a trial starts with, from its payload;
            default: none.

    Raises:
        StoreBusy: Another process holds the database.
        UsageError: A journal cannot be read.
    """
    calls = _count_calls(run) if run.resumed else {}
    counts = {}
    for group in plan.groups:
        calls_made: list[int | None] = [0] * group.size
        if calls or count_copied:
            count_given = count_copied or (lambda _: 0)
            calls_made = [calls.get(trial.id, count_given(trial.payload)) for trial in group]
        calls_left = [turns - count for count in calls_made if count is not None]
        counts[group.name] = Remaining(len(calls_left), sum(max(0, n) for n in calls_left))
    return counts


def _count_calls(run: PreparedRun[RunConfiguration]) -> dict[str, int | None]:
    """Return the number of calls made so far by session id; None for completed sessions."""
    calls: dict[str, int | None] = {}
    for _, session in iterate_sessions(run.resumed) if run.resumed else ():
        is_ended = session.end and session.end.state is not TrialState.INFRASTRUCTURE
        calls[session.header.session_id] = None if is_ended else len(session.calls)
    # A missing database raises UsageError; then nothing was stored yet.
    store = Store(run.settings.database, patience=_PATIENCE_S)
    with suppress(UsageError), store.reading() as connection:
        for session_id, state in committed_sessions(connection, run.record.id).items():
            if state is not TrialState.INFRASTRUCTURE:
                calls[session_id] = None
    return calls

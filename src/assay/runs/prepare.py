"""Choice of the run that a command refers to: a new one, or an unfinished one to resume.

Reads configuration and journals, and writes nothing. A repeated command resumes the latest
unfinished run with the same configuration that no living process holds. If an unfinished run
cannot be read, it might be the one that is meant, so a new run is not started without
`--fresh`. `remaining` counts the trials and calls that are left.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.core.canonical_json import canonical_json, content_hash, derived_id
from assay.core.options import takes_options
from assay.core.provenance import provenance
from assay.core.settings import Configuration
from assay.core.text import choose, unknown
from assay.errors import UsageError
from assay.runs.configuration import COMMAND_LINE, difference, resolve
from assay.runs.kind import Arm, PreparedRun, RunConfiguration
from assay.runs.options import WhichRun
from assay.runs.plan import Plan
from assay.runs.resume import sessions_left
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


def new_run_id() -> str:
    """Return a unique run id that sorts by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def checked_run_id(run_id: str) -> str:
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
        raise UsageError("--resume goes on with a run: leave out --fresh and --run-id")
    for name in which.allow_different:
        if name not in ALLOWED:
            raise unknown("thing that may differ on resume", name, ALLOWED)
    resolved = resolve(configuration, settings, file, source=source, stored=base)
    database = resolved.config.database
    folder: RunFolder | None = None
    if which.resume is not None:
        named = folder = _named(database, which.resume)
        _refuse_other_command(named, configuration)
        kept = named.record.configuration
        resolved = resolve(configuration, settings, file, source=source, stored=kept)
    elif run_id is not None:
        folder = _with_id(database, checked_run_id(run_id), fresh=fresh)
        if folder is not None:
            _refuse_other_command(folder, configuration)
        else:
            run_id = _free_id(database, run_id, resolved.config, fresh=fresh)
    elif not fresh:
        folder = _same_again(resolved.config)
    if folder is not None:
        _refuse_change(folder, resolved.config)
        _refuse_held(folder)
    arms = arms_of(resolved.config)
    record = (
        folder.record
        if folder is not None
        else run_record(resolved.config, arms, run_id or new_run_id(), command)
    )
    unreadable = unreadable_runs(database)
    if folder is None and not fresh and run_id is None:
        _refuse_unreadable(unreadable)
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


def run_record(
    config: Configuration, arms: Sequence[Arm], run_id: str, command: str
) -> RunRecord:
    """Make the record of a new run, with one experiment per arm."""
    return RunRecord(
        id=run_id,
        command=command,
        configuration=config.stored(),
        provenance=provenance().record(),
        created_at=round(time.time(), 6),
        experiments=tuple(
            ExperimentRecord(
                id=derived_id(run_id, arm.label),
                series=arm.series,
                model=arm.label,
                fingerprint=content_hash(canonical_json(arm.version)),
                tags=arm.tags,
            )
            for arm in arms
        ),
    )


def _refuse_unreadable(
    unreadable: Mapping[Path, str], name: str = "", *, anew: str = "start anew with --fresh"
) -> None:
    """Raise UsageError if a run with this name prefix is unreadable: it may be meant."""
    for folder, reason in unreadable.items():
        if folder.name.startswith(name):
            raise UsageError(
                f"{reason}; what its run has played is not played anew unasked: use the assay "
                f"that wrote it, repair the file, move {folder} away, or {anew}"
            )


def _named(database: Path, name: str) -> RunFolder:
    folders = {folder.record.id: folder for folder in unfinished_runs(database)}
    meant = choose("run", name, zip(folders, folders, strict=True), str.startswith)
    if meant is None:
        _refuse_unreadable(unreadable_runs(database), name)
        if not folders:
            raise UsageError(
                f"no run of {str(database)!r} is unfinished, so {name!r} cannot be resumed; "
                "'assay traces list' shows what it holds"
            )
        raise unknown("unfinished run", name, [*folders])
    return folders[meant.id]


def _with_id(database: Path, run_id: str, *, fresh: bool) -> RunFolder | None:
    same = {path: why for path, why in unreadable_runs(database).items() if path.name == run_id}
    _refuse_unreadable(same, anew="choose another --run-id")
    found = next((f for f in unfinished_runs(database) if f.record.id == run_id), None)
    if found is not None and fresh:
        raise UsageError(
            f"run {run_id!r} is already there and unfinished; leave out --fresh to go on "
            "with it, or choose another --run-id"
        )
    return found


def _free_id(database: Path, run_id: str, config: Any, *, fresh: bool) -> str:
    """Return an unused run id: the given one, or a numbered variant if `fresh` is set."""
    stored = stored_run(database, run_id)
    if stored is None:
        return run_id
    if fresh:
        number = 2
        while stored_run(database, f"{run_id}-{number}") is not None:
            number += 1
        return f"{run_id}-{number}"
    changes = difference(type(config), stored.configuration, config.stored())
    if changes:
        raise UsageError(
            f"run {run_id!r} is stored with another configuration: {'; '.join(changes)}; "
            "choose another --run-id, or add --fresh to have one chosen"
        )
    if stored.status == "finished":
        raise UsageError(
            f"run {run_id!r} is finished, and 'assay compare {run_id}' shows what it has; "
            "choose another --run-id, or add --fresh to play again under a new id"
        )
    return run_id


def stored_run(database: Path, run_id: str) -> StoredRun | None:
    """Return the stored row of a run, or None if the database does not have it."""
    if not database.exists():
        return None
    with (
        Store(database, patience=_PATIENCE_S).reading() as connection,
        suppress(UsageError),
    ):
        return load_stored_run(connection, run_id)
    return None


def _same_again(config: Any) -> RunFolder | None:
    stored = config.stored()
    for folder in reversed(unfinished_runs(config.database)):
        if (
            not difference(type(config), folder.record.configuration, stored)
            and folder.holder() is None
        ):
            return folder
    return None


def _refuse_change(folder: RunFolder, config: Any) -> None:
    changes = difference(type(config), folder.record.configuration, config.stored())
    if changes:
        raise UsageError(
            f"run {folder.record.id!r} was started with another configuration: "
            f"{'; '.join(changes)}; leave these options as they were, or start anew "
            "with --fresh"
        )


def _refuse_other_command(folder: RunFolder, configuration: type[Configuration]) -> None:
    settings = configuration.counted()
    if (folder.is_benchmark, folder.is_launch) != (
        "stamp" in settings,
        "base_run_name" in settings,
    ):
        raise UsageError(
            f"run {folder.record.id!r} is of another command; resume it with "
            f"'{folder.resume_command}'"
        )


def _refuse_held(folder: RunFolder) -> None:
    pid = folder.holder()
    if pid is not None:
        raise RunHeld(
            f"run {folder.record.id!r} is being played by process {pid}; "
            "wait for it, or stop it first",
            pid,
        )


_PATIENCE = 5.0
"""Seconds to wait while another process holds the database."""


class Remaining(NamedTuple):
    """Maximum numbers of episodes and calls that one arm has left."""

    episodes: int
    calls: int


def remaining(
    run: PreparedRun[RunConfiguration],
    plan: Plan[Any],
    turns: int,
    given: Callable[[Any], int] | None = None,
) -> dict[str, Remaining]:
    """Count the episodes and calls that each arm has left; everything, for a new run.

    Args:
        run: The run.
        plan: All its trials.
        turns: Maximum number of calls of one trial.
        given: Returns the number of calls that a trial starts with, from its payload;
            default: none.

    Raises:
        StoreBusy: Another process holds the database.
        UsageError: A journal cannot be read.
    """
    asked = _asked(run) if run.resumed else {}
    left = {}
    for group in plan.groups:
        made: list[int | None] = [0] * group.size
        if asked or given:
            begun = given or (lambda _: 0)
            made = [asked.get(trial.id, begun(trial.payload)) for trial in group]
        open_ones = [turns - count for count in made if count is not None]
        left[group.name] = Remaining(len(open_ones), sum(max(0, n) for n in open_ones))
    return left


def _asked(run: PreparedRun[RunConfiguration]) -> dict[str, int | None]:
    """Return the number of calls made so far by session id; None for completed sessions."""
    asked: dict[str, int | None] = {}
    for _, session in sessions_left(run.resumed) if run.resumed else ():
        over = session.end and session.end.state is not TrialState.INFRASTRUCTURE
        asked[session.header.session_id] = None if over else len(session.calls)
    # A missing database raises UsageError; then nothing was stored yet.
    store = Store(run.settings.database, patience=_PATIENCE)
    with suppress(UsageError), store.reading() as connection:
        for session_id, state in committed_sessions(connection, run.record.id).items():
            if state is not TrialState.INFRASTRUCTURE:
                asked[session_id] = None
    return asked

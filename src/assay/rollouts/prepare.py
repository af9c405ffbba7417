"""Which run a command means: a new one, or an unfinished one that goes on.

Reads configuration and journals, writes nothing. The same command again means the latest
unfinished run with the same configuration that no living process holds. A run that cannot be
read may be the one that is meant, so that nothing is played anew in its place unasked.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay._util.names import choose, unknown
from assay.errors import UsageError
from assay.runs.settings import COMMAND_LINE, difference, resolve
from assay.traces.folder import RunFolder, RunHeld, unfinished_runs, unreadable_runs
from assay.traces.records import RunRecord

from .config import RunConfig
from .record import checked_run_id, new_run_id, run_record

__all__ = ["PreparedRun", "prepare_run"]


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """What a command means, before anything has started."""

    config: RunConfig
    record: RunRecord
    resumed: RunFolder | None
    """The folder of the run that goes on; None for a new one."""
    sources: Mapping[str, str]
    """For each setting, who chose it."""
    warnings: tuple[str, ...]


def prepare_run(
    settings: Mapping[str, Any],
    file: Path | None = None,
    *,
    command: str = "",
    run_id: str | None = None,
    resume: str | None = None,
    fresh: bool = False,
    source: str = COMMAND_LINE,
) -> PreparedRun:
    """Settle the configuration and the run.

    Args:
        settings: What was chosen, by the names of `RunConfig`; None means not chosen.
        file: A configuration file.
        command: The command line, for the record.
        run_id: The id of the run; it goes on if it is unfinished.
        resume: The id of an unfinished run, or the start of it.
        fresh: Start anew, whatever is unfinished.
        source: Who gives the settings: the command line, or a program.
    """
    if resume is not None and (fresh or run_id is not None):
        raise UsageError("--resume goes on with a run: leave out --fresh and --run-id")
    resolved = resolve(RunConfig, settings, file, source=source)
    database = resolved.config.database
    folder: RunFolder | None = None
    if resume is not None:
        named = folder = _named(database, resume)
        kept = named.record.configuration
        resolved = resolve(RunConfig, settings, file, source=source, stored=kept)
    elif run_id is not None:
        folder = _with_id(database, checked_run_id(run_id), fresh=fresh)
    elif not fresh:
        folder = _same_again(resolved.config)
    if folder is not None:
        _refuse_change(folder, resolved.config)
        _refuse_held(folder)
    record = (
        folder.record
        if folder is not None
        else run_record(resolved.config, run_id or new_run_id(), command)
    )
    unreadable = unreadable_runs(database)
    if folder is None and not fresh and run_id is None:
        _refuse_unreadable(unreadable)
    damaged = [f"{reason}; its run cannot be resumed" for reason in unreadable.values()]
    warnings = (*resolved.warnings, *damaged)
    return PreparedRun(resolved.config, record, folder, resolved.sources, warnings)


def _refuse_unreadable(
    unreadable: Mapping[Path, str], name: str = "", *, anew: str = "start anew with --fresh"
) -> None:
    """Stop where a run whose name begins so cannot be read; it may be the one that is meant."""
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


def _same_again(config: RunConfig) -> RunFolder | None:
    stored = config.stored()
    for folder in reversed(unfinished_runs(config.database)):
        if (
            not difference(RunConfig, folder.record.configuration, stored)
            and folder.holder() is None
        ):
            return folder
    return None


def _refuse_change(folder: RunFolder, config: RunConfig) -> None:
    changes = difference(RunConfig, folder.record.configuration, config.stored())
    if changes:
        raise UsageError(
            f"run {folder.record.id!r} was started with another configuration: "
            f"{'; '.join(changes)}; leave these options as they were, or start anew "
            "with --fresh"
        )


def _refuse_held(folder: RunFolder) -> None:
    pid = folder.holder()
    if pid is not None:
        raise RunHeld(
            f"run {folder.record.id!r} is being played by process {pid}; "
            "wait for it, or stop it first",
            pid,
        )

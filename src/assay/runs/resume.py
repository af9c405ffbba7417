"""State left by earlier processes of a run: journals to store, and sessions already played.

The address of the model server is recorded with each experiment and compared on resume. It
follows from environment variables and the user's model list, and is not a setting of the run.
It is stored without secrets in the tags of the experiment, and does not affect its identity.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from assay.errors import JournalError, StoreBusy, StoreError, UsageError
from assay.runs.kind import PreparedRun, RunConfiguration
from assay.store.journal import read_session
from assay.store.load import load_outcomes
from assay.store.queries import committed_sessions
from assay.store.records import SessionRecord
from assay.store.run_folder import RunFolder
from assay.store.store import Store
from assay.store.versions import set_tag
from assay.store.writer import Writer
from assay.types import TrialState


class EarlierAttempts(NamedTuple):
    """State left by earlier processes of a run."""

    earned: Mapping[str, float | None]
    """Ids of completed sessions, with the value of the deciding metric or None."""
    begun: frozenset[str]
    """Ids of sessions with an unfinished journal."""


def sessions_left(folder: RunFolder) -> Iterator[tuple[Path, SessionRecord]]:
    """Yield the journals of an unfinished run with their contents.

    Raises:
        UsageError: A journal cannot be read; raised after all others were yielded. Its calls
            were paid for, so its episode is not silently played again.
    """
    unreadable: list[str] = []
    for path in folder.journals():
        try:
            session = read_session(path, folder.record.id)
        except JournalError as error:
            unreadable.append(str(error))
        else:
            yield path, session
    if unreadable:
        more = f", and {len(unreadable) - 1} more journals" if len(unreadable) > 1 else ""
        raise UsageError(
            f"run {folder.record.id!r} cannot be resumed: {unreadable[0]}{more}; use the assay "
            "that wrote it, or move the file away to have its episode played anew, or start "
            "all anew with --fresh"
        )


def catch_up(
    run: PreparedRun[RunConfiguration], folder: RunFolder, store: Store, writer: Writer
) -> EarlierAttempts:
    """Submit finished journals to the writer, and return the state of earlier attempts.

    Raises:
        UsageError: A journal cannot be read.
    """
    metric = run.settings.until_decided
    earned: dict[str, float | None] = {}
    begun: set[str] = set()
    for path, session in sessions_left(folder):
        if session.end is not None and session.end.state is not TrialState.INFRASTRUCTURE:
            writer.submit(folder.record, path)
            value = None if metric is None else session.end.outcomes.get(metric)
            earned[session.header.session_id] = value
        else:
            begun.add(session.header.session_id)
    # A new run has stored nothing yet, so it does not wait for a locked database.
    look = store if run.resumed is not None else Store(store.path, patience=0)
    try:
        with look.reading() as connection:
            stored = committed_sessions(connection, folder.record.id)
            ended = [name for name, how in stored.items() if how != TrialState.INFRASTRUCTURE]
            numbers = {} if metric is None else load_outcomes(connection, ended)
    except StoreBusy:
        if run.resumed is not None:
            raise
    else:
        earned |= {name: numbers.get(name, {}).get(metric or "") for name in ended}
    return EarlierAttempts(earned, frozenset(begun))


_TAG: Final = "address"
_THEN: Final = ", then "


def without_secrets(address: str) -> str:
    """Return an address without user, password, query and fragment."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def with_addresses(run: PreparedRun[Any], addresses: Mapping[str, str]) -> PreparedRun[Any]:
    """Return a run that records the model server address of each arm, by arm label.

    Raises:
        UsageError: The address differs from the recorded one, and this was not allowed.
    """
    experiments, changes = [], []
    for experiment in run.record.experiments:
        now = addresses.get(experiment.model)
        before = experiment.tags.get(_TAG)
        if run.resumed is None and now is not None:
            experiment = replace(experiment, tags={**experiment.tags, _TAG: now})
        elif now and isinstance(before, str) and before.split(_THEN)[-1] != now:
            changes.append(f"{experiment.model}: {before} -> {now}")
            both = {**experiment.tags, _TAG: f"{before}{_THEN}{now}"}
            experiment = replace(experiment, tags=both)
        experiments.append(experiment)
    if changes and _TAG not in run.allow_different:
        raise UsageError(
            f"run {run.record.id!r} would be answered from another address: "
            f"{'; '.join(changes)}; put OPENAI_BASE_URL or models.toml back, start anew with "
            "--fresh, or add --allow-different address to have both in one experiment"
        )
    return replace(run, record=replace(run.record, experiments=tuple(experiments)))


def store_addresses(run: PreparedRun[Any]) -> None:
    """Store the addresses of experiments whose responses came from more than one address."""
    mixed = {
        experiment.id: experiment.tags[_TAG]
        for experiment in run.record.experiments
        if _THEN in str(experiment.tags.get(_TAG))
    }
    if mixed:
        # If another process holds the database, the next resume stores them: the run folder has
        # them as well.
        with suppress(StoreError), Store(run.settings.database).writing() as connection:
            for experiment_id, address in mixed.items():
                set_tag(connection, experiment_id, _TAG, address)

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


class EarlierProgress(NamedTuple):
    """State left by earlier processes of a run."""

    outcomes: Mapping[str, float | None]
    """Ids of completed sessions, with the value of the deciding metric or None."""
    unfinished: frozenset[str]
    """Ids of sessions with an unfinished journal."""


def iterate_sessions(folder: RunFolder) -> Iterator[tuple[Path, SessionRecord]]:
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
            "version that wrote it, or move the file away to repeat its episode, or start a "
            "new run with --fresh"
        )


def load_earlier_progress(
    run: PreparedRun[RunConfiguration], folder: RunFolder, store: Store, writer: Writer
) -> EarlierProgress:
    """Submit finished journals to the writer, and return the state of earlier attempts.

    Raises:
        UsageError: A journal cannot be read.
    """
    metric = run.settings.until_decided
    outcomes: dict[str, float | None] = {}
    unfinished: set[str] = set()
    for path, session in iterate_sessions(folder):
        if session.end is not None and session.end.state is not TrialState.INFRASTRUCTURE:
            writer.submit(folder.record, path)
            value = None if metric is None else session.end.outcomes.get(metric)
            outcomes[session.header.session_id] = value
        else:
            unfinished.add(session.header.session_id)
    # A new run has stored nothing yet, so it does not wait for a locked database.
    reader = store if run.resumed is not None else Store(store.path, patience=0)
    try:
        with reader.reading() as connection:
            stored = committed_sessions(connection, folder.record.id)
            completed = [
                name for name, state in stored.items() if state != TrialState.INFRASTRUCTURE
            ]
            stored_outcomes = {} if metric is None else load_outcomes(connection, completed)
    except StoreBusy:
        if run.resumed is not None:
            raise
    else:
        outcomes |= {
            name: stored_outcomes.get(name, {}).get(metric or "") for name in completed
        }
    return EarlierProgress(outcomes, frozenset(unfinished))


_TAG: Final = "address"
_SEPARATOR: Final = ", then "


def strip_secrets(address: str) -> str:
    """Return an address without user, password, query and fragment."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def record_addresses(run: PreparedRun[Any], addresses: Mapping[str, str]) -> PreparedRun[Any]:
    """Return a run that records the model server address of each arm, by arm label.

    Raises:
        UsageError: The address differs from the recorded one, and this was not allowed.
    """
    experiments, changes = [], []
    for experiment in run.record.experiments:
        address = addresses.get(experiment.model)
        recorded = experiment.tags.get(_TAG)
        if run.resumed is None and address is not None:
            experiment = replace(experiment, tags={**experiment.tags, _TAG: address})
        elif (
            address and isinstance(recorded, str) and recorded.split(_SEPARATOR)[-1] != address
        ):
            changes.append(f"{experiment.model}: {recorded} -> {address}")
            tags = {**experiment.tags, _TAG: f"{recorded}{_SEPARATOR}{address}"}
            experiment = replace(experiment, tags=tags)
        experiments.append(experiment)
    if changes and _TAG not in run.allow_different:
        raise UsageError(
            f"run {run.record.id!r} would use another model server: {'; '.join(changes)}; "
            "restore OPENAI_BASE_URL or models.toml, start a new run with --fresh, or add "
            "--allow-different address to have both in one experiment"
        )
    return replace(run, record=replace(run.record, experiments=tuple(experiments)))


def store_addresses(run: PreparedRun[Any]) -> None:
    """Store the addresses of experiments whose responses came from more than one address."""
    mixed = {
        experiment.id: experiment.tags[_TAG]
        for experiment in run.record.experiments
        if _SEPARATOR in str(experiment.tags.get(_TAG))
    }
    if mixed:
        # If another process holds the database, the next resume stores them: the run folder has
        # them as well.
        with suppress(StoreError), Store(run.settings.database).writing() as connection:
            for experiment_id, address in mixed.items():
                set_tag(connection, experiment_id, _TAG, address)

"""A store for people who write Python: its views and tables as DataFrames.

The file is open only while a question is answered, so that runs can go on beside it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.store.load import load_session
from assay.store.names import resolve_experiment, resolve_run, resolve_session
from assay.store.records import SessionRecord
from assay.store.store import Store

if TYPE_CHECKING:
    import pandas as pd


class Database:
    """The traces in one file; reads only.

    `run` and `experiment` narrow an answer down: an id, a name, or the start of one;
    `latest` is the run that was started last.
    """

    def __init__(self, path: Path | str, *, patience: float = 60.0) -> None:
        """Name a file; `patience` is how many seconds to wait while somebody writes to it."""
        self._store = Store(path, patience=patience)

    @property
    def path(self) -> Path:
        """The file."""
        return self._store.path

    def __repr__(self) -> str:
        return f"Database({str(self.path)!r})"

    def runs(self) -> "pd.DataFrame":
        """One row per run, the oldest first."""
        return self.sql("SELECT * FROM runs ORDER BY created_at, id")

    def experiments(self) -> "pd.DataFrame":
        """One row per model of a run, the oldest first."""
        return self.sql("SELECT * FROM experiments ORDER BY created_at, run_id, position")

    def episodes(
        self, *, run: str | None = None, experiment: str | None = None
    ) -> "pd.DataFrame":
        """One row per session."""
        return self._rows("episodes", "created_at, session_id", run, experiment)

    def turns(self, *, run: str | None = None, experiment: str | None = None) -> "pd.DataFrame":
        """One row per call of a model."""
        return self._rows("turns", "session_id, turn", run, experiment)

    def achievements(
        self, *, run: str | None = None, experiment: str | None = None
    ) -> "pd.DataFrame":
        """One row per achievement of a session, with the step it was reached in."""
        return self._rows("achievements", "session_id, step", run, experiment)

    def model_usage(
        self, *, run: str | None = None, experiment: str | None = None
    ) -> "pd.DataFrame":
        """Calls, tokens, cost and latency of each model."""
        return self._rows("model_usage", "experiment_id", run, experiment)

    def outcomes(
        self, *, run: str | None = None, experiment: str | None = None
    ) -> "pd.DataFrame":
        """One row per session and metric: what statistics see."""
        return self._rows("outcomes", "trial_id, metric", run, experiment)

    def messages(self, session: str) -> "pd.DataFrame":
        """The conversation of a session, in order."""
        with self._store.reading() as connection:
            found = resolve_session(connection, session)
            return connection.execute(
                "SELECT * FROM messages WHERE session_id = ? ORDER BY position", [found]
            ).df()

    def session(self, session: str) -> SessionRecord:
        """A whole session, as it was recorded; `best`, `worst` and `latest` are allowed."""
        with self._store.reading() as connection:
            return load_session(connection, resolve_session(connection, session))

    def sql(
        self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> "pd.DataFrame":
        """The answer to a query of your own."""
        with self._store.reading() as connection:
            return connection.execute(query, parameters).df()

    def _rows(
        self, view: str, order: str, run: str | None, experiment: str | None = None
    ) -> "pd.DataFrame":
        with self._store.reading() as connection:
            parts: list[str] = []
            values: list[str] = []
            if run is not None:
                parts.append("experiment_id IN (SELECT id FROM experiments WHERE run_id = ?)")
                values.append(resolve_run(connection, run))
            if experiment is not None:
                parts.append("experiment_id = ?")
                values.append(resolve_experiment(connection, experiment))
            where = f"WHERE {' AND '.join(parts)}" if parts else ""
            return connection.execute(
                f"SELECT * FROM {view} {where} ORDER BY {order}", values
            ).df()

"""The views and tables of a database as pandas DataFrames.

The file is open only during a query, so that runs can write to it in between.
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
    """The traces in one database file, read-only.

    `run` and `experiment` restrict the rows: an id, a name, or the start of either; for `run`,
    `latest` is the run that was started last.
    """

    def __init__(self, path: Path | str, *, patience: float = 60.0) -> None:
        """Set the file; `patience` is the time in seconds to wait for another process."""
        self._store = Store(path, patience=patience)

    @property
    def path(self) -> Path:
        """The file."""
        return self._store.path

    def __repr__(self) -> str:
        return f"Database({str(self.path)!r})"

    def runs(self) -> "pd.DataFrame":
        """Return one row per run, the oldest first."""
        return self.sql("SELECT * FROM runs ORDER BY created_at, id")

    def experiments(self) -> "pd.DataFrame":
        """Return one row per entry of a run, the oldest first."""
        return self.sql("SELECT * FROM experiments ORDER BY created_at, run_id, position")

    def episodes(
        self, *, run: str | None = None, experiment: str | None = None
    ) -> "pd.DataFrame":
        """Return one row per session."""
        return self._select("episodes", "created_at, session_id", run, experiment)

    def turns(self, *, run: str | None = None, experiment: str | None = None) -> "pd.DataFrame":
        """Return one row per model call."""
        return self._select("turns", "session_id, turn", run, experiment)

    def achievements(
        self, *, run: str | None = None, experiment: str | None = None
    ) -> "pd.DataFrame":
        """Return one row per session and achievement, with the step it was unlocked in."""
        return self._select("achievements", "session_id, step", run, experiment)

    def model_usage(
        self, *, run: str | None = None, experiment: str | None = None
    ) -> "pd.DataFrame":
        """Return the calls, tokens, cost and latency of each model."""
        return self._select("model_usage", "experiment_id", run, experiment)

    def outcomes(
        self, *, run: str | None = None, experiment: str | None = None
    ) -> "pd.DataFrame":
        """Return one row per session and metric: the input of the statistics."""
        return self._select("outcomes", "trial_id, metric", run, experiment)

    def messages(self, session: str) -> "pd.DataFrame":
        """Return the messages of a session, in order."""
        with self._store.reading() as connection:
            found = resolve_session(connection, session)
            return connection.execute(
                "SELECT * FROM messages WHERE session_id = ? ORDER BY position", [found]
            ).df()

    def session(self, session: str) -> SessionRecord:
        """Load a session as it was recorded; `best`, `worst` and `latest` are accepted."""
        with self._store.reading() as connection:
            return load_session(connection, resolve_session(connection, session))

    def sql(
        self, query: str, parameters: Sequence[Any] | Mapping[str, Any] = ()
    ) -> "pd.DataFrame":
        """Return the result of an SQL query."""
        with self._store.reading() as connection:
            return connection.execute(query, parameters).df()

    def _select(
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

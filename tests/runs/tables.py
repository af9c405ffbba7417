"""The content that two databases of the same run must share."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from assay.store.schema import TABLES, Table, Type
from assay.store.store import Store

__all__ = ["calls_at", "contents", "rows", "sessions"]

# Paths and times differ between runs; a checkout may change between two runs.
_LEFT_OUT = {"command", "provenance", "duration_s", "latency_ms", "retries", "attempts"}
_PATHS = ("database", "traces_dir", "hooks", "service_url")


def contents(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return all tables, sorted by key, without times, durations, paths and retries."""
    with Store(database).reading() as connection:
        found = {}
        for table in TABLES:
            names, key = _quoted(_columns(table)), _quoted(table.key)
            query = f"SELECT {names} FROM {table.name} ORDER BY {key}"
            found[table.name] = [_plain(row) for row in connection.execute(query).fetchall()]
    found["outcomes"] = [row for row in found["outcomes"] if "duration_s" not in row]
    return found


def _columns(table: Table) -> Iterator[str]:
    for column in table.columns:
        if column.type is not Type.TIME and column.name not in _LEFT_OUT:
            yield column.name


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_without_paths(value) for value in row)


def _without_paths(value: Any) -> Any:
    if not (isinstance(value, str) and value.startswith('{"') and '"database"' in value):
        return value
    return json.dumps({k: v for k, v in json.loads(value).items() if k not in _PATHS})


def calls_at(database: Path) -> dict[tuple[str, int], Any]:
    """Return the time of each answer by session and turn; empty without a database."""
    if not database.exists():
        return {}
    with Store(database).reading() as connection:
        rows = connection.execute(
            "SELECT session_id, turn, epoch_us(event_time) FROM events"
            " WHERE event_type = 'cais'"
        ).fetchall()
    return {(session, turn): at for session, turn, at in rows}


def sessions(database: Path, run_id: str) -> int:
    """Count the stored sessions of a run."""
    with Store(database).reading() as connection:
        row = connection.execute(
            "SELECT count(*) FROM session_traces WHERE run_id = ?", [run_id]
        ).fetchone()
    assert row is not None
    return int(row[0])


def rows(database: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table or a view as dictionaries."""
    with Store(database).reading() as connection:
        found = connection.execute(f"FROM {name}")
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

"""The queries of docs/traces.md on a database of a million turns."""

import atexit
import re
import shutil
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import Final

import duckdb

from assay.api.runs import run
from assay.store.schema import TABLES
from assay.store.store import Store

from .measure import Row, Topic, size
from .processes import ROOT

__all__ = ["TOPIC", "fill_store"]

_PAGE: Final = ROOT / "docs" / "traces.md"
_QUERY: Final = re.compile(r"^([^\n]+)\n\n```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FEW: Final = size(100_000, 1_000)
_MANY: Final = size(1_000_000, 4_000)
_MODELS: Final = ("builtin/forager", "builtin/expert")

_COPIED: Final = {
    "session_id": "md5(concat(session_id, n))[:20]",
    "trial_id": "md5(concat(trial_id, n))[:20]",
    "trials.id": "md5(concat(id, n))[:20]",
    "id": "(hash(id, n) >> 1)::BIGINT",
    "timestep_id": "(hash(timestep_id, n) >> 1)::BIGINT",
    "hash": "md5(concat(hash, n))::UUID",
    "seed": "seed + 100 * n",
    "episode": "episode + 100 * n",
}
"""What differs in copy n; all else is as it was."""


def _read_queries() -> list[tuple[str, str]]:
    """The questions of the page and their queries."""
    try:
        page = _PAGE.read_text(encoding="utf-8")
    except OSError:
        return []
    return [(words.split("?")[0], query) for words, query in _QUERY.findall(page)]


@cache
def _make_databases() -> dict[int, duckdb.DuckDBPyConnection]:
    """Two databases to read from, by the turns they hold."""
    folder = Path(tempfile.mkdtemp(prefix="assay-perf-queries-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "traces.duckdb"
    run(
        models=_MODELS,
        baselines=False,
        episodes=size(25, 1),
        database=path,
        traces_dir=folder / "traces",
        save_traces=False,
    )
    copied, connections = 0, {}
    for turns in (_FEW, _MANY):
        with Store(path).writing() as connection:
            copied = fill_store(connection, turns, copied)
        kept = shutil.copy(path, folder / f"{turns}.duckdb")
        connections[turns] = duckdb.connect(kept, read_only=True)
    return connections


def fill_store(connection: duckdb.DuckDBPyConnection, turns: int, copied: int) -> int:
    """Copy the first sessions until there are so many turns; how often they were copied."""
    if copied == 0:
        for name in _list_copied_tables():
            connection.execute(f"CREATE TABLE first_{name} AS FROM {name}")
    first = _fetch_one(connection, "SELECT sum(num_turns) FROM first_session_traces")
    enough = -(-turns // first) - 1
    for name, columns in _list_copied_tables().items():
        chosen = ", ".join(
            _COPIED.get(f"{name}.{column}", _COPIED.get(column, f'"{column}"'))
            for column in columns
        )
        # One statement for all: what is large is then written straight to its place.
        connection.execute(
            f"INSERT INTO {name} SELECT {chosen} "
            f"FROM range($from, $to) copies(n), first_{name}",
            {"from": copied + 1, "to": enough + 1},
        )
    return enough


def _list_copied_tables() -> dict[str, tuple[str, ...]]:
    kept = ("runs", "experiments")
    return {table.name: table.names for table in TABLES if table.name not in kept}


def _fetch_one(connection: duckdb.DuckDBPyConnection, query: str) -> int:
    ((value,),) = connection.execute(query).fetchall()
    return int(value)


def _time_query(turn: int, *, query: str, turns: int) -> float:
    connection = _make_databases()[turns]
    started = time.perf_counter()
    connection.execute(query).fetchall()
    return time.perf_counter() - started


def _make_row(number: int, question: str) -> Row:
    return Row(
        name=f"query-{number}",
        what=question,
        ours=f"query {number} of many",
        peer=f"query {number} of few",
        against="100,000 turns",
        cost="x",
        peer_unit="query",
    )


_ALL: Final = list(enumerate(_read_queries(), start=1))

TOPIC: Final = Topic(
    name="queries",
    unit="query",
    sides={
        f"query {number} of {size}": partial(_time_query, query=query, turns=turns)
        for number, (_, query) in _ALL
        for size, turns in (("few", _FEW), ("many", _MANY))
    },
    rows=tuple(_make_row(number, question) for number, (question, _) in _ALL),
    notes=(
        "The queries of docs/traces.md on a million turns, to the last row in Python, against "
        "the same on a tenth of them: 10x is what a query costs that reads everything. The "
        f"store holds episodes of {' and '.join(_MODELS)}, copied until there are enough; "
        "copies have separate ids, seeds and bodies, but the same texts.",
    ),
    rounds_at_most=3,
)

"""Training data: filtering and checking against the loops a user would write, and memory."""

import atexit
import shutil
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import duckdb

from assay.api.runs import run
from assay.api.sft import sft_filter
from assay.api.traces import export
from assay.store.store import Store

from .measure import Row, Topic, size
from .processes import ORACLES_PYTHON, figures
from .rows_queries import fill_store

__all__ = ["DATASETS_SIDES", "MEMORY", "TOPIC"]

DATASETS_SIDES: Final = ("load_dataset",)
_LIMIT: Final = 1200
_EPISODES: Final = size(12, 2)
_TURNS: Final = size(30_000, 500)
_FEW: Final = size(100_000, 1_000)
_MANY: Final = size(1_000_000, 4_000)


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="assay-perf-data-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _play(database: Path, episodes: int, **more: Any) -> Path:
    run(
        models=["builtin/forager"],
        baselines=False,
        episodes=episodes,
        database=database,
        traces_dir=database.with_suffix(""),
        save_traces=False,
        **more,
    )
    return database


@cache
def _store() -> Path:
    path = _play(_folder() / "traces.duckdb", _EPISODES)
    _copied(path, _TURNS)
    return path


def _copied(path: Path, turns: int) -> None:
    """Copy the episodes of a store until it has so many turns."""
    with Store(path).writing() as connection:
        fill_store(connection, turns, 0)
        for (name,) in _first_tables(connection):
            connection.execute(f"DROP TABLE {name}")


@cache
def _export() -> Path:
    path = _folder() / "traces.jsonl"
    export(database=_store(), format="jsonl", output=path)
    return path


@cache
def _data() -> Path:
    path = _folder() / "checked.jsonl"
    sft_filter(path, database=_store(), min_achievements=1)
    return path


def _seconds(asked: dict[str, float]) -> float:
    return asked["seconds"] / asked["rows"]


def _filter(turn: int) -> float:
    target = str(_folder() / "ours.jsonl")
    side = ("perf.sides.training_data", "filter", str(_store()), target)
    return _seconds(figures(*side, timeout=_LIMIT))


def _loop(turn: int) -> float:
    target = str(_folder() / "theirs.jsonl")
    side = ("perf.peers.filter_export", str(_export()), target)
    return _seconds(figures(*side, timeout=_LIMIT))


def _validate(turn: int) -> float:
    side = ("perf.sides.training_data", "validate", str(_data()))
    return _seconds(figures(*side, timeout=_LIMIT))


def _check(turn: int) -> float:
    return _seconds(figures("perf.peers.check_rows", str(_data()), timeout=_LIMIT))


def _load(turn: int) -> float:
    side = ("perf.peers.load_rows", str(_data()))
    return _seconds(figures(*side, python=ORACLES_PYTHON, timeout=_LIMIT))


TOPIC: Final = Topic(
    name="training-data",
    unit="row",
    sides={
        "filter": _filter,
        "loop": _loop,
        "validate": _validate,
        "check": _check,
        "load_dataset": _load,
    },
    rows=(
        Row(
            name="sft-filter",
            what="sft filter, from the store to rows, manifest and hash",
            ours="filter",
            peer="loop",
            against="a loop over the lines of traces export",
            target=3,
        ),
        Row(
            name="sft-validate",
            what="sft validate, all checks",
            ours="validate",
            peer="check",
            against="json.loads with checks of roles and tool calls",
            target=1,
        ),
        Row(
            name="sft-filter-load",
            what="sft filter, from the store to rows, manifest and hash",
            ours="filter",
            peer="load_dataset",
            against="datasets.load_dataset of the same rows",
        ),
        Row(
            name="sft-load",
            what="sft validate, all checks",
            ours="validate",
            peer="load_dataset",
            against="datasets.load_dataset of the same rows",
        ),
    ),
    notes=(
        f"Wall time for each row of {_TURNS:,} turns of builtin/forager, "
        "each row with the last 8 turns; every side in a process of its own, imports not "
        "counted. The loop gets a file that is exported already, and writes neither manifest "
        "nor hash.",
    ),
    rounds_at_most=5,
    warmup=False,
)


@cache
def _large(turns: int) -> Path:
    """A store of so many turns, copied from a few episodes; rows are short, files large."""
    first = _folder() / "first.duckdb"
    if not first.exists():
        _play(first, 10, max_turns=50, history=1)
    path = Path(shutil.copy(first, _folder() / f"{turns}.duckdb"))
    _copied(path, turns)
    return path


def _first_tables(connection: duckdb.DuckDBPyConnection) -> list[tuple[str]]:
    return connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE starts_with(table_name, 'first_')"
    ).fetchall()


def _peak(turn: int, *, turns: int) -> float:
    target = _folder() / "large.jsonl"
    side = ("perf.sides.training_data", "filter", str(_large(turns)), str(target))
    peak = figures(*side, timeout=_LIMIT)["peak"]
    target.unlink()
    return peak


MEMORY: Final = Topic(
    name="training-data-memory",
    unit="data set",
    sides={"many turns": partial(_peak, turns=_MANY), "few turns": partial(_peak, turns=_FEW)},
    rows=(
        Row(
            name="sft-memory",
            what="peak memory of sft filter on a million turns",
            ours="many turns",
            peer="few turns",
            against="100,000 turns",
            cost="x",
            most=1.3,
            peer_unit="data set",
        ),
    ),
    notes=(
        "The most memory that the process has held. The store holds episodes of "
        "builtin/forager with 50 turns and a history of one turn, copied until there are "
        "enough.",
    ),
    rounds_at_most=1,
    in_bytes=True,
    warmup=False,
)

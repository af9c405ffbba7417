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
from .processes import ORACLES_PYTHON, run_module
from .rows_queries import fill_store

__all__ = ["DATASETS_SIDES", "MEMORY", "TOPIC"]

DATASETS_SIDES: Final = ("load_dataset",)
_LIMIT: Final = 1200
_EPISODES: Final = size(12, 2)
_TURNS: Final = size(30_000, 500)
_FEW: Final = size(100_000, 1_000)
_MANY: Final = size(1_000_000, 4_000)


@cache
def _make_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="assay-perf-data-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _play_episodes(database: Path, episodes: int, **more: Any) -> Path:
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
def _make_database() -> Path:
    path = _play_episodes(_make_folder() / "traces.duckdb", _EPISODES)
    _copy_episodes(path, _TURNS)
    return path


def _copy_episodes(path: Path, turns: int) -> None:
    """Copy the episodes of a store until it has so many turns."""
    with Store(path).writing() as connection:
        fill_store(connection, turns, 0)
        for (name,) in _list_first_tables(connection):
            connection.execute(f"DROP TABLE {name}")


@cache
def _export_data() -> Path:
    path = _make_folder() / "traces.jsonl"
    export(database=_make_database(), format="jsonl", output=path)
    return path


@cache
def _make_data() -> Path:
    path = _make_folder() / "checked.jsonl"
    sft_filter(path, database=_make_database(), min_achievements=1)
    return path


def _seconds_per_row(asked: dict[str, float]) -> float:
    return asked["seconds"] / asked["rows"]


def _time_filter(turn: int) -> float:
    target = str(_make_folder() / "ours.jsonl")
    side = ("perf.sides.training_data", "filter", str(_make_database()), target)
    return _seconds_per_row(run_module(*side, timeout=_LIMIT))


def _time_user_loop(turn: int) -> float:
    target = str(_make_folder() / "theirs.jsonl")
    side = ("perf.peers.filter_export", str(_export_data()), target)
    return _seconds_per_row(run_module(*side, timeout=_LIMIT))


def _time_validate(turn: int) -> float:
    side = ("perf.sides.training_data", "validate", str(_make_data()))
    return _seconds_per_row(run_module(*side, timeout=_LIMIT))


def _time_user_check(turn: int) -> float:
    return _seconds_per_row(
        run_module("perf.peers.check_rows", str(_make_data()), timeout=_LIMIT)
    )


def _time_load(turn: int) -> float:
    side = ("perf.peers.load_rows", str(_make_data()))
    return _seconds_per_row(run_module(*side, python=ORACLES_PYTHON, timeout=_LIMIT))


TOPIC: Final = Topic(
    name="training-data",
    unit="row",
    sides={
        "filter": _time_filter,
        "loop": _time_user_loop,
        "validate": _time_validate,
        "check": _time_user_check,
        "load_dataset": _time_load,
    },
    rows=(
        Row(
            name="sft-filter",
            what="sft filter, from the database to rows, manifest and hash",
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
            what="sft filter, from the database to rows, manifest and hash",
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
        "each row with the last 8 turns; every side in a separate process, imports not "
        "counted. The loop gets a file that is exported already, and writes neither manifest "
        "nor hash.",
    ),
    rounds_at_most=5,
    warmup=False,
)


@cache
def _make_large_database(turns: int) -> Path:
    """A store of so many turns, copied from a few episodes; rows are short, files large."""
    first = _make_folder() / "first.duckdb"
    if not first.exists():
        _play_episodes(first, 10, max_turns=50, history=1)
    path = Path(shutil.copy(first, _make_folder() / f"{turns}.duckdb"))
    _copy_episodes(path, turns)
    return path


def _list_first_tables(connection: duckdb.DuckDBPyConnection) -> list[tuple[str]]:
    return connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE starts_with(table_name, 'first_')"
    ).fetchall()


def _measure_peak(turn: int, *, turns: int) -> float:
    target = _make_folder() / "large.jsonl"
    side = ("perf.sides.training_data", "filter", str(_make_large_database(turns)), str(target))
    peak = run_module(*side, timeout=_LIMIT)["peak"]
    target.unlink()
    return peak


MEMORY: Final = Topic(
    name="training-data-memory",
    unit="data set",
    sides={
        "many turns": partial(_measure_peak, turns=_MANY),
        "few turns": partial(_measure_peak, turns=_FEW),
    },
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
        "Peak memory of the process. The database contains episodes of "
        "builtin/forager with 50 turns and a history of one turn, copied until there are "
        "enough.",
    ),
    rounds_at_most=1,
    in_bytes=True,
    warmup=False,
)

"""Runs of models behind HTTP, in this process, and comparisons of two runs."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from assay.agents import chat_models
from assay.api import runs
from assay.api.runs import run
from assay.cli import main
from assay.models.connections import find_unreachable
from assay.models.faults import CallRetries
from assay.runs.control import Retries
from assay.runs.run import RunResult
from assay.store.load import load_session
from assay.store.records import SessionRecord
from assay.store.store import Store

from .tables import contents, rows

__all__ = ["assert_same_run", "money", "play", "total", "transcripts", "with_short_timeouts"]

DATABASE = "traces.duckdb"
_FORAGER = ("builtin/forager",)
_OF_THE_PROVIDER = {
    "events": ("provider", "cost", "waited_ms"),
    "session_traces": ("cost_usd",),
}


def play(folder: Path, base_url: str | None, **settings: Any) -> RunResult:
    """Run a small experiment in its own folder."""
    folder.mkdir(exist_ok=True)
    chosen: dict[str, Any] = {
        "models": _FORAGER,
        "episodes": 4,
        "max_turns": 6,
        "save_traces": False,
        "run_id": "same",
        "baselines": False,
        "openai_base_url": base_url,
        "database": folder / DATABASE,
        "traces_dir": folder / "files",
    }
    return run(**{**chosen, **settings})


def with_short_timeouts(*arguments: str) -> int:
    """Run the program with short model timeouts; only for a subprocess.

    On a busy machine even a refused connection is noticed late.
    """
    patience = CallRetries(patience=0.4, first_wait=0.1)
    vars(chat_models).update(
        CallRetries=lambda **_: patience,
        why_unreachable=partial(find_unreachable, timeout=60.0),
    )
    vars(runs).update(Retries=partial(Retries, attempts=2, first_wait=0.1))
    return main(list(arguments))


def assert_same_run(first: Path, second: Path) -> None:
    """Compare all tables except for providers, prices, paths and times."""
    tables = [dict(_comparable(folder / DATABASE)) for folder in (first, second)]
    for name, found in tables[0].items():
        assert found == tables[1][name], name
    assert tables[0]["events"]


def _comparable(database: Path) -> Iterator[tuple[str, list[Any]]]:
    for name, found in contents(database).items():
        if name not in ("runs", "experiments", "provider_limits", *_OF_THE_PROVIDER):
            yield name, [row for row in found if "cost_usd" not in row]
    for name, more in _OF_THE_PROVIDER.items():
        left_out = {*more, "duration_s", "latency_ms", "retries", "attempts"}
        yield name, sorted(str(_timeless(row, left_out)) for row in rows(database, name))


def _timeless(row: dict[str, Any], left_out: set[str]) -> dict[str, Any]:
    return {
        name: value
        for name, value in row.items()
        if name not in left_out and not hasattr(value, "year")
    }


def transcripts(database: Path) -> list[tuple[Any, ...]]:
    """Return messages and steps of each episode, without the name of the model."""
    with Store(database).reading() as connection:
        ids = connection.execute(
            "SELECT session_id FROM session_traces ORDER BY subject, episode"
        ).fetchall()
        return [_transcript(load_session(connection, row[0])) for row in ids]


def _transcript(session: SessionRecord) -> tuple[Any, ...]:
    return (
        session.header.seed,
        [(call.turn, call.request, call.reply, call.usage) for call in session.calls],
        [
            (message.position, message.turn, message.message.encoded)
            for message in session.messages
        ],
        [(turn.turn, turn.asked, turn.steps) for turn in session.played],
    )


def total(database: Path, what: str) -> Any:
    """Return the sum of a column over all calls."""
    with Store(database).reading() as connection:
        row = connection.execute(
            f"SELECT {what} FROM events WHERE event_type = 'cais'"
        ).fetchone()
    assert row is not None
    return row[0]


def money(database: Path) -> float:
    """Return the dollars of all calls."""
    return float(total(database, "coalesce(sum(cost), 0)"))

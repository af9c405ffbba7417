"""From a row of a data set back to the episode it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.api._episode_sources import open_source
from assay.errors import UsageError
from assay.traces.opening import Where

if TYPE_CHECKING:
    from assay.datasets.manifest import RowOrigin
    from assay.traces.records import SessionRecord
    from assay.traces.trace import Trace

__all__ = ["TracedRow", "sft_trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRow:
    """One row of a data set, and the moment it came from."""

    row: int
    """Counted from 1, as the lines of the file."""
    origin: "RowOrigin"
    trace: "Trace"
    steps_before: int
    """Steps of the world before the first turn of the row."""
    actions: tuple[str, ...]
    """What was played in its turns."""
    replayed: bool | None
    """Whether the world, played again up to there, is the one that was recorded; None where
    it cannot be played again."""
    why_not: str = ""
    """Why it cannot be, or where it differs."""
    unlocked: Mapping[str, int] = field(default_factory=dict)
    """What was achieved up to there, in the world that was played again."""
    inventory: Mapping[str, int] = field(default_factory=dict)
    """What the player had."""
    database: Path | None = None
    """Where the session is stored; None if it was read from a folder."""


def sft_trace(data: Path | str, row: int, *, database: Where = None) -> TracedRow:
    """The episode that a row came from, played again up to the row's first turn.

    Args:
        data: The data file; its manifest stands beside it.
        row: The row, counted from 1.
        database: The store to read; the one that the manifest names if there is none.

    Raises:
        UsageError: There is no such row, or no manifest, or no such session any more.
    """
    from assay.api.sessions import load_trace
    from assay.datasets.manifest import read_lineage, row_origins

    path = Path(data)
    split = "holdout" if path.stem.endswith(".holdout") else "train"
    origins = row_origins(path, split)
    origin = next(islice(origins, row - 1, None), None) if row > 0 else None
    if origin is None:
        rows = (read_lineage(path) or {}).get("files", {}).get(split, {}).get("rows", 0)
        raise UsageError(f"row {row} is not in {str(path)!r}; its rows are 1 to {rows}")
    source = (read_lineage(path) or {}).get("source", {})
    folder = None if database is not None else source.get("input_dir")
    if database is None and "database" in source:
        database = path.parent / source["database"]
    with open_source(None if folder is None else path.parent / folder, database) as store:
        trace = load_trace(origin.session_id, database=store)
        where = None if folder is not None else store.path
    session = trace.session
    before = [played for played in session.played if played.turn < origin.first_turn]
    within = [
        step.action
        for played in session.played
        if origin.first_turn <= played.turn <= origin.last_turn
        for step in played.steps
    ]
    steps = sum(len(played.steps) for played in before)
    return TracedRow(
        row=row,
        origin=origin,
        trace=trace,
        steps_before=steps,
        actions=tuple(within),
        database=where,
        **_replayed_to(session, steps),
    )


def _replayed_to(session: "SessionRecord", steps: int) -> dict[str, Any]:
    """Play a session again for some steps, comparing each with what was recorded."""
    from assay.metrics import Replay, verify_session

    found = verify_session(session)
    if found.reason is not None:
        return {"replayed": None, "why_not": found.reason}
    if found.steps < steps:
        return {"replayed": False, "why_not": str(found.difference)}
    episode = Replay(session)
    for _ in islice(iter(episode), steps):
        pass
    inventory = {name: count for name, count in episode.world.view().inventory.items() if count}
    return {"replayed": True, "unlocked": dict(episode.unlocked), "inventory": inventory}

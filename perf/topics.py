"""All topics in the order of the table, and choosing among them."""

from collections.abc import Sequence
from typing import Final

from . import (
    rows_batches,
    rows_doors,
    rows_looks,
    rows_resets,
    rows_service,
    rows_starts,
    rows_states,
    rows_steps,
    rows_text,
)
from .measure import Row, Topic
from .processes import PEERS_PYTHON

__all__ = ["TOPICS", "choose", "unavailable"]

TOPICS: Final = (
    rows_steps.TOPIC,
    rows_looks.TOPIC,
    rows_resets.TOPIC,
    rows_batches.TOPIC,
    rows_batches.OPTIMISTIC,
    rows_states.TOPIC,
    rows_text.TOPIC,
    rows_service.TOPIC,
    rows_doors.GYMNASIUM,
    rows_doors.EXPERT,
    rows_starts.FIRST,
    rows_starts.SECOND,
)


def choose(names: Sequence[str]) -> list[tuple[Topic, list[Row]]]:
    """The topics and rows that were named; all of them if none was."""
    known = {name for topic in TOPICS for name in (topic.name, *(r.name for r in topic.rows))}
    for name in names:
        if name not in known:
            raise ValueError(f"unknown row or topic {name!r}; see 'python -m perf --list'")
    picked = [
        (topic, [row for row in topic.rows if not names or {row.name, topic.name} & {*names}])
        for topic in TOPICS
    ]
    return [(topic, rows) for topic, rows in picked if rows]


def unavailable(no_peers: bool) -> dict[str, str]:
    """The sides that cannot be measured, with the reason."""
    if no_peers:
        reason = "skipped by --no-peers"
    elif not PEERS_PYTHON.exists():
        reason = "skipped, Craftax is not there: make install-peers"
    else:
        return {}
    return dict.fromkeys(rows_batches.CRAFTAX_SIDES, reason)

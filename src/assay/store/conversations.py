"""Requests and replies of model calls, read for many sessions at once.

Message bodies stay the canonical JSON text they are stored as, so that a request is assembled
without encoding it again. Sessions are read in batches of a bounded number of turns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from assay.store.views import COPIED_CALL

_TURNS_AT_ONCE: Final = 32_000
_CHOSEN: Final = "session_id IN (SELECT unnest(?::VARCHAR[]))"
_INDEXED: Final = (
    "(SELECT unnest($ids::VARCHAR[]) AS session_id,"
    " generate_subscripts($ids::VARCHAR[], 1) - 1 AS place)"
)
"""The requested session ids, each with its index."""
_MEMORY: Final = "300MB"

Run = tuple[int, int]
"""Consecutive positions: the first, and the one after the last."""


@dataclass(slots=True)
class ModelCall:
    """A model call that got a reply."""

    turn: int
    runs: list[Run]
    """Positions of the messages in the request, as runs because histories are long."""
    reply: int
    """Position of the reply."""
    tokens: int
    """Prompt and completion tokens."""
    copied: bool = False
    """Whether the call was made in the session that this one was forked from."""

    @property
    def request(self) -> list[int]:
        """Positions of the messages in the request, one by one."""
        return [position for first, end in self.runs for position in range(first, end)]


@dataclass(slots=True)
class PlayedTurn:
    """Result of one turn."""

    reward: float = 0.0
    action: str = ""
    """First action in the reply; empty if there was none."""
    wasted: bool = False
    """Whether the reply was malformed, or all its actions were unknown or had no effect."""


@dataclass(slots=True)
class StoredConversation:
    """One session: its messages as JSON text, its calls and its turns."""

    session_id: str
    tools: str | None
    """Tools offered in every request, as JSON text."""
    bodies: list[str]
    """Messages, by position."""
    roles: list[str]
    calls: list[ModelCall]
    turns: dict[int, PlayedTurn]


def group_sessions(sessions: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Group sessions, given as ids and turn counts, so that each group fits into memory."""
    group: list[str] = []
    turns = 0
    for session_id, count in sessions:
        if group and turns + count > _TURNS_AT_ONCE:
            yield group
            group, turns = [], 0
        group.append(session_id)
        turns += count
    if group:
        yield group


def limit_memory(connection: duckdb.DuckDBPyConnection) -> None:
    """Limit the memory of DuckDB to the amount that a batch needs."""
    connection.execute(f"SET memory_limit = '{_MEMORY}'")


def load_conversations(
    connection: duckdb.DuckDBPyConnection, session_ids: Sequence[str]
) -> list[StoredConversation]:
    """Read sessions with their messages, in the order of their ids."""
    ids = list(session_ids)
    tools = dict(
        connection.execute(
            f"""
            SELECT s.session_id, b.body
            FROM (SELECT session_id, tools_hash FROM session_traces WHERE {_CHOSEN}) s
            LEFT JOIN message_bodies b ON b.hash = s.tools_hash
            """,
            [ids],
        ).fetchall()
    )
    found = [StoredConversation(name, tools.get(name), [], [], [], {}) for name in ids]
    _read_calls(connection, ids, found)
    _read_turns(connection, ids, found)
    _read_messages(connection, ids, found)
    return found


def _read_calls(
    connection: duckdb.DuckDBPyConnection, ids: list[str], found: list[StoredConversation]
) -> None:
    query = f"""
        SELECT place, turn, request, reply,
               coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0), {COPIED_CALL}
        FROM events JOIN {_INDEXED} USING (session_id)
        WHERE event_type = 'cais' AND reply IS NOT NULL
        ORDER BY place, turn, id
        """
    # Arrow, because making a Python object for each position would dominate the time.
    for batch in connection.sql(query, params={"ids": ids}).to_arrow_table().to_batches():
        places, turns, requests, replies, tokens, copied = batch.columns
        calls = zip(
            *(column.to_pylist() for column in (places, turns, replies, tokens, copied)),
            _find_runs(requests),
            strict=True,
        )
        for place, turn, reply, count, is_copied, runs in calls:
            found[place].calls.append(ModelCall(turn, runs, reply, count, is_copied))


def _find_runs(requests: pa.ListArray) -> list[list[Run]]:
    bounds = _as_int32(requests.offsets)
    positions = _as_int32(requests.values)[: bounds[-1]]
    begins = np.ones(len(positions), bool)
    begins[1:] = positions[1:] != positions[:-1] + 1
    begins[bounds[bounds < len(positions)]] = True
    at = np.flatnonzero(begins)
    firsts = positions[at]
    ends = firsts + np.diff(at, append=len(positions))
    runs = list(zip(firsts.tolist(), ends.tolist(), strict=True))
    return [runs[a:b] for a, b in pairwise(np.searchsorted(at, bounds).tolist())]


def _as_int32(column: pa.Int32Array) -> NDArray[np.int32]:
    """Return a column as an array; its own `to_numpy` would import pandas if installed."""
    start = column.offset
    return np.frombuffer(column.buffers()[1] or b"", np.int32)[start : start + len(column)]


def _read_turns(
    connection: duckdb.DuckDBPyConnection, ids: list[str], found: list[StoredConversation]
) -> None:
    query = f"""
        WITH chosen AS {_INDEXED}, played AS (
            SELECT place, turn, any_value(asked[1]) AS action,
                   coalesce(any_value(len(asked)), 0) AS asked,
                   coalesce(any_value(len("unknown")), 0) AS unknown_actions,
                   count(malformed) > 0 AS malformed, coalesce(sum(reward), 0) AS reward
            FROM events JOIN chosen USING (session_id)
            WHERE event_type IN ('runtime', 'environment')
            GROUP BY place, turn
        ), idle AS (
            SELECT place, turn, count(*) AS steps
            FROM session_timesteps JOIN chosen USING (session_id)
            WHERE no_effect IS NOT NULL
            GROUP BY place, turn
        )
        SELECT p.place, p.turn, p.reward, coalesce(p.action, ''),
               p.malformed OR (
                   p.asked > 0 AND p.unknown_actions + coalesce(i.steps, 0) >= p.asked
               )
        FROM played p LEFT JOIN idle i ON i.place = p.place AND i.turn = p.turn
        """
    for place, turn, reward, action, wasted in connection.sql(
        query, params={"ids": ids}
    ).fetchall():
        found[place].turns[turn] = PlayedTurn(reward, action, wasted)


def _read_messages(
    connection: duckdb.DuckDBPyConnection, ids: list[str], found: list[StoredConversation]
) -> None:
    query = f"""
        SELECT place, position, role, body
        FROM message_rows JOIN {_INDEXED} USING (session_id) JOIN message_bodies USING (hash)
        ORDER BY place, position
        """
    for place, position, role, body in connection.sql(query, params={"ids": ids}).fetchall():
        session = found[place]
        # An imported log may skip positions.
        missing = position - len(session.bodies)
        if missing:
            session.bodies += [""] * missing
            session.roles += [""] * missing
        session.bodies.append(body)
        session.roles.append(role)


def load_first_actions(
    connection: duckdb.DuckDBPyConnection, session_ids: Sequence[str]
) -> list[tuple[str, int, str]]:
    """Return session, turn and first action (or "") of each answered call, copies excluded."""
    rows = connection.execute(
        f"""
        SELECT c.session_id, c.turn, coalesce(p.asked[1], '')
        FROM (
            SELECT session_id, turn FROM events
            WHERE event_type = 'cais' AND reply IS NOT NULL AND NOT {COPIED_CALL} AND {_CHOSEN}
        ) c LEFT JOIN (
            SELECT session_id, turn, asked FROM events
            WHERE event_type = 'runtime' AND {_CHOSEN}
        ) p USING (session_id, turn)
        """,
        [list(session_ids), list(session_ids)],
    ).fetchall()
    return [(session_id, turn, action) for session_id, turn, action in rows]

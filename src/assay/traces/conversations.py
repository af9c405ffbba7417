"""What models were sent and answered, call by call, for many sessions at once.

Bodies stay the canonical JSON they are stored as, so that a request is put together and
never encoded again. Sessions are read in batches of a bounded number of turns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import duckdb

from .views import COPIED_CALL

__all__ = [
    "ModelCall",
    "PlayedTurn",
    "StoredConversation",
    "batches",
    "bound_memory",
    "conversations",
    "first_actions",
]

_TURNS_AT_ONCE: Final = 32_000
_CHOSEN: Final = "session_id IN (SELECT unnest(?::VARCHAR[]))"
_MEMORY: Final = "300MB"


@dataclass(slots=True)
class ModelCall:
    """One call that was answered."""

    turn: int
    request: list[int]
    """The positions of the messages that were sent."""
    reply: int
    """The position of the answer."""
    tokens: int
    """Sent and received."""
    finish_reason: str
    copied: bool = False
    """Whether it was made in the session that this one was forked from."""


@dataclass(slots=True)
class PlayedTurn:
    """What came of one turn."""

    reward: float = 0.0
    action: str = ""
    """The first action that the answer asked for; empty if there was none."""
    wasted: bool = False
    """Whether the reply was malformed, or every action asked for was waste."""


@dataclass(slots=True)
class StoredConversation:
    """One session: its messages as JSON text, and what was played of them."""

    session_id: str
    tools: str | None
    """The tools that every request offered, as JSON text."""
    bodies: list[str]
    """The messages, by their position."""
    roles: list[str]
    calls: list[ModelCall]
    turns: dict[int, PlayedTurn]


def batches(sessions: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """Sessions in groups that fit into memory, from their ids and numbers of turns."""
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


def bound_memory(connection: duckdb.DuckDBPyConnection) -> None:
    """Let DuckDB keep no more of a file in memory than a batch needs."""
    connection.execute(f"SET memory_limit = '{_MEMORY}'")


def conversations(
    connection: duckdb.DuckDBPyConnection, session_ids: Sequence[str]
) -> list[StoredConversation]:
    """Read sessions with their messages, in the order of their ids."""
    ids = list(session_ids)
    found = _without_messages(connection, ids)
    rows = connection.execute(
        f"""
        SELECT r.session_id, list(b.body ORDER BY r.position), list(r.role ORDER BY r.position),
               list(r.position ORDER BY r.position)
        FROM (SELECT session_id, position, role, hash FROM message_rows WHERE {_CHOSEN}) r
        JOIN message_bodies b USING (hash) GROUP BY r.session_id
        """,
        [ids],
    ).fetchall()
    for session_id, bodies, roles, positions in rows:
        session = found[session_id]
        if positions == list(range(len(positions))):
            session.bodies, session.roles = bodies, roles
        else:
            # A log of another program may count its messages in its own way.
            size = positions[-1] + 1
            session.bodies, session.roles = [""] * size, [""] * size
            for position, body, role in zip(positions, bodies, roles, strict=True):
                session.bodies[position], session.roles[position] = body, role
    return list(found.values())


def _without_messages(
    connection: duckdb.DuckDBPyConnection, ids: list[str]
) -> dict[str, StoredConversation]:
    """Sessions with their calls and turns alone."""
    rows = connection.execute(
        f"""
        SELECT s.session_id, b.body
        FROM (SELECT session_id, tools_hash FROM session_traces WHERE {_CHOSEN}) s
        LEFT JOIN message_bodies b ON b.hash = s.tools_hash
        """,
        [ids],
    ).fetchall()
    tools = dict(rows)
    found = {name: StoredConversation(name, tools.get(name), [], [], [], {}) for name in ids}
    for session_id, turn, request, reply, tokens, reason, copied in connection.execute(
        f"""
        SELECT session_id, turn, request, reply,
               coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0), finish_reason,
               {COPIED_CALL}
        FROM events WHERE event_type = 'cais' AND {_CHOSEN} AND reply IS NOT NULL
        ORDER BY session_id, turn, id
        """,
        [ids],
    ).fetchall():
        found[session_id].calls.append(
            ModelCall(turn, request or [], reply, tokens, reason or "", copied)
        )
    for session_id, turn, reward, action, wasted in connection.execute(
        f"""
        WITH played AS (
            SELECT session_id, turn, any_value(asked[1]) AS action,
                   coalesce(any_value(len(asked)), 0) AS asked,
                   coalesce(any_value(len("unknown")), 0) AS unknown_actions,
                   count(malformed) > 0 AS malformed, coalesce(sum(reward), 0) AS reward
            FROM events WHERE event_type IN ('runtime', 'environment') AND {_CHOSEN}
            GROUP BY session_id, turn
        ), idle AS (
            SELECT session_id, turn, count(*) AS steps
            FROM session_timesteps WHERE no_effect IS NOT NULL AND {_CHOSEN}
            GROUP BY session_id, turn
        )
        SELECT p.session_id, p.turn, p.reward, coalesce(p.action, ''),
               p.malformed OR (
                   p.asked > 0 AND p.unknown_actions + coalesce(i.steps, 0) >= p.asked
               )
        FROM played p LEFT JOIN idle i ON i.session_id = p.session_id AND i.turn = p.turn
        """,
        [ids, ids],
    ).fetchall():
        found[session_id].turns[turn] = PlayedTurn(reward, action, wasted)
    return found


def first_actions(
    connection: duckdb.DuckDBPyConnection, session_ids: Sequence[str]
) -> list[tuple[str, int, str]]:
    """For each answered call its session, its turn, and the first action asked for in it."""
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

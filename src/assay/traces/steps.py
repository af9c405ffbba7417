"""Steps, calls and hook results of many sessions, by session, without a message.

What analyses over thousands of sessions read: a session is a few tuples and arrays, and words
that stand in very many rows are kept once.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from .views import COPIED_CALL

__all__ = [
    "HookFiring",
    "LostTurn",
    "SessionCalls",
    "SessionSteps",
    "load_calls",
    "load_hooks",
    "load_lost_turns",
    "load_steps",
]

_ROWS_AT_ONCE = 500
_CHOSEN = "session_id IN (SELECT unnest(?::VARCHAR[]))"


class SessionSteps(NamedTuple):
    """The steps of one session, in their order."""

    actions: tuple[str, ...] = ()
    no_effect: tuple[str | None, ...] = ()
    """Why each changed nothing; None where it had an effect."""


class SessionCalls(NamedTuple):
    """The calls of one session, in their order; all arrays have the shape (calls,)."""

    turns: NDArray[np.int64]
    """Counted from 1."""
    prompt_tokens: NDArray[np.int64]
    completion_tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]
    """Part of the prompt tokens."""
    reasoning_tokens: NDArray[np.int64]
    """Part of the completion tokens."""
    costs: NDArray[np.float64]
    """In dollars; NaN where a price is not known."""


class HookFiring(NamedTuple):
    """Something a hook noticed."""

    name: str
    turn: int
    step: int | None
    """None for what concerns the turn as a whole."""


class LostTurn(NamedTuple):
    """A turn whose reply was not all of use."""

    turn: int
    unknown: int
    """Actions that do not exist."""
    malformed: bool
    """Whether it could not be read."""
    cut: bool
    """Whether it was cut at the token limit."""


def load_steps(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> dict[str, SessionSteps]:
    """The steps of those sessions that have some."""
    rows = connection.execute(
        "SELECT session_id, list(action ORDER BY step_index),"
        " list(no_effect ORDER BY step_index)"
        f" FROM session_timesteps WHERE {_CHOSEN} GROUP BY session_id",
        [list(session_ids)],
    )
    kept: dict[Any, Any] = {}
    found: dict[str, SessionSteps] = {}
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        for session_id, actions, no_effect in some:
            found[session_id] = SessionSteps(
                *(
                    tuple([kept.setdefault(word, word) for word in words])
                    for words in (actions, no_effect)
                )
            )
    return found


def load_calls(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> dict[str, SessionCalls]:
    """The calls of those sessions that have some, without those that a fork has in common."""
    columns = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
    lists = ", ".join(f"list(coalesce({name}, 0) ORDER BY turn, id)" for name in columns)
    rows = connection.execute(
        f"SELECT session_id, list(turn ORDER BY turn, id), {lists},"
        " list(coalesce(cost, 'NaN'::DOUBLE) ORDER BY turn, id)"
        f" FROM events WHERE event_type = 'cais' AND NOT {COPIED_CALL} AND {_CHOSEN}"
        " GROUP BY session_id",
        [list(session_ids)],
    )
    found: dict[str, SessionCalls] = {}
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        for session_id, *counts, costs in some:
            turns, prompt, completion, cached, reasoning = (
                np.array(one, np.int64) for one in counts
            )
            found[session_id] = SessionCalls(
                turns, prompt, completion, cached, reasoning, np.array(costs, np.float64)
            )
    return found


def load_hooks(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> dict[str, tuple[HookFiring, ...]]:
    """What hooks noticed in those sessions in which they noticed something, in its order."""
    rows = connection.execute(
        "SELECT session_id, hook_name, coalesce(turn, 0), step"
        f" FROM hook_results WHERE {_CHOSEN} ORDER BY session_id, id",
        [list(session_ids)],
    )
    kept: dict[str, str] = {}
    found: dict[str, list[HookFiring]] = defaultdict(list)
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        for session_id, name, turn, step in some:
            found[session_id].append(HookFiring(kept.setdefault(name, name), turn, step))
    return {session_id: tuple(firings) for session_id, firings in found.items()}


def load_lost_turns(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> dict[str, tuple[LostTurn, ...]]:
    """The turns of sessions that lost something, in their order."""
    rows = connection.execute(
        'SELECT session_id, turn, coalesce(max(len("unknown")), 0),'
        " bool_or(malformed IS NOT NULL), bool_or(coalesce(finish_reason = 'length', false))"
        f" FROM events WHERE event_type IN ('cais', 'runtime') AND {_CHOSEN}"
        " GROUP BY session_id, turn"
        ' HAVING max(len("unknown")) > 0 OR bool_or(malformed IS NOT NULL)'
        " OR bool_or(coalesce(finish_reason = 'length', false)) ORDER BY session_id, turn",
        [list(session_ids)],
    )
    found: dict[str, list[LostTurn]] = defaultdict(list)
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        for session_id, *lost in some:
            found[session_id].append(LostTurn(*lost))
    return {session_id: tuple(turns) for session_id, turns in found.items()}

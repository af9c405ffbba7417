"""Facts about each session, without its messages, for filtering.

Sessions are yielded one at a time, so that filtering very many of them takes little memory. A
missing number is None, whether the database has NULL or NaN.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

import duckdb

from assay.core.text import cut, unknown_name
from assay.errors import UsageError
from assay.store.names import resolve
from assay.store.views import EPISODES

_ROWS_AT_ONCE: Final = 1_000
_COLUMNS: Final = (
    *("session_id", "run_id", "experiment_id", "experiment_name", "model", "task"),
    *("difficulty", "seed", "state", "stop_reason", "reward", "num_achievements", "steps"),
    *("turns", "invalid_rate", "cost_usd", "baseline"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """Facts about one session."""

    session_id: str
    run_id: str
    experiment_id: str
    experiment_name: str | None
    model: str
    task: str
    difficulty: str | None
    seed: int | None
    state: str
    stop_reason: str
    reward: float | None
    num_achievements: int | None
    steps: int
    turns: int
    invalid_rate: float | None
    """None if no action was requested."""
    cost_usd: float | None
    """None if the price of a call is unknown."""
    baseline: bool
    """Whether its entry is a baseline that was added automatically."""
    tokens: int
    """Prompt and completion tokens of all calls."""
    calls: int
    """Model calls that got a reply."""
    achievements: frozenset[str]
    hooks: frozenset[str]
    """Names of the hooks that have results."""
    labels: frozenset[str]
    """Labels that a person gave it."""
    own: bool | None
    """Value of the user's condition; True without a condition, None for NULL."""


def session_facts(
    connection: duckdb.DuckDBPyConnection, condition: str | None = None
) -> Iterator[SessionFacts]:
    """Yield all sessions, sorted by run, experiment and episode.

    Args:
        connection: The database.
        condition: One SQL expression over the columns of the view `episodes`.

    Raises:
        UsageError: The condition is not one boolean expression.
    """
    own = "true" if condition is None else f"({check_condition(connection, condition)}\n)"
    query = f"""
        WITH asked AS (
            SELECT session_id, count(*) AS calls FROM events
            WHERE event_type = 'cais' AND reply IS NOT NULL
            GROUP BY session_id
        ), unlocked AS (
            SELECT session_id, list(DISTINCT achievement) AS names FROM achievements
            GROUP BY session_id
        ), noticed AS (
            SELECT session_id, list(DISTINCT hook_name) AS names FROM hook_results
            GROUP BY session_id
        ), labelled AS (
            SELECT session_id, list(label) AS names FROM session_labels GROUP BY session_id
        ), judged AS (SELECT session_id, {own} AS own FROM episodes)
        SELECT {", ".join(f"v.{name}" for name in _COLUMNS)},
               coalesce(v.prompt_tokens, 0) + coalesce(v.completion_tokens, 0),
               coalesce(asked.calls, 0), unlocked.names, noticed.names,
               labelled.names, judged.own
        FROM episodes v JOIN judged USING (session_id)
        LEFT JOIN asked USING (session_id) LEFT JOIN unlocked USING (session_id)
        LEFT JOIN noticed USING (session_id) LEFT JOIN labelled USING (session_id)
        LEFT JOIN runs r ON r.id = v.run_id LEFT JOIN experiments e ON e.id = v.experiment_id
        ORDER BY r.created_at, v.run_id, e.position, v.experiment_id, v.episode, v.replicate,
                 v.session_id
        """
    try:
        rows = connection.execute(query)
        while batch := rows.fetchmany(_ROWS_AT_ONCE):
            yield from map(_make_facts, batch)
    except duckdb.Error as error:
        if condition is None:
            raise
        raise _make_error(condition, str(error).splitlines()[0]) from error


def _make_facts(row: tuple[Any, ...]) -> SessionFacts:
    *plain, tokens, calls, achievements, hooks, labels, own = row
    return SessionFacts(
        **{name: _nan_to_none(value) for name, value in zip(_COLUMNS, plain, strict=True)},
        tokens=tokens,
        calls=calls,
        achievements=frozenset(achievements or ()),
        hooks=frozenset(hooks or ()),
        labels=frozenset(labels or ()),
        own=own,
    )


def _nan_to_none(value: Any) -> Any:
    return None if isinstance(value, float) and isnan(value) else value


def check_condition(connection: duckdb.DuckDBPyConnection, condition: str) -> str:
    """Return the condition if it is one boolean expression over columns of `episodes`.

    Raises:
        UsageError: It is not; for an unknown column, the message suggests the closest name.
    """
    names = [name for name, _ in EPISODES.columns]
    (parsed,) = connection.execute(
        "SELECT json_serialize_sql(?)", [f"SELECT ({condition}\n)"]
    ).fetchall()[0]
    tree = json.loads(parsed)
    if tree.get("error"):
        raise _make_error(condition, str(tree.get("error_message", "")).splitlines()[0])
    nodes = [statement["node"] for statement in tree["statements"]]
    plain = len(nodes) == 1 and nodes[0]["type"] == "SELECT_NODE"
    plain = plain and len(nodes[0]["select_list"]) == 1 and not nodes[0]["modifiers"]
    plain = plain and nodes[0]["from_table"]["type"] == "EMPTY" and not nodes[0]["where_clause"]
    if not plain:
        raise _make_error(condition, "it is more than one expression")
    try:
        kind = connection.sql(f"SELECT ({condition}\n) AS own FROM episodes").types
    except duckdb.BinderException as error:
        wrong = _find_missing_column(str(error))
        if wrong is not None and wrong not in names:
            raise _make_error(condition, unknown_name("column", wrong, names)) from error
        raise _make_error(condition, str(error).splitlines()[0]) from error
    except duckdb.Error as error:
        raise _make_error(condition, str(error).splitlines()[0]) from error
    if str(kind[0]) != "BOOLEAN":
        raise _make_error(condition, f"its type is {kind[0]}, not BOOLEAN; compare it: … > 3")
    return condition


def _find_missing_column(message: str) -> str | None:
    _, quote, rest = message.partition('Referenced column "')
    return rest.partition('"')[0] if quote else None


def _make_error(condition: str, why: str) -> UsageError:
    return UsageError(
        f"--sql {cut(condition, 200)!r} cannot be used: {why}; give one expression over the "
        "columns of the view episodes, such as 'reward > 3 AND steps < 500'"
    )


def named_experiments(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str]
) -> frozenset[str]:
    """Return the ids of experiments that are named, or whose runs are named.

    Raises:
        UsageError: A name is unknown or ambiguous.
    """
    ids: set[str] = set()
    for name in names:
        match = resolve(connection, name, "experiment", "run")
        if match is None:
            raise UsageError(
                f"no experiment or run is named {name!r}; see 'assay experiments list'"
            )
        if match.kind == "experiment":
            ids.add(match.id)
        else:
            rows = connection.execute(
                "SELECT id FROM experiments WHERE run_id = ?", [match.id]
            ).fetchall()
            ids.update(experiment for (experiment,) in rows)
    return frozenset(ids)


def agent_settings(
    connection: duckdb.DuckDBPyConnection, experiments: Collection[str]
) -> dict[str, Any]:
    """Return the settings of the agent that all sessions of these experiments share."""
    rows = connection.execute(
        """
        SELECT DISTINCT metadata -> '$.agent' FROM session_traces
        WHERE list_contains(?, experiment_id)
        """,
        [list(experiments)],
    ).fetchall()
    agents = [json.loads(agent) if agent else {} for (agent,) in rows]
    return {
        name: value
        for name, value in (agents[0] if agents else {}).items()
        if all(agent.get(name) == value for agent in agents)
    }


def known_hooks(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the names of the hooks that have results in any session."""
    rows = connection.execute("SELECT DISTINCT hook_name FROM hook_results ORDER BY ALL")
    return [name for (name,) in rows.fetchall()]


def known_achievements(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the names of the achievements unlocked in any session."""
    rows = connection.execute("SELECT DISTINCT achievement FROM achievements ORDER BY ALL")
    return [name for (name,) in rows.fetchall()]

"""Pages of lists for a viewer: runs and episodes, filtered, sorted and counted.

Filters are names and values, never SQL. Functions take an open connection and change nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from duckdb import DuckDBPyConnection

from assay.core.text import unknown_name
from assay.errors import UsageError

_TIME: Callable[[str], str] = "strftime({}, '%Y-%m-%dT%H:%M:%S.%fZ')".format
_COLUMNS: Final = {
    "id": "v.session_id",
    "run": "v.run_id",
    "experiment": "v.experiment_id",
    "experiment_name": "v.experiment_name",
    "model": "v.model",
    "task": "v.task",
    "difficulty": "v.difficulty",
    "seed": "v.seed",
    "replicate": "coalesce(v.replicate, 0)",
    "state": "v.state",
    "stop_reason": "v.stop_reason",
    "reward": "v.reward",
    "achievements": "v.num_achievements",
    "steps": "v.steps",
    "turns": "v.turns",
    "waste": "v.invalid_rate",
    "cost_usd": "v.cost_usd",
    "tokens": "v.prompt_tokens + v.completion_tokens",
    "unusable": "v.malformed_replies",
    "duration_s": "v.duration_s",
    "created_at": _TIME("v.created_at"),
    "kind": "t.kind",
    "source": "v.source",
    "baseline": "v.baseline",
    "parent": "t.parent",
}
_SORTED: Final = (
    *("created_at", "model", "seed", "reward", "achievements", "steps", "turns", "cost_usd"),
    *("duration_s", "waste", "retries", "unusable"),
)
_TABLES: Final = "episodes v LEFT JOIN trials t ON t.id = v.session_id"
_RETRIES: Final = (
    "LEFT JOIN (SELECT session_id, sum(retries) AS retries FROM events"
    " WHERE event_type = 'cais' GROUP BY session_id) c ON c.session_id = v.session_id"
)
_WITHIN: Final = {
    "reached": "SELECT session_id FROM achievements WHERE achievement = ?",
    "label": "SELECT session_id FROM session_labels WHERE label = ?",
    "text": "SELECT session_id FROM session_notes WHERE contains(lower(text), lower(?))",
}
_EQUAL: Final = {
    "run": "v.run_id = ?",
    "experiment": "v.experiment_id = ?",
    "model": "v.model = ?",
    "task": "v.task = ?",
    "difficulty": "v.difficulty = ?",
    "seed": "v.seed = TRY_CAST(? AS BIGINT)",
    "state": "v.state = ?",
    "ended": "starts_with(v.stop_reason, ?)",
    "parent": "t.parent = ?",
    "since": "v.created_at >= TRY_CAST(? AS TIMESTAMP)",
    "until": "v.created_at < TRY_CAST(? AS TIMESTAMP)",
}
_MEASURED: Final = {
    "reward": "v.reward",
    "steps": "v.steps",
    "cost": "v.cost_usd",
    "waste": "v.invalid_rate",
    "retries": "c.retries",
    "unusable": "v.malformed_replies",
}
_BASELINES: Final = "NOT v.baseline"
_STATES: Final = ("result", "failure", "infrastructure")
_MOST_FACETS: Final = 200


class EpisodePage(NamedTuple):
    """One page of a list of episodes."""

    total: int
    counts: dict[str, int]
    """Number of episodes by state, whatever state is asked for."""
    rows: list[dict[str, Any]]


def filter_names() -> tuple[str, ...]:
    """Return the names of all filters of episodes."""
    bounds = [f"{side}_{name}" for name in _MEASURED for side in ("min", "max")]
    return (*_EQUAL, *_WITHIN, "missed", "baselines", *bounds)


class _Filter(NamedTuple):
    where: str
    values: list[Any]
    has_retries: bool


def _build_filter(filters: Mapping[str, str]) -> _Filter:
    parts: list[str] = []
    values: list[Any] = []
    for name, given in filters.items():
        side, _, measured = name.partition("_")
        if name in _EQUAL:
            parts.append(_EQUAL[name])
            values.append(given)
        elif name == "text":
            parts.append(f"v.session_id IN ({_WITHIN[name]})")
            values.append(given)
        elif name in _WITHIN or name == "missed":
            found = f"v.session_id IN ({_WITHIN.get(name, _WITHIN['reached'])})"
            for word in given.split(","):
                parts.append(f"NOT {found}" if name == "missed" else found)
                values.append(word)
        elif name == "baselines":
            parts += [_BASELINES] if given == "0" else []
        elif side in ("min", "max") and measured in _MEASURED:
            sign = ">=" if side == "min" else "<="
            column = _MEASURED[measured]
            parts.append(f"coalesce({column}, 0) {sign} TRY_CAST(? AS DOUBLE)")
            values.append(given)
        else:
            raise UsageError(unknown_name("filter", name, filter_names()))
    where = f"WHERE {' AND '.join(parts)}" if parts else ""
    return _Filter(where, values, "c.retries" in where)


def episode_page(
    connection: DuckDBPyConnection,
    filters: Mapping[str, str],
    *,
    sort: str = "-created_at",
    offset: int = 0,
    limit: int = 50,
) -> EpisodePage:
    """Return one page of the episodes that pass all filters.

    Raises:
        UsageError: A filter or a column is unknown.
    """
    column = sort.removeprefix("-")
    if column not in _SORTED:
        raise UsageError(unknown_name("column", column, _SORTED))
    states = {name: value for name, value in filters.items() if name != "state"}
    counts = dict.fromkeys(_STATES, 0) | dict(
        _select(connection, "v.state, count(*)", _build_filter(states), "GROUP BY v.state")
    )
    wanted = filters.get("state")
    total = sum(counts.values()) if wanted is None else counts.get(wanted, 0)
    key = "c.retries" if column == "retries" else _COLUMNS[column]
    order = "DESC" if sort.startswith("-") else "ASC"
    found = _build_filter(filters)
    if column == "retries":
        found = found._replace(has_retries=True)
    rows = _select(
        connection,
        ", ".join(_COLUMNS.values()),
        found,
        f"ORDER BY {key} {order} NULLS LAST, v.run_id, v.seed, v.session_id LIMIT ? OFFSET ?",
        [limit, offset],
    )
    listed = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
    return EpisodePage(total, counts, _add_more(connection, listed))


def episode_rows(
    connection: DuckDBPyConnection, session_ids: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the rows of these episodes, in this order; unknown ones are left out."""
    chosen = _Filter(
        "WHERE v.session_id IN (SELECT unnest(?::VARCHAR[]))", [session_ids], False
    )
    rows = _select(connection, ", ".join(_COLUMNS.values()), chosen)
    found = {row[0]: dict(zip(_COLUMNS, row, strict=True)) for row in rows}
    return _add_more(connection, [found[key] for key in session_ids if key in found])


def world_episodes(
    connection: DuckDBPyConnection, task: str, seed: int, *, run: str | None, most: int
) -> list[str]:
    """Return the episodes of one world, in one run or in all, in the order of entries."""
    rows = connection.execute(
        "SELECT s.session_id FROM session_traces s"
        " LEFT JOIN experiments e ON e.id = s.experiment_id"
        " LEFT JOIN runs r ON r.id = s.run_id"
        " WHERE s.task = $1 AND s.seed = $2 AND ($3 IS NULL OR s.run_id = $3)"
        " ORDER BY r.created_at DESC, e.position, s.replicate, s.session_id LIMIT $4",
        [task, seed, run, most],
    ).fetchall()
    return [session_id for (session_id,) in rows]


def run_worlds(connection: DuckDBPyConnection, run_id: str) -> list[dict[str, Any]]:
    """Return every episode of a run with its world, for a table of worlds and entries."""
    names = (
        *("id", "experiment", "task", "seed", "replicate", "state", "stop_reason"),
        *("reward", "achievements", "steps"),
    )
    rows = connection.execute(
        "SELECT session_id, experiment_id, task, seed, coalesce(replicate, 0), state,"
        " stop_reason, total_reward, num_achievements, num_timesteps FROM session_traces"
        " WHERE run_id = ? ORDER BY seed, replicate, session_id",
        [run_id],
    ).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]


def facets(connection: DuckDBPyConnection, filters: Mapping[str, str]) -> dict[str, list[Any]]:
    """Return the values that filters can have, for the episodes of a run or of all runs."""
    chosen = _build_filter({name: filters[name] for name in filters if name == "run"})
    found = {}
    for name, column in (
        ("model", "v.model"),
        ("task", "v.task"),
        ("seed", "v.seed"),
        ("ended", "v.stop_reason"),
    ):
        rows = _select(
            connection,
            f"DISTINCT {column} AS value",
            chosen,
            f"ORDER BY value LIMIT {_MOST_FACETS}",
        )
        found[name] = [value for (value,) in rows if value is not None]
    labels = connection.execute(
        "SELECT DISTINCT label FROM session_labels ORDER BY label"
    ).fetchall()
    return {**found, "label": [label for (label,) in labels][:_MOST_FACETS]}


def _select(
    connection: DuckDBPyConnection,
    columns: str,
    chosen: _Filter,
    more: str = "",
    values: Sequence[Any] = (),
) -> list[tuple[Any, ...]]:
    retries = _RETRIES if chosen.has_retries else ""
    query = f"SELECT {columns} FROM {_TABLES} {retries} {chosen.where} {more}"
    return connection.execute(query, [*chosen.values, *values]).fetchall()


_MORE: Final = {
    "retries": "sum(retries)::BIGINT FROM events WHERE event_type = 'cais' AND",
    "notes": "count(*) FROM session_notes WHERE",
    "labels": "list(label ORDER BY label) FROM session_labels WHERE",
}
"""Further columns, computed only for the rows of a page."""


def _add_more(
    connection: DuckDBPyConnection, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    ids = [row["id"] for row in rows]
    more = {
        name: dict(
            connection.execute(
                f"SELECT session_id, {sql} session_id IN (SELECT unnest(?::VARCHAR[]))"
                " GROUP BY session_id",
                [ids],
            ).fetchall()
        )
        for name, sql in _MORE.items()
    }
    return [
        {
            **row,
            "retries": more["retries"].get(row["id"], 0),
            "notes": more["notes"].get(row["id"], 0),
            "labels": more["labels"].get(row["id"], []),
        }
        for row in rows
    ]


class RunPage(NamedTuple):
    """One page of a list of runs, the newest first."""

    total: int
    rows: list[dict[str, Any]]


def run_page(
    connection: DuckDBPyConnection,
    *,
    ids: Sequence[str] | None = None,
    status: str | None = None,
    model: str | None = None,
    text: str | None = None,
    offset: int = 0,
    limit: int = 50,
) -> RunPage:
    """Return one page of runs, each with its experiments and their trials by state."""
    where = """
        WHERE ($ids IS NULL OR list_contains($ids::VARCHAR[], id))
          AND ($status IS NULL OR status = $status)
          AND ($model IS NULL OR id IN (SELECT run_id FROM experiments WHERE model = $model))
          AND ($text IS NULL OR contains(lower(id || ' ' || coalesce(command, '')), $text))
    """
    text = None if text is None else text.lower()
    values = {"ids": ids, "status": status, "model": model, "text": text}
    count = connection.execute(f"SELECT count(*) FROM runs {where}", values).fetchone()
    rows = connection.execute(
        f"SELECT id, status, {_TIME('created_at')}, {_TIME('finished_at')}, command FROM runs"
        f" {where} ORDER BY created_at DESC, id DESC LIMIT $limit OFFSET $offset",
        {**values, "limit": limit, "offset": offset},
    ).fetchall()
    names = ("id", "status", "created_at", "finished_at", "command")
    found = {row[0]: {**dict(zip(names, row, strict=True)), "models": []} for row in rows}
    for run_id, *experiment in connection.execute(_ENTRIES, [list(found)]).fetchall():
        found[run_id]["models"].append(dict(zip(_ENTRY_NAMES, experiment, strict=True)))
    return RunPage(count[0] if count else 0, list(found.values()))


def experiment_values(
    connection: DuckDBPyConnection, experiment_ids: Sequence[str], metric: str
) -> dict[str, list[tuple[str, str | None, int | None, float]]]:
    """Return trial, task, seed and value of all results with a metric, by experiment."""
    found: dict[str, list[tuple[str, str | None, int | None, float]]] = {}
    for experiment, *trial in connection.execute(
        "SELECT experiment_id, trial_id, task, seed, value FROM outcomes"
        " WHERE metric = ? AND isfinite(value) AND trial_id <> experiment_id"
        " AND experiment_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY trial_id",
        [metric, list(experiment_ids)],
    ).fetchall():
        found.setdefault(experiment, []).append(tuple(trial))
    return found


def latest_run(connection: DuckDBPyConnection) -> str | None:
    """Return the run with episodes that was started last; None if there is none."""
    row = connection.execute(
        "SELECT r.id FROM runs r WHERE EXISTS (FROM session_traces s WHERE s.run_id = r.id)"
        " ORDER BY r.created_at DESC, r.id DESC LIMIT 1"
    ).fetchone()
    return None if row is None else str(row[0])


def totals(connection: DuckDBPyConnection) -> tuple[int, int]:
    """Return the number of episodes and of runs."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM session_traces), (SELECT count(*) FROM runs)"
    ).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def forks_of(connection: DuckDBPyConnection, session_id: str) -> list[str]:
    """Return the episodes that were forked from one."""
    rows = connection.execute(
        "SELECT id FROM trials WHERE parent = ? ORDER BY started_at, id", [session_id]
    ).fetchall()
    return [fork for (fork,) in rows]


_ENTRY_NAMES = (
    *("experiment", "name", "model", "baseline", "description", "note"),
    *("result", "failure", "infrastructure", "cost_usd", "kind"),
)
_ENTRIES = """
    SELECT e.run_id, e.id, coalesce(e.name, e.id), e.model,
           coalesce(json_extract_string(e.tags, '$.baseline') = 'true', false),
           e.description, e.note, coalesce(t.result, 0), coalesce(t.failure, 0),
           coalesce(t.infrastructure, 0), t.cost, t.kind
    FROM experiments e LEFT JOIN (
        SELECT t.experiment_id, any_value(t.kind) AS kind,
               count(*) FILTER (t.state = 'result') AS result,
               count(*) FILTER (t.state = 'failure') AS failure,
               count(*) FILTER (t.state = 'infrastructure') AS infrastructure,
               if(count(s.cost_usd) = count(*), sum(s.cost_usd), NULL) AS cost
        FROM trials t LEFT JOIN session_traces s ON s.session_id = t.id
        GROUP BY t.experiment_id
    ) t ON t.experiment_id = e.id
    WHERE e.run_id IN (SELECT unnest(?::VARCHAR[])) ORDER BY e.run_id, e.position, e.id
"""


class Hit(NamedTuple):
    """A message that contains a searched text."""

    episode: str
    model: str
    seed: int | None
    position: int
    turn: int
    step: int
    """Steps played before the turn of the message."""
    role: str
    text: str
    """The whole text of the message, tool calls included."""


_SAID: Final = (
    "coalesce(json_extract_string(body, '$.content'), '') || chr(10) ||"
    " coalesce(json_extract_string(body, '$.tool_calls[*].function.arguments')::VARCHAR, '')"
)
_HITS: Final = f"""
    FROM message_rows r JOIN session_traces s USING (session_id)
    JOIN (SELECT hash, {_SAID} AS said FROM message_bodies
          WHERE contains(lower(said), lower($text))) b ON b.hash = r.hash
    WHERE $run IS NULL OR s.run_id = $run
"""


def search_messages(
    connection: DuckDBPyConnection,
    text: str,
    *,
    run: str | None = None,
    offset: int = 0,
    limit: int = 50,
) -> tuple[int, list[Hit]]:
    """Return the number of messages that contain a text, in any case, and a page of them."""
    values: dict[str, Any] = {"text": text, "run": run}
    count = connection.execute(f"SELECT count(*) {_HITS}", values).fetchone()
    rows = connection.execute(
        f"""
        SELECT h.*, (SELECT count(*) FROM session_timesteps t
                     WHERE t.session_id = h.session_id AND t.turn < h.turn), b.said
        FROM (SELECT s.session_id, s.subject, s.seed, r.position, r.turn, r.role, r.hash,
                     s.created_at {_HITS}
              ORDER BY s.created_at DESC, s.session_id, r.position
              LIMIT $limit OFFSET $offset) h
        JOIN (SELECT hash, {_SAID} AS said FROM message_bodies) b USING (hash)
        ORDER BY h.created_at DESC, h.session_id, h.position
        """,
        {**values, "limit": limit, "offset": offset},
    ).fetchall()
    hits = [
        Hit(session, model, seed, position, turn, step, role, said)
        for session, model, seed, position, turn, role, _, _, step, said in rows
    ]
    return (int(count[0]) if count else 0), hits

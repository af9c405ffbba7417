"""Resolution of user-supplied names to runs, experiments, sessions and training runs.

One rule for all: an id, else a name, else the start of one id, else the start of one name.
`latest`, `best` and `worst` are shortcuts for runs and sessions. An unknown name raises a
UsageError that lists the known ones; a name that matches several things raises AmbiguousName.
Functions take an open connection and change nothing.
"""

import re

from duckdb import DuckDBPyConnection

from assay.core.text import NameMatch, natural_key, resolve_name, unknown_name_error
from assay.errors import AmbiguousName, UsageError

SESSION_WORDS = ("best", "latest", "worst")
"""Shortcuts for a session of the latest run."""

_AT_MOST = 6
"""Sessions to fetch by prefix: one more than the message about an ambiguous name lists."""


def resolve_run(connection: DuckDBPyConnection, name: str, *, forks: bool = True) -> str:
    """Return the id of a run; `latest` is the one started last.

    If `forks` is false, `latest` ignores runs of forked episodes.
    """
    if name == "latest":
        return _fetch_first(
            connection, f"SELECT id FROM {_RUNS if forks else _UNFORKED_RUNS} LIMIT 1"
        )
    return _resolve_id(connection, "run", name)


def resolve_experiment(connection: DuckDBPyConnection, name: str) -> str:
    """Return the id of an experiment, from its id or name."""
    return _resolve_id(connection, "experiment", name)


def resolve_series(connection: DuckDBPyConnection, name: str) -> str:
    """Return the full name of a series of experiments."""
    return _resolve_id(connection, "series", name, see="assay experiments list")


def resolve_training_run(connection: DuckDBPyConnection, name: str) -> str:
    """Return the id of a training run; `run1` is not accepted as a prefix of `run15`."""
    empty = "the database has none, see 'assay curves import'"
    return _resolve_id(connection, "training run", name, empty=empty)


def resolve_session(connection: DuckDBPyConnection, name: str, *, forks: bool = True) -> str:
    """Return the id of a session.

    The shortcuts refer to the latest run: `latest` is the session that ended last; `best` and
    `worst` are those with the most and the fewest achievements, then reward. Sessions of
    automatically added baselines are used only if there are no others. If `forks` is false,
    runs of forked episodes are ignored.
    """
    of_latest = _OF_LATEST.format(_RUNS if forks else _UNFORKED_RUNS)
    ranked = (
        f"SELECT s.session_id FROM {of_latest} AND s.state = 'result' "
        "ORDER BY coalesce(json_extract_string(e.tags, '$.baseline') = 'true', false), "
        "s.num_achievements {0}, s.total_reward {0}, s.seed, s.session_id LIMIT 1"
    )
    words = {
        "latest": f"SELECT s.session_id FROM {of_latest} "
        "ORDER BY s.ended_at DESC, s.session_id LIMIT 1",
        "best": ranked.format("DESC"),
        "worst": ranked.format("ASC"),
    }
    if name in words:
        return _fetch_first(connection, words[name])
    match = _find_meaning(connection, "session", name)
    if match is None:
        raise UsageError(
            f"unknown episode {name!r}; give its id, the start of it, or latest, best or "
            "worst; see 'assay traces list'"
        )
    return match.id


def resolve(connection: DuckDBPyConnection, name: str, *kinds: str) -> NameMatch | None:
    """Find the session, experiment or run with a name; None if there is none.

    Raises:
        AmbiguousName: It matches several of them equally well.
    """
    meanings: list[NameMatch] = []
    ambiguous: list[AmbiguousName] = []
    for kind in kinds:
        try:
            match = _find_meaning(connection, kind, name)
        except AmbiguousName as error:
            ambiguous.append(error)
        else:
            meanings += [] if match is None else [match]
    if not meanings:
        if ambiguous:
            raise ambiguous[0]
        return None
    # A prefix of an id and a prefix of a name rank equally.
    best = min(min(meaning.rank, 2) for meaning in meanings)
    fitting = [meaning for meaning in meanings if min(meaning.rank, 2) == best]
    if len(fitting) > 1:
        choices = " or ".join(f"{meaning.kind} {meaning.id}" for meaning in fitting)
        raise AmbiguousName(f"{name!r} could be {choices}; give a longer part of it")
    return fitting[0]


_RUNS = "runs ORDER BY created_at DESC, id DESC"
_UNFORKED_RUNS = (
    "runs WHERE json_extract(configuration, '$.forks') IS NULL "
    "ORDER BY created_at DESC, id DESC"
)
_OF_LATEST = (
    "session_traces s LEFT JOIN experiments e ON e.id = s.experiment_id "
    "WHERE s.run_id = (SELECT id FROM {} LIMIT 1)"
)
_CANDIDATES = {
    "run": f"SELECT id, id FROM {_RUNS}",
    "experiment": "SELECT id, coalesce(name, id) FROM experiments "
    "ORDER BY created_at DESC, name",
    "series": "SELECT series, series FROM experiments WHERE series IS NOT NULL "
    "GROUP BY series ORDER BY max(created_at) DESC, series",
    "training run": "SELECT id, id FROM training_runs",
}


def _find_meaning(connection: DuckDBPyConnection, kind: str, name: str) -> NameMatch | None:
    if kind != "session":
        return resolve_name(kind, name, connection.execute(_CANDIDATES[kind]).fetchall())
    # There may be a million sessions, so only possible matches are fetched.
    rows = connection.execute(
        "SELECT session_id, session_id FROM session_traces WHERE starts_with(session_id, ?) "
        "ORDER BY session_id = ? DESC, session_id LIMIT ?",
        [name, name, _AT_MOST],
    ).fetchall()
    return resolve_name(kind, name, rows, str.startswith)


def _resolve_id(connection: DuckDBPyConnection, kind: str, name: str, **options: str) -> str:
    rows = connection.execute(_CANDIDATES[kind]).fetchall()
    starts = {}
    if kind == "training run":
        rows.sort(key=lambda row: natural_key(row[0]))
        starts = {"starts": _is_whole_prefix}
    match = resolve_name(kind, name, rows, **starts)
    if match is None:
        raise unknown_name_error(kind, name, [label for _, label in rows], **options)
    return match.id


def _fetch_first(connection: DuckDBPyConnection, sql: str) -> str:
    row = connection.execute(sql).fetchone()
    if row is None:
        raise UsageError("the database has no runs or results yet; start with 'assay run'")
    return str(row[0])


def _is_whole_prefix(run_id: str, start: str) -> bool:
    """Return whether an id starts with `start` and that does not end within a number.

    `run1` ends within a number of `run15`; `3f2` does not end within one of `3f29ab`.
    """
    within = re.match(r"\d+(?![0-9A-Za-z])", run_id[len(start) :])
    return bool(start) and run_id.startswith(start) and not (start[-1].isdigit() and within)

"""What a name that a user gave stands for: a run, an experiment, a session, a training run.

One rule for all: an id, else a name, else the start of one id, else the start of one name.
`latest`, `best` and `worst` stand for the runs and sessions people want most. What means
nothing is a UsageError that says what there is; what means several things is an
AmbiguousName. Each function takes an open connection and leaves it as it was.
"""

import re

from duckdb import DuckDBPyConnection

from assay.core.text import Meaning, choose, natural_key, unknown
from assay.errors import AmbiguousName, UsageError

SESSION_WORDS = ("best", "latest", "worst")
"""Words that stand for a session of the latest run."""

_AT_MOST = 6
"""Sessions to fetch for a start: one more than a message about several names."""


def resolve_run(connection: DuckDBPyConnection, name: str, *, forks: bool = True) -> str:
    """The id of a run; `latest` is the one started last, of whole episodes without `forks`."""
    if name == "latest":
        return _first(connection, f"SELECT id FROM {_RUNS if forks else _WHOLE} LIMIT 1")
    return _resolved(connection, "run", name)


def resolve_experiment(connection: DuckDBPyConnection, name: str) -> str:
    """The id of an experiment, from its id or its name."""
    return _resolved(connection, "experiment", name)


def resolve_series(connection: DuckDBPyConnection, name: str) -> str:
    """The whole name of a series of experiments."""
    return _resolved(connection, "series", name, see="assay experiments list")


def resolve_training_run(connection: DuckDBPyConnection, name: str) -> str:
    """The id of a training run; `run1` is not the start of `run15`."""
    empty = "the store has none, see 'assay curves import'"
    return _resolved(connection, "training run", name, empty=empty)


def resolve_session(connection: DuckDBPyConnection, name: str, *, forks: bool = True) -> str:
    """The id of a session.

    The words stand for sessions of the latest run: `latest` ended last; `best` and `worst`
    have the most and the fewest achievements, then reward, among the results, those of
    baselines that nobody named left out if there are others. Without `forks`, the latest run
    is one of whole episodes.
    """
    of_latest = _OF_LATEST.format(_RUNS if forks else _WHOLE)
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
        return _first(connection, words[name])
    meant = _meaning(connection, "session", name)
    if meant is None:
        raise UsageError(
            f"unknown episode {name!r}; give its id, the start of one, or one of the words "
            "latest, best, worst; see 'assay traces list'"
        )
    return meant.id


def resolve(connection: DuckDBPyConnection, name: str, *kinds: str) -> Meaning | None:
    """What a name stands for among sessions, experiments and runs; None for nothing.

    Raises:
        AmbiguousName: It fits several of them equally well.
    """
    meanings: list[Meaning] = []
    ambiguous: list[AmbiguousName] = []
    for kind in kinds:
        try:
            meant = _meaning(connection, kind, name)
        except AmbiguousName as error:
            ambiguous.append(error)
        else:
            meanings += [] if meant is None else [meant]
    if not meanings:
        if ambiguous:
            raise ambiguous[0]
        return None
    # A start fits as well as another, be it of an id or of a name.
    best = min(min(meaning.rank, 2) for meaning in meanings)
    fitting = [meaning for meaning in meanings if min(meaning.rank, 2) == best]
    if len(fitting) > 1:
        choices = " or ".join(f"{meaning.kind} {meaning.id}" for meaning in fitting)
        raise AmbiguousName(f"{name!r} could be {choices}; give more of it")
    return fitting[0]


_RUNS = "runs ORDER BY created_at DESC, id DESC"
_WHOLE = (
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


def _meaning(connection: DuckDBPyConnection, kind: str, name: str) -> Meaning | None:
    if kind != "session":
        return choose(kind, name, connection.execute(_CANDIDATES[kind]).fetchall())
    # There may be a million sessions: only those that could be meant are fetched.
    rows = connection.execute(
        "SELECT session_id, session_id FROM session_traces WHERE starts_with(session_id, ?) "
        "ORDER BY session_id = ? DESC, session_id LIMIT ?",
        [name, name, _AT_MOST],
    ).fetchall()
    return choose(kind, name, rows, str.startswith)


def _resolved(connection: DuckDBPyConnection, kind: str, name: str, **said: str) -> str:
    rows = connection.execute(_CANDIDATES[kind]).fetchall()
    starts = {}
    if kind == "training run":
        rows.sort(key=lambda row: natural_key(row[0]))
        starts = {"starts": _starts_whole}
    meant = choose(kind, name, rows, **starts)
    if meant is None:
        raise unknown(kind, name, [label for _, label in rows], **said)
    return meant.id


def _first(connection: DuckDBPyConnection, sql: str) -> str:
    row = connection.execute(sql).fetchone()
    if row is None:
        raise UsageError("nothing is stored yet that this could mean; start with 'assay run'")
    return str(row[0])


def _starts_whole(run_id: str, start: str) -> bool:
    """Whether a start does not end within a number: run1 of run15 does, 3f2 of 3f29ab not."""
    within = re.match(r"\d+(?![0-9A-Za-z])", run_id[len(start) :])
    return bool(start) and run_id.startswith(start) and not (start[-1].isdigit() and within)

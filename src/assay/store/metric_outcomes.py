"""Outcomes that metrics add to sessions which are stored already.

A number of a session is a row like any other outcome of it. A number of an experiment as a
whole has the id of the experiment in place of a trial. The tags of the experiment say under
`metrics` which metric made which outcome, so that making them again replaces them and nothing
else. Takes an open connection.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from duckdb import DuckDBPyConnection

from assay.core.canonical_json import canonical_json
from assay.store.ingest import transaction
from assay.store.load import load_experiment
from assay.store.schema import ASSAY_SOURCE
from assay.types import TrialState

METRICS_TAG = "metrics"
"""The key among the tags of an experiment under which its metrics are noted."""


class MadeBy(NamedTuple):
    """What made an outcome."""

    metric: str
    """The name of the metric; an outcome has another name if it comes from a dictionary."""
    sha: str
    """A hash of the file the metric is in."""
    higher_is_better: bool


class MetricOutcome(NamedTuple):
    """One number to store."""

    trial_id: str
    """A session, or the experiment."""
    metric: str
    value: float


class ResultSession(NamedTuple):
    """A session that completed."""

    session_id: str
    task: str
    source: str
    """The format it was imported from, or assay."""
    metrics: frozenset[str]
    """The names of the outcomes it has."""


class ExperimentOutcomes(NamedTuple):
    """An experiment, with the sessions that metrics may be asked about."""

    id: str
    sessions: tuple[ResultSession, ...]
    made: Mapping[str, MadeBy]
    """By name, the outcomes that metrics made."""
    recorded: frozenset[str]
    """The names of the other ones, which came with the sessions."""


def result_sessions(connection: DuckDBPyConnection, experiment_id: str) -> list[ResultSession]:
    """The sessions of an experiment that metrics may be asked about, in their order.

    Raises:
        UsageError: There is no such experiment.
    """
    load_experiment(connection, experiment_id)
    rows = connection.execute(
        "SELECT s.session_id, coalesce(s.task, ''), coalesce(s.source, ?), o.names "
        "FROM session_traces s LEFT JOIN "
        "(SELECT trial_id, list(metric) AS names FROM outcomes WHERE experiment_id = ? "
        "GROUP BY trial_id) o ON o.trial_id = s.session_id "
        "WHERE s.experiment_id = ? AND s.state = ? "
        "ORDER BY s.episode, s.replicate, s.session_id",
        [ASSAY_SOURCE, experiment_id, experiment_id, TrialState.RESULT.value],
    ).fetchall()
    return [
        ResultSession(name, task, source, frozenset(metrics or ()))
        for name, task, source, metrics in rows
    ]


def experiment_outcomes(
    connection: DuckDBPyConnection, experiment_id: str
) -> ExperimentOutcomes:
    """What an experiment has before metrics are asked about it.

    Raises:
        UsageError: There is no such experiment.
    """
    made = made_by(connection, experiment_id)
    rows = connection.execute(
        "SELECT DISTINCT metric FROM outcomes WHERE experiment_id = ?", [experiment_id]
    ).fetchall()
    return ExperimentOutcomes(
        experiment_id,
        tuple(result_sessions(connection, experiment_id)),
        made,
        frozenset(name for (name,) in rows if name not in made),
    )


def made_by(connection: DuckDBPyConnection, experiment_id: str) -> dict[str, MadeBy]:
    """Which of the outcomes of an experiment metrics made, by name.

    Raises:
        UsageError: There is no such experiment.
    """
    return _noted(load_experiment(connection, experiment_id).tags)


def lower_is_better(tags: Mapping[str, Any]) -> frozenset[str]:
    """The outcomes that a metric made, and of which less is better, by an experiment's tags."""
    return frozenset(name for name, made in _noted(tags).items() if not made.higher_is_better)


def _noted(tags: Mapping[str, Any]) -> dict[str, MadeBy]:
    noted = tags.get(METRICS_TAG)
    found = {
        name: _made_by(value)
        for name, value in (noted.items() if isinstance(noted, dict) else ())
    }
    return {name: made for name, made in found.items() if made is not None}


def _made_by(value: Any) -> MadeBy | None:
    # Tags may come from anywhere.
    if not isinstance(value, dict):
        return None
    metric, sha = value.get("metric"), value.get("sha")
    if not isinstance(metric, str) or not isinstance(sha, str):
        return None
    return MadeBy(metric, sha, value.get("higher_is_better") is not False)


def store_metric_outcomes(
    connection: DuckDBPyConnection,
    experiment_id: str,
    outcomes: Sequence[MetricOutcome],
    *,
    replaced: Collection[str] = (),
    made: Mapping[str, MadeBy] | None = None,
) -> None:
    """Store numbers of one experiment, all of them or none.

    Args:
        connection: It may write.
        experiment_id: Whose they are.
        outcomes: The numbers; one that is there already is replaced.
        replaced: Outcomes of which no others are left in the experiment.
        made: What made them, to be noted with the experiment; nothing is noted without it.
    """
    rows = pa.table(
        {
            "trial_id": pa.array([each.trial_id for each in outcomes], pa.string()),
            "metric": pa.array([each.metric for each in outcomes], pa.string()),
            "value": pa.array([each.value for each in outcomes], pa.float64()),
        }
    )
    connection.register("measured", rows)
    try:
        with transaction(connection):
            connection.execute(
                "DELETE FROM outcomes WHERE experiment_id = ? AND "
                "metric IN (SELECT unnest(?::VARCHAR[]))",
                [experiment_id, list(replaced)],
            )
            connection.execute(
                "DELETE FROM outcomes o USING measured m "
                "WHERE o.trial_id = m.trial_id AND o.metric = m.metric"
            )
            connection.execute(_INSERT, {"experiment": experiment_id})
            if made is not None:
                _note(connection, experiment_id, replaced, made)
    finally:
        connection.unregister("measured")


_INSERT = """
    INSERT INTO outcomes BY NAME
    SELECT m.trial_id, t.* EXCLUDE (id), m.metric, m.value FROM measured m JOIN (
        SELECT session_id AS id, experiment_id, subject, task, seed, replicate
        FROM session_traces WHERE experiment_id = $experiment
        UNION ALL
        SELECT id, id, model, NULL, NULL, 0 FROM experiments WHERE id = $experiment
    ) t ON t.id = m.trial_id
"""


def _note(
    connection: DuckDBPyConnection,
    experiment_id: str,
    replaced: Collection[str],
    made: Mapping[str, MadeBy],
) -> None:
    """Write down what made which outcome, beside what was noted of others."""
    tags = dict(load_experiment(connection, experiment_id).tags)
    kept = {
        name: each._asdict()
        for name, each in made_by(connection, experiment_id).items()
        if name not in replaced
    }
    noted = kept | {name: each._asdict() for name, each in made.items()}
    if noted == tags.get(METRICS_TAG, {}):
        return
    tags[METRICS_TAG] = noted
    connection.execute(
        "UPDATE experiments SET tags = ?, updated_at = now() AT TIME ZONE 'UTC' WHERE id = ?",
        [canonical_json(tags).decode(), experiment_id],
    )

"""Outcomes that metrics compute for stored sessions.

A value of a session is a row like its other outcomes. A value of a whole experiment has the id
of the experiment instead of a trial id. The tag `metrics` of the experiment lists which metric
computed which outcome, so that computing them again replaces only them. Functions take an open
connection.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
from duckdb import DuckDBPyConnection

from assay.core.canonical_json import canonical_json
from assay.errors import UsageError
from assay.judge.outcomes import Outcome, parse_outcome
from assay.store.ingest import transaction
from assay.store.load import load_experiment
from assay.store.schema import ASSAY_SOURCE
from assay.types import TrialState

METRICS_TAG = "metrics"
"""Tag of an experiment that lists the metrics of its computed outcomes."""


class MadeBy(NamedTuple):
    """Metric that computed an outcome."""

    metric: str
    """Name of the metric; it differs from the outcome's name if the metric returns a dict."""
    sha: str
    """Hash of the file that defines the metric."""
    higher_is_better: bool
    declared: Mapping[str, Any] = {}
    """Direction, range and unit, as read by `parse_outcome`."""

    def as_tag(self) -> dict[str, Any]:
        """Return it for a tag, with `declared` only if `higher_is_better` does not say it."""
        found = self._asdict()
        if dict(self.declared) in ({}, {"better": "lower"}):
            del found["declared"]
        return found


class MetricOutcome(NamedTuple):
    """One value to store."""

    trial_id: str
    """Id of a session, or of the experiment."""
    metric: str
    value: float


class ResultSession(NamedTuple):
    """A session that completed."""

    session_id: str
    task: str
    source: str
    """Format it was imported from, or "assay"."""
    metrics: frozenset[str]
    """Names of its outcomes."""


class ExperimentOutcomes(NamedTuple):
    """An experiment with its completed sessions and the names of its outcomes."""

    id: str
    sessions: tuple[ResultSession, ...]
    made: Mapping[str, MadeBy]
    """Outcomes computed by metrics, by name."""
    recorded: frozenset[str]
    """Names of the other outcomes, which were recorded with the sessions."""


def result_sessions(connection: DuckDBPyConnection, experiment_id: str) -> list[ResultSession]:
    """Return the completed sessions of an experiment, in order.

    Raises:
        UsageError: The experiment is unknown.
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
    """Load the sessions and outcome names of an experiment.

    Raises:
        UsageError: The experiment is unknown.
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
    """Return the metrics that computed outcomes of an experiment, by outcome.

    Raises:
        UsageError: The experiment is unknown.
    """
    return _read_tag(load_experiment(connection, experiment_id).tags)


def declared_outcomes(tags: Mapping[str, Any]) -> dict[str, Outcome]:
    """Return the declared outcomes in an experiment's tags.

    Tags of earlier versions say `higher_is_better` for every metric, declared or not, so that
    only false is known to be a declaration.
    """
    found = {}
    for name, made in _read_tag(tags).items():
        stated = made.declared or ({} if made.higher_is_better else {"better": "lower"})
        # Tags may come from an imported file.
        with suppress(UsageError):
            found[name] = parse_outcome(name, stated)
    return found


def _read_tag(tags: Mapping[str, Any]) -> dict[str, MadeBy]:
    tag = tags.get(METRICS_TAG)
    found = {
        name: _parse_made_by(value)
        for name, value in (tag.items() if isinstance(tag, dict) else ())
    }
    return {name: made for name, made in found.items() if made is not None}


def _parse_made_by(value: Any) -> MadeBy | None:
    # Tags may come from an imported file.
    if not isinstance(value, dict):
        return None
    metric, sha = value.get("metric"), value.get("sha")
    if not isinstance(metric, str) or not isinstance(sha, str):
        return None
    declared = value.get("declared")
    return MadeBy(
        metric,
        sha,
        value.get("higher_is_better") is not False,
        declared if isinstance(declared, dict) else {},
    )


def store_metric_outcomes(
    connection: DuckDBPyConnection,
    experiment_id: str,
    outcomes: Sequence[MetricOutcome],
    *,
    replaced: Collection[str] = (),
    made: Mapping[str, MadeBy] | None = None,
) -> None:
    """Store values of one experiment in one transaction.

    Args:
        connection: A connection that may write.
        experiment_id: The experiment.
        outcomes: The values; existing ones of the same trial and metric are replaced.
        replaced: Outcomes whose existing values are all deleted first.
        made: Metrics by outcome, for the tag of the experiment; None leaves the tag unchanged.
    """
    rows = pa.table(
        {
            "trial_id": pa.array([outcome.trial_id for outcome in outcomes], pa.string()),
            "metric": pa.array([outcome.metric for outcome in outcomes], pa.string()),
            "value": pa.array([outcome.value for outcome in outcomes], pa.float64()),
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
                _update_tag(connection, experiment_id, replaced, made)
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


def _update_tag(
    connection: DuckDBPyConnection,
    experiment_id: str,
    replaced: Collection[str],
    made: Mapping[str, MadeBy],
) -> None:
    tags = dict(load_experiment(connection, experiment_id).tags)
    kept = {
        name: metric.as_tag()
        for name, metric in made_by(connection, experiment_id).items()
        if name not in replaced
    }
    tag = kept | {name: metric.as_tag() for name, metric in made.items()}
    if tag == tags.get(METRICS_TAG, {}):
        return
    tags[METRICS_TAG] = tag
    connection.execute(
        "UPDATE experiments SET tags = ?, updated_at = now() AT TIME ZONE 'UTC' WHERE id = ?",
        [canonical_json(tags).decode(), experiment_id],
    )

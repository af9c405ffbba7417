"""Stored experiments as subjects of a comparison, with the outcomes of all their trials.

A trial has a row in `trials`, or at least outcomes in an experiment. Tables are read once, as
columns, for any number of trials. Functions take an open connection and change nothing.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any

import numpy as np
from duckdb import DuckDBPyConnection
from numpy.typing import NDArray

from assay.core.text import NameMatch, printable, unknown_name_error
from assay.errors import UsageError
from assay.judge.outcomes import Outcome, parse_outcome
from assay.judge.subjects import SUBJECT_METRICS, Earned, Look, Subject, TrialOutcome
from assay.store.looks import load_looks
from assay.store.metric_outcomes import declared_outcomes
from assay.store.names import resolve, resolve_run, resolve_series
from assay.store.rows import parse_json_object, to_datetime
from assay.types import TrialState

_CHOSEN = "IN (SELECT unnest(?::VARCHAR[]))"


def load_subjects(
    connection: DuckDBPyConnection, experiment_ids: Sequence[str]
) -> list[Subject]:
    """Load experiments with all their trials, in the order of the ids, without duplicates.

    Trials with the same task and seed, including replicates, have the same `pair`; a trial
    without a seed has none. Failures and infrastructure errors are included, without values.
    Values that are not finite are dropped. `facts` has the configuration of the run with the
    settings of the arm, and under `SUBJECT_METRICS` the outcomes of the experiment as a whole.
    The commit ends in `+` if the checkout had uncommitted changes.

    Raises:
        UsageError: The experiment is unknown.
    """
    ids = list(dict.fromkeys(experiment_ids))
    rows = {
        row[0]: row for row in connection.execute(f"{_EXPERIMENTS} {_CHOSEN}", [ids]).fetchall()
    }
    for name in ids:
        if name not in rows:
            raise UsageError(
                f"experiment {printable(name)!r} not found in this database; "
                "see 'assay experiments list'"
            )
    trials = _load_trials(connection, ids)
    looks = load_looks(connection, ids)
    totals = _load_totals(connection, ids)
    curves = _load_curve_outcomes(connection, ids)
    return [
        _make_subject(
            rows[name],
            trials.get(name, ()),
            looks.get(name, ()),
            totals.get(name, {}),
            curves.get(name, {}),
        )
        for name in ids
    ]


def resolve_subjects(connection: DuckDBPyConnection, names: Sequence[str]) -> list[str]:
    """Resolve names to the ids of experiments, in order and without duplicates.

    A name is an experiment or a run: an id, the name of an experiment, or the start of one.
    A run selects all its experiments; `latest` is the run started last.

    Raises:
        UsageError: A name is unknown or ambiguous.
    """
    found: dict[str, None] = {}
    for name in names:
        found.update(dict.fromkeys(_resolve_name(connection, name)))
    return list(found)


def series_experiments(connection: DuckDBPyConnection, series: str) -> list[str]:
    """Return the ids of the experiments of a series, the oldest first.

    The start of its name is enough if it is unambiguous.

    Raises:
        UsageError: The series is unknown or ambiguous.
    """
    rows = connection.execute(
        "SELECT id FROM experiments WHERE series = ? ORDER BY created_at, run_id, position, id",
        [resolve_series(connection, series)],
    ).fetchall()
    return [row[0] for row in rows]


def named_experiments(connection: DuckDBPyConnection, names: Sequence[str]) -> list[str]:
    """Return the ids of experiments that are named directly, not through their run."""
    found = [_find_meaning(connection, name) for name in names if name != "latest"]
    return [meaning.id for meaning in found if meaning.kind == "experiment"]


def run_baselines(connection: DuckDBPyConnection, experiment_id: str) -> list[str]:
    """Return the ids of the baselines in the run of an experiment, in order."""
    rows = connection.execute(
        """
        SELECT b.id FROM experiments e JOIN experiments b USING (run_id)
        WHERE e.id = ? AND b.id <> e.id
              AND json_extract_string(b.tags, '$.baseline') = 'true'
        ORDER BY b.position, b.id
        """,
        [experiment_id],
    ).fetchall()
    return [row[0] for row in rows]


def _resolve_name(connection: DuckDBPyConnection, name: str) -> list[str]:
    if name == "latest":
        return _list_experiments(connection, resolve_run(connection, name))
    meaning = _find_meaning(connection, name)
    return (
        [meaning.id]
        if meaning.kind == "experiment"
        else _list_experiments(connection, meaning.id)
    )


def _find_meaning(connection: DuckDBPyConnection, name: str) -> NameMatch:
    meaning = resolve(connection, name, "experiment", "run")
    if meaning is None:
        rows = connection.execute(
            "SELECT coalesce(name, id) FROM experiments ORDER BY created_at DESC, position, id"
        ).fetchall()
        names = [row[0] for row in rows]
        raise unknown_name_error("experiment or run", name, names, see="assay experiments list")
    return meaning


def _list_experiments(connection: DuckDBPyConnection, run_id: str) -> list[str]:
    rows = connection.execute(
        "SELECT id FROM experiments WHERE run_id = ? ORDER BY position, id", [run_id]
    ).fetchall()
    if not rows:
        raise UsageError(f"run {printable(run_id)!r} has no experiments; give another")
    return [row[0] for row in rows]


_EXPERIMENTS = """
    SELECT e.id, e.name, e.model, e.series, e.version, e.run_id, epoch_us(e.created_at),
           e.note, e.tags, r.configuration, r.provenance
    FROM experiments e LEFT JOIN runs r ON r.id = e.run_id WHERE e.id
"""

_TRIALS = """
    SELECT trial_id, experiment_id, task, seed, replicate, state, ended, row_number() OVER (
        ORDER BY experiment_id, episode NULLS LAST, task, seed, replicate, trial_id
    ) - 1 AS place
    FROM (
        SELECT t.id AS trial_id, t.experiment_id, t.task, t.seed,
               coalesce(t.replicate, 0) AS replicate, t.state, s.episode,
               s.stop_reason AS ended
        FROM trials t LEFT JOIN session_traces s ON s.session_id = t.id
        WHERE t.experiment_id IN (SELECT unnest($ids::VARCHAR[])) AND t.state IS NOT NULL
        UNION ALL
        SELECT trial_id, any_value(experiment_id), any_value(task), any_value(seed),
               coalesce(any_value(replicate), 0), 'result', NULL, NULL
        FROM outcomes o
        WHERE experiment_id IN (SELECT unnest($ids::VARCHAR[])) AND trial_id <> experiment_id
              AND NOT EXISTS (FROM trials t WHERE t.id = o.trial_id)
        GROUP BY trial_id
    )
"""

_UNLOCKS = f"""
    SELECT session_id, list(step ORDER BY step) FROM (
        SELECT a.session_id, a.achievement, min(a.step) AS step
        FROM achievements a JOIN session_traces s USING (session_id)
        WHERE s.experiment_id {_CHOSEN} GROUP BY ALL
    ) GROUP BY session_id
"""

_VALUES = f"""
    SELECT t.place, list_position($metrics::VARCHAR[], o.metric) - 1 AS metric, o.value
    FROM outcomes o JOIN ({_TRIALS}) t USING (trial_id)
    WHERE t.state = 'result' AND isfinite(o.value)
"""


def _load_trials(
    connection: DuckDBPyConnection, ids: list[str]
) -> dict[str, tuple[TrialOutcome, ...]]:
    rows = connection.execute(f"{_TRIALS} ORDER BY place", {"ids": ids}).fetchall()
    values = _load_values(connection, ids, len(rows))
    unlocks = dict(connection.execute(_UNLOCKS, [ids]).fetchall())
    found: dict[str, list[TrialOutcome]] = {}
    # All subjects play the same worlds; equal texts share one object.
    pairs: dict[str, str] = {}
    for (trial_id, experiment_id, task, seed, replicate, state, ended, _), numbers in zip(
        rows, values, strict=True
    ):
        pair = None if seed is None else f"{task or 'seed'} {seed}"
        found.setdefault(experiment_id, []).append(
            TrialOutcome(
                trial_id=trial_id,
                pair=pair if pair is None else pairs.setdefault(pair, pair),
                task=task,
                seed=seed,
                replicate=replicate,
                state=TrialState(state),
                values=numbers,
                ended=ended,
                unlock_steps=tuple(unlocks.get(trial_id, ())),
            )
        )
    return {name: tuple(trials) for name, trials in found.items()}


def _load_values(
    connection: DuckDBPyConnection, ids: list[str], count: int
) -> list[Mapping[str, float]]:
    metrics = [
        row[0]
        for row in connection.execute(
            f"SELECT DISTINCT o.metric FROM outcomes o JOIN ({_TRIALS}) t USING (trial_id) "
            "ORDER BY o.metric",
            {"ids": ids},
        ).fetchall()
    ]
    columns = connection.execute(_VALUES, {"ids": ids, "metrics": metrics}).fetchnumpy()
    table_T_M: NDArray[np.float64] = np.full((count, len(metrics)), np.nan)
    table_T_M[columns["place"], columns["metric"]] = columns["value"]
    places = {name: place for place, name in enumerate(metrics)}
    return [Earned(places, row_M) for row_M in table_T_M]


def _load_totals(connection: DuckDBPyConnection, ids: list[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for experiment_id, metric, value in connection.execute(
        f"SELECT trial_id, metric, value FROM outcomes WHERE trial_id {_CHOSEN} "
        "AND trial_id = experiment_id ORDER BY trial_id, metric",
        [ids],
    ).fetchall():
        if value is not None and isfinite(value):
            found.setdefault(experiment_id, {})[metric] = value
    return found


def _load_curve_outcomes(
    connection: DuckDBPyConnection, ids: list[str]
) -> dict[str, dict[str, Outcome]]:
    """Load the metrics that training runs declare in their configuration, by experiment."""
    found: dict[str, dict[str, Outcome]] = {}
    for experiment_id, stated in connection.execute(
        "SELECT DISTINCT t.experiment_id, json_extract(r.configuration, '$.declared') AS stated"
        " FROM training_runs r JOIN trials t USING (id)"
        f" WHERE t.experiment_id {_CHOSEN} AND stated IS NOT NULL ORDER BY ALL",
        [ids],
    ).fetchall():
        for metric, own in parse_json_object(stated).items():
            # A configuration may use the key for something else.
            with suppress(UsageError):
                found.setdefault(experiment_id, {})[metric] = parse_outcome(metric, own)
    return found


def _make_subject(
    row: tuple[Any, ...],
    trials: Sequence[TrialOutcome],
    looks: Sequence[Look],
    totals: Mapping[str, float],
    curves: Mapping[str, Outcome],
) -> Subject:
    key, name, model, series, version, run_id, at, note, tags, configuration, origin = row
    facts, tag_values = parse_json_object(configuration), parse_json_object(tags)
    # An arm may override settings, agent and model of the run.
    if isinstance(own := tag_values.get("settings"), dict):
        facts["agent"] = {**facts.get("agent", {}), **own}
    if totals:
        facts[SUBJECT_METRICS] = dict(totals)
    return Subject(
        id=key,
        name=name or key,
        model=model,
        agent=_get_text(tag_values, "agent"),
        asks=_get_text(tag_values, "model"),
        series=series,
        version=version,
        run_id=run_id,
        created_at=None if at is None else to_datetime(at),
        commit=recorded_commit(parse_json_object(origin)),
        project=recorded_commit(parse_json_object(origin), "project_"),
        note=note,
        baseline=tag_values.get("baseline") is True,
        facts=facts,
        outcomes={**curves, **declared_outcomes(tag_values)},
        trials=tuple(trials),
        looks=tuple(looks),
    )


def _get_text(tags: Mapping[str, Any], name: str) -> str | None:
    value = tags.get(name)
    return value if isinstance(value, str) else None


def recorded_commit(origin: Mapping[str, Any], whose: str = "") -> str | None:
    """Return the commit in a provenance, with `+` if there were uncommitted changes."""
    commit = origin.get(f"{whose}commit")
    if not isinstance(commit, str) or not commit:
        return None
    return f"{commit}+" if origin.get(f"{whose}dirty") is True else commit

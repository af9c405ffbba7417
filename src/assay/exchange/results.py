"""`assay-results/1`: the numbers of a run in one file, one value per episode and metric.

An episode that did not end as a result has null in every metric, and is listed by name. What
is about Crafter is left out where another environment was played.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from assay._util.files import atomic_file
from assay.errors import OutputError
from assay.exchange.formats import StoredRun
from assay.exchange.formats.layout import laid_out
from assay.traces.queries import EpisodeRow
from assay.types import TrialState

__all__ = ["RESULTS_FORMAT", "results_name", "write_results"]

RESULTS_FORMAT: Final = "assay-results/1"
"""What the field `format` of every results file says."""
_OF_CRAFTER: Final = ("difficulty", "no_effect_actions", "asleep_actions", "achievements")
"""What means nothing of an episode in another world."""


def results_name(at: float) -> str:
    """The name of the results file of a run that ended at this time."""
    return f"multi_model_results_{datetime.fromtimestamp(at, UTC):%Y%m%d_%H%M%S}.json"


def write_results(
    path: Path,
    run: StoredRun,
    rows: Sequence[EpisodeRow],
    outcomes: Mapping[str, Mapping[str, float]],
    analysis: Mapping[str, Any],
    *,
    detailed: bool = True,
) -> None:
    """Write the results of a run.

    Args:
        path: The file, replaced if it is there.
        run: The run; its configuration is the `config` of the file.
        rows: Its episodes, in model, episode order.
        outcomes: For each session that has some, the numbers by metric.
        analysis: What the tables and rankings of the run say, as data.
        detailed: Whether to write `episodes` too.

    Raises:
        OutputError: The file cannot be written.
    """
    about = {name: value for name, value in asdict(run).items() if name != "configuration"}
    config = dict(run.configuration)
    if config.get("environment") is not None:
        del config["difficulty"]
    results = {
        "format": RESULTS_FORMAT,
        "run": about,
        "config": config,
        "models": {
            model: _model(group, outcomes, detailed=detailed)
            for model, group in _by_model(rows).items()
        },
        "analysis": analysis,
    }
    with atomic_file(path) as stream:
        try:
            stream.writelines(laid_out(results, levels=4))
        except ValueError as error:
            raise OutputError(
                f"cannot write {str(path)!r}: an outcome is not a finite number ({error})"
            ) from error


def _by_model(rows: Iterable[EpisodeRow]) -> dict[str, list[EpisodeRow]]:
    groups: dict[str, list[EpisodeRow]] = {}
    for row in rows:
        groups.setdefault(row.model, []).append(row)
    return groups


def _model(
    rows: Sequence[EpisodeRow],
    outcomes: Mapping[str, Mapping[str, float]],
    *,
    detailed: bool,
) -> dict[str, Any]:
    earned = [
        outcomes.get(row.session_id, {}) if row.state is TrialState.RESULT else {}
        for row in rows
    ]
    names = sorted({name for numbers in outcomes.values() for name in numbers})
    model: dict[str, Any] = {
        "name": rows[0].experiment_name,
        "experiment": rows[0].experiment_id,
        "baseline": rows[0].baseline,
        "seeds": [row.seed for row in rows],
        "metrics": {name: [numbers.get(name) for numbers in earned] for name in names},
        "without_result": list(_without_result(rows)),
    }
    if detailed:
        model["episodes"] = map(_episode, rows)
    return model


def _episode(row: EpisodeRow) -> dict[str, Any]:
    elsewhere = row.difficulty is None and not row.achievements
    return {
        name: value
        for name, value in asdict(row).items()
        if not (elsewhere and name in _OF_CRAFTER)
    }


def _without_result(rows: Sequence[EpisodeRow]) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row.state is not TrialState.RESULT:
            yield {
                "session_id": row.session_id,
                "seed": row.seed,
                "episode": row.episode,
                "state": row.state,
                "stop_reason": row.stop_reason,
                "error_type": row.error_type,
                "error_message": row.error_message,
            }

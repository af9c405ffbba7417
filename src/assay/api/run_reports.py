"""What came of a run, as a document: tables, rankings, notes."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.judge.outcomes import OUTCOMES
from assay.runs import RunResult
from assay.stats import Interval, t_interval
from assay.types import TrialState

if TYPE_CHECKING:
    from assay.report import Document, ModelSummary

__all__ = ["analysis_values", "run_report"]


def run_report(result: RunResult) -> "Document":
    """What `assay run` prints of a run: tables, rankings, notes; `values()` is data."""
    from assay.report import run_document, summarize
    from assay.report.ranking import rank_models

    summaries = [
        _with_open(summary, result) for summary in summarize(result.episodes, result.started)
    ]
    # Where looks decided, a test that ignores them would say another thing.
    rankings = () if result.decisions else rank_models(result.episodes)
    return run_document(summaries, result.run_id, rankings, _own_outcomes(result))


def _with_open(summary: "ModelSummary", result: RunResult) -> "ModelSummary":
    """A summary whose totals count what open episodes have cost, too."""
    spent = result.open_spending.get(summary.model)
    if spent is None:
        return summary
    dollars = None
    if spent.dollars is not None and summary.cost_spent is not None:
        dollars = summary.cost_spent + spent.dollars
    tokens = summary.tokens_spent + spent.tokens
    return replace(summary, tokens_spent=tokens, cost_spent=dollars)


def _own_outcomes(result: RunResult) -> dict[str, dict[str, Interval]]:
    """Means of what a metric or an environment of the user's own declares, by arm and name."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in result.episodes:
        for name, value in result.outcomes.get(row.session_id, {}).items():
            if name not in OUTCOMES and row.state is TrialState.RESULT:
                values.setdefault(row.model, {}).setdefault(name, []).append(value)
    return {
        arm: {name: t_interval(earned) for name, earned in own.items()}
        for arm, own in values.items()
    }


def analysis_values(result: RunResult) -> dict[str, Any]:
    """What a results file says of all episodes together."""
    decisions = [decision.as_json() for decision in result.decisions]
    return {**run_report(result).values(), "decisions": decisions}

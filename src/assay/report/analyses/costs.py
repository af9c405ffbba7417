"""The report of what results cost."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay._util.text import counted
from assay.analyses.costs import TOKENS, CostsAnalysis, ModelCosts, price_of
from assay.report.analyses.common import INTERVALS, build, percent
from assay.report.data import interval_columns
from assay.report.document import Cell, Document, Figures, ReportTable, Section
from assay.report.numbers import dollars, mean_cell
from assay.stats.intervals import Interval

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

__all__ = ["costs_document"]

_LABELS = {
    "cost_usd": "cost per episode ($)",
    "tokens": "tokens per episode",
    "duration_s": "time per episode (s)",
}


def costs_document(found: CostsAnalysis) -> Document:
    """Dollars and tokens by model, per result and by turn, and the frontier."""
    one = "achievement" if found.result == "achievements" else "reward"
    prices = ReportTable(
        f"What an episode costs, and what each {one} of it",
        [
            *("Model", found.result.capitalize(), "$", f"$ per {one}", "Tokens"),
            *(f"Tokens per {one}", "Seconds", "Frontier", "Episodes"),
        ],
        [
            [
                model.group,
                mean_cell(found.result, model.result),
                mean_cell("cost_usd", model.cost_usd),
                mean_cell("cost_usd", _bounded(model.cost_per_result)),
                mean_cell("tokens", model.all_tokens),
                mean_cell("tokens", _bounded(model.tokens_per_result)),
                mean_cell("duration_s", model.duration_s),
                "yes" if model.on_frontier else "no",
                f"{model.n:,}",
            ]
            for model in found.models
        ],
        "Frontier: nobody is both cheaper and better. A ratio has no interval where the result"
        f" is not clear of 0. {INTERVALS}",
    )
    tokens = ReportTable(
        "Tokens of an episode, by kind",
        ["Model", *(kind.capitalize() for kind in TOKENS), "Cached", "Calls", "Growth"],
        [
            [
                model.group,
                *(f"{model.tokens[kind].point:,.0f}" for kind in TOKENS),
                percent(_cached(model)),
                f"{model.calls:,.1f}",
                _growth(model),
            ]
            for model in found.models
        ],
        "Cached: of what was sent. Growth: what is sent in a turn at the end of an episode,"
        " over what is sent at its start: the history that grows.",
    )
    return build(
        "costs",
        f"What {counted(found.basis.episodes, 'episode')} cost",
        [_finding(found)],
        [
            Section("What results cost", [_short(found, one)]),
            Section("Cost and result", [Figures(lambda: _frontier(found))]),
            Section("All prices", [prices], in_terminal=False),
            Section("Tokens", [tokens, Figures(lambda: _by_turn(found))]),
        ],
        found,
        [
            {
                "model": model.group,
                **interval_columns(found.result, model.result),
                **interval_columns("cost_usd", model.cost_usd),
                **interval_columns("cost_per_result", model.cost_per_result),
                **interval_columns("tokens", model.all_tokens),
                **interval_columns("tokens_per_result", model.tokens_per_result),
                **{kind.replace(" ", "_"): model.tokens[kind].point for kind in TOKENS},
                "duration_s": model.duration_s.point,
                "calls": model.calls,
                "on_frontier": model.on_frontier,
                "episodes": model.n,
            }
            for model in found.models
        ],
    )


def _bounded(ratio: Interval | None) -> Interval | None:
    """None where there is no ratio at all."""
    return None if ratio is None or math.isnan(ratio.point) else ratio


def _short(found: CostsAnalysis, one: str) -> ReportTable:
    metric = found.priced
    ratio = {
        "cost_usd": lambda model: model.cost_per_result,
        "tokens": lambda model: model.tokens_per_result,
    }.get(metric)
    return ReportTable(
        "What an episode costs, and what it comes to",
        ["Model", found.result.capitalize(), _LABELS[metric].capitalize()]
        + ([] if ratio is None else [f"{'$' if metric == 'cost_usd' else 'Tokens'} per {one}"])
        + ["Frontier"],
        [
            [
                model.group,
                mean_cell(found.result, model.result),
                mean_cell(metric, price_of(model, metric)),
                *([] if ratio is None else [mean_cell(metric, _bounded(ratio(model)))]),
                Cell("yes" if model.on_frontier else "no"),
            ]
            for model in found.models
        ],
        f"Frontier: nobody is both cheaper and better. {INTERVALS}",
    )


def _cached(model: ModelCosts) -> float | None:
    sent = model.tokens["fresh prompt"].point + model.tokens["cached prompt"].point
    return model.tokens["cached prompt"].point / sent if sent else None


def _growth(model: ModelCosts) -> str:
    if len(model.by_turn) < 2 or not model.by_turn[0].prompt.point:
        return "-"
    return f"{model.by_turn[-1].prompt.point / model.by_turn[0].prompt.point:.1f}x"


def _finding(found: CostsAnalysis) -> str:
    one = "achievement" if found.result == "achievements" else "reward"
    front = [model for model in found.models if model.on_frontier]
    best = max(found.models, key=lambda model: model.result.point)
    price = price_of(best, found.priced)
    costs = "an unknown amount"
    if price is not None:
        costs = {
            "cost_usd": dollars(price.point),
            "tokens": f"{price.point:,.0f} tokens",
            "duration_s": f"{price.point:.2g} seconds",
        }[found.priced]
    text = f"{best.group} reaches most and costs {costs} an episode"
    per = best.cost_per_result
    if found.priced == "cost_usd" and per is not None and not math.isnan(per.point):
        text += f", {dollars(per.point)} per {one}"
    others = [model.group for model in front if model is not best]
    if others:
        text += f"; nobody is both cheaper and better than {' or '.join(others)} either"
    return f"{text}."


def _frontier(found: CostsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.cost import CostPoint, cost_quality

    yield cost_quality(
        [
            CostPoint(model.group, price_of(model, found.priced), model.result, model.n)
            for model in found.models
        ],
        f"{found.result} of an episode",
        cost_label=_LABELS[found.priced],
        meaning="95 % intervals over worlds; line: nobody is both cheaper and better",
        title=f"{found.result.capitalize()} and {_LABELS[found.priced]}",
    )


def _by_turn(found: CostsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.panels import PanelLine, line_panels

    models = [model for model in found.models if model.by_turn]
    if models:
        yield line_panels(
            {
                what: [
                    PanelLine(
                        model.group,
                        [
                            ((turn.first + turn.last) / 2, getattr(turn, name))
                            for turn in model.by_turn
                        ],
                        model.n,
                    )
                    for model in models
                ]
                for what, name in (("sent in a turn", "prompt"), ("received", "completion"))
            },
            title="Tokens by turn",
            xlabel="turn",
            ylabel="tokens",
            note="Means over episodes that came to these turns; bars: 95 % intervals over"
            " worlds; n: episodes. What is sent grows with the history.",
        )

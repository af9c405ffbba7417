"""Costs of results: tokens and dollars by model, by achievement and by turn."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.analyses.episodes import (
    AMOUNT,
    INTERVALS,
    LEVEL,
    Basis,
    EpisodeFacts,
    TaskWorld,
    analysis_document,
    basis_of,
    build,
    by_group,
    completed,
    mean_over,
    percent,
    turn_bins,
    world_of,
)
from assay.core.text import counted
from assay.errors import UsageError
from assay.report.document import Cell, Document, Figures, ReportTable, Section
from assay.report.files import interval_columns
from assay.report.numbers import format_dollars, mean_cell
from assay.stats.differences import ratio_of_means
from assay.stats.intervals import Interval

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

TOKENS: Final = ("fresh prompt", "cached prompt", "reasoning", "answer")
"""Kinds of tokens; together, all tokens sent and received."""
_BINS: Final = 12


class TurnTokens(NamedTuple):
    """Tokens per turn in a range of turns."""

    first: int
    """First turn of the range, counted from 1."""
    last: int
    prompt: Interval
    """Tokens sent per turn, over episodes that reached these turns."""
    completion: Interval
    """Tokens received per turn."""
    cached: float
    """Share of sent tokens that were cached."""
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCosts:
    """Costs of one model."""

    group: str
    n: int
    result: Interval
    """Achievements per episode, or reward."""
    cost_usd: Interval | None
    """Dollars per episode; None if a price is unknown."""
    unpriced: int
    """Number of episodes with a call whose price is unknown."""
    tokens: Mapping[str, Interval]
    """Tokens per episode, by kind; see `TOKENS`."""
    all_tokens: Interval
    duration_s: Interval
    calls: float
    """Mean number of calls per episode."""
    cost_per_result: Interval | None
    """Dollars per achievement, or per reward; bounds are NaN if the result may be 0."""
    tokens_per_result: Interval
    by_turn: tuple[TurnTokens, ...]
    on_frontier: bool
    """Whether no other model is both cheaper and better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostsAnalysis:
    """Costs of all models."""

    basis: Basis
    result: str
    """achievements or reward."""
    priced: str
    """Measure of cost: cost_usd, tokens or duration_s."""
    models: tuple[ModelCosts, ...]


def analyse_costs(facts: Sequence[EpisodeFacts]) -> CostsAnalysis:
    """Compute the costs of results; facts need calls.

    Raises:
        UsageError: No episode has tokens, a cost or a duration.
    """
    used = completed(facts)
    if not any(_tokens(one) or one.row.cost_usd or one.row.duration_s for one in used):
        raise UsageError(
            f"these {len(used)} episodes say neither tokens, nor cost, nor time; episodes that"
            " 'assay run' played say all three"
        )
    result = "achievements" if all(one.has_achievements for one in used) else "reward"
    longest = max(one.row.turns for one in used)
    found = [
        _model(name, episodes, result, longest) for name, episodes in by_group(used).items()
    ]
    notes = [
        f"{model.group}: {model.unpriced} of {model.n} episodes have calls whose price is not"
        " known, so that it has no cost; 'assay models' shows prices, and a config sets them."
        for model in found
        if model.unpriced
    ]
    if any(model.cost_usd is not None and model.cost_usd.point for model in found):
        priced = "cost_usd"
    else:
        priced = "tokens" if any(model.all_tokens.point for model in found) else "duration_s"
        notes.append(
            f"Nobody has a cost in dollars, so that results are held against"
            f" {'tokens' if priced == 'tokens' else 'time'}."
        )
    return CostsAnalysis(
        basis=basis_of(facts, *notes),
        result=result,
        priced=priced,
        models=_with_frontier(found, priced),
    )


def _tokens(facts: EpisodeFacts) -> int:
    return facts.row.prompt_tokens + facts.row.completion_tokens


def _of_kind(facts: EpisodeFacts) -> Mapping[str, float]:
    row = facts.row
    return {
        "fresh prompt": float(row.prompt_tokens - row.cached_tokens),
        "cached prompt": float(row.cached_tokens),
        "reasoning": float(row.reasoning_tokens),
        "answer": float(row.completion_tokens - row.reasoning_tokens),
    }


def _model(
    name: str, episodes: Sequence[EpisodeFacts], result: str, longest: int
) -> ModelCosts:
    earned = [
        float(len(one.row.achievements)) if result == "achievements" else one.row.reward
        for one in episodes
    ]
    costs = [one.row.cost_usd for one in episodes]
    unpriced = sum(cost is None for cost in costs)
    kinds = [_of_kind(one) for one in episodes]
    tokens = [float(_tokens(one)) for one in episodes]
    calls = [0 if one.calls is None else len(one.calls.turns) for one in episodes]
    known = [cost or 0.0 for cost in costs]
    return ModelCosts(
        group=name,
        n=len(episodes),
        result=mean_over(episodes, earned, result),
        cost_usd=None if unpriced else mean_over(episodes, known, "cost_usd"),
        unpriced=unpriced,
        tokens={
            kind: mean_over(episodes, [one[kind] for one in kinds], AMOUNT) for kind in TOKENS
        },
        all_tokens=mean_over(episodes, tokens, "tokens"),
        duration_s=mean_over(episodes, [one.row.duration_s for one in episodes], AMOUNT),
        calls=sum(calls) / len(calls),
        cost_per_result=None if unpriced else _ratio(episodes, earned, known),
        tokens_per_result=_ratio(episodes, earned, tokens),
        by_turn=tuple(_by_turn(episodes, longest)),
        on_frontier=False,
    )


def _ratio(
    episodes: Sequence[EpisodeFacts], below: Sequence[float], above: Sequence[float]
) -> Interval:
    """Return the ratio of two means, paired by world (Fieller)."""
    worlds: dict[TaskWorld, list[int]] = {}
    for place, one in enumerate(episodes):
        worlds.setdefault(world_of(one), []).append(place)
    a, b = (
        [sum(values[place] for place in mine) / len(mine) for mine in worlds.values()]
        for values in (below, above)
    )
    return ratio_of_means(a, b, paired=True, level=LEVEL)


def _by_turn(episodes: Sequence[EpisodeFacts], longest: int) -> list[TurnTokens]:
    asking = [one for one in episodes if one.calls is not None]
    found: list[TurnTokens] = []
    for first, last in turn_bins(longest, _BINS):
        there, sent, received, cached = [], [], [], 0.0
        for one in asking:
            calls = one.calls
            if calls is None or one.row.turns < first:
                continue
            inside = (calls.turns >= first) & (calls.turns <= last)
            turns = min(last, one.row.turns) - first + 1
            there.append(one)
            sent.append(_sum(calls.prompt_tokens, inside) / turns)
            received.append(_sum(calls.completion_tokens, inside) / turns)
            cached += _sum(calls.cached_tokens, inside) / turns
        if there and (sum(sent) or sum(received)):
            found.append(
                TurnTokens(
                    first,
                    last,
                    mean_over(there, sent, AMOUNT),
                    mean_over(there, received, AMOUNT),
                    cached / sum(sent) if sum(sent) else 0.0,
                    len(there),
                )
            )
    return found


def _sum(values: NDArray[np.int64], inside: NDArray[np.bool_]) -> float:
    return float(values[inside].sum())


def price_of(model: ModelCosts, priced: str) -> Interval | None:
    """Return the cost of an episode in the chosen measure."""
    if priced == "cost_usd":
        return model.cost_usd
    return model.all_tokens if priced == "tokens" else model.duration_s


def _with_frontier(models: Sequence[ModelCosts], priced: str) -> tuple[ModelCosts, ...]:
    def beaten(model: ModelCosts) -> bool:
        own = price_of(model, priced)
        if own is None:
            return True
        for other in models:
            price = price_of(other, priced)
            if other is model or price is None:
                continue
            no_worse = price.point <= own.point and other.result.point >= model.result.point
            if no_worse and (price.point, other.result.point) != (
                own.point,
                model.result.point,
            ):
                return True
        return False

    return tuple(
        replace(model, on_frontier=not beaten(model) and not math.isnan(model.result.point))
        for model in models
    )


_LABELS = {
    "cost_usd": "cost per episode ($)",
    "tokens": "tokens per episode",
    "duration_s": "time per episode (s)",
}


@analysis_document.register
def _document(found: CostsAnalysis) -> Document:
    """Build the report: costs by model, per result and by turn, and the frontier."""
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
            Section("Tokens", [tokens, Figures(lambda: _by_turn_figures(found))]),
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
    """Return None if the ratio is undefined."""
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
            "cost_usd": format_dollars(price.point),
            "tokens": f"{price.point:,.0f} tokens",
            "duration_s": f"{price.point:.2g} seconds",
        }[found.priced]
    text = f"{best.group} reaches most and costs {costs} an episode"
    per = best.cost_per_result
    if found.priced == "cost_usd" and per is not None and not math.isnan(per.point):
        text += f", {format_dollars(per.point)} per {one}"
    others = [model.group for model in front if model is not best]
    if others:
        text += f"; nobody is both cheaper and better than {' or '.join(others)} either"
    return f"{text}."


def _frontier(found: CostsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.cost import CostPoint, draw_cost_quality

    yield draw_cost_quality(
        [
            CostPoint(model.group, price_of(model, found.priced), model.result, model.n)
            for model in found.models
        ],
        f"{found.result} of an episode",
        cost_label=_LABELS[found.priced],
        meaning="95 % intervals over worlds; line: nobody is both cheaper and better",
        title=f"{found.result.capitalize()} and {_LABELS[found.priced]}",
    )


def _by_turn_figures(found: CostsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.panels import PanelLine, draw_line_panels

    models = [model for model in found.models if model.by_turn]
    if models:
        yield draw_line_panels(
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

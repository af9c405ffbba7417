"""Report at the end of a run.

Models are never ordered by their means alone: models that do not differ significantly share a
place, and sentences state which is better. `judge` makes the rankings.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from assay.agents.builtin import is_scripted
from assay.judge.options import SUCCESS_ACHIEVEMENTS
from assay.judge.results import Contrast
from assay.report.comparison.sentences import describe_sample, task_restriction
from assay.report.document import (
    Block,
    Cell,
    Document,
    Items,
    Paragraph,
    ReportTable,
    Row,
    Section,
    Tone,
    shorten_name,
)
from assay.report.numbers import DASH, format_bounds, format_count, format_difference, p_text
from assay.report.run_summary import (
    HUMAN,
    RANKING_TITLES,
    ModelSummary,
    Ranking,
    has_human_reference,
    interval_json,
    is_outside_crafter,
    summaries_json,
    summary_rows,
)
from assay.stats.intervals import Interval
from assay.types import TrialState, Verdict

_MAX_MESSAGE_LENGTH = 300
_PERFORMANCE, _TOKENS = "PERFORMANCE SUMMARY", "TOKENS AND COST, PER EPISODE AND IN ALL"
_INVALID, _ACHIEVEMENTS = "INVALID ACTION ANALYSIS", "ACHIEVEMENT ANALYSIS, BY ENVIRONMENT STEP"
_FOLDED_SECTIONS = ("Endings", "Notes", "Experiments")
"""Sections that a terminal shows only with --detail."""
_MAX_SENTENCES = 6
"""With more pairs of models than this, sentences cover only the pairs with the best model."""
_STATES = {
    TrialState.FAILURE: "failed",
    TrialState.INFRASTRUCTURE: "ended by infrastructure errors",
}


def run_document(
    summaries: Sequence[ModelSummary],
    run_id: str | None = None,
    rankings: Sequence[Ranking] = (),
    custom: Mapping[str, Mapping[str, Interval]] | None = None,
) -> Document:
    """Build the report of a run: tables, errors, rankings and ids.

    Args:
        summaries: Summary of each model's episodes.
        run_id: The run.
        rankings: Rankings of the models.
        custom: Means of outcomes that a user-defined metric or environment declares, by model
            and name.
    """
    ordered = sorted(summaries, key=_sort_key)
    human = has_human_reference(ordered)
    tables = [
        *_build_tables(ordered, human=human),
        *_build_custom_outcomes_table(ordered, custom or {}),
    ]
    ids = [
        f"experiment {shorten_name(id)}  {shorten_name(name)}"
        for summary in ordered
        for id, name in summary.experiments
    ]
    blocks: dict[str, list[Block]] = {
        "Results": [*tables],
        "Endings": [*_build_endings_table(ordered)],
    }
    if tables:
        notes = [*_collect_notes(ordered, human=human, tested=bool(rankings))]
        blocks["Notes"] = [Items(notes, "", Tone.NOTE)]
    if ids:
        blocks["Experiments"] = [Items(ids, f"Run {shorten_name(run_id)}" if run_id else "")]
    if errors := list(_describe_errors(ordered)):
        blocks["Errors"] = [Items(errors, "", Tone.WARNING)]
    # The rankings are last, because that is the part a terminal still shows.
    if rankings:
        blocks["Order"] = [
            Paragraph("MODEL RANKINGS", Tone.CALLOUT),
            *map(_list_ranking, rankings),
        ]
    return Document(
        title=f"Run {run_id}" if run_id else "Run",
        sections=[
            Section(title, shown, folded=title in _FOLDED_SECTIONS)
            for title, shown in blocks.items()
            if shown
        ],
        values=lambda: {
            **summaries_json(summaries),
            "own": {
                model: {name: interval_json(mean) for name, mean in means.items()}
                for model, means in (custom or {}).items()
            },
            "rankings": ranking_json(rankings),
        },
        rows=lambda: summary_rows(summaries),
    )


def _sort_key(summary: ModelSummary) -> tuple[bool, float]:
    """Return the sort key: the best mean reward first, baselines last."""
    reward = -math.inf if summary.reward is None else summary.reward.point
    return summary.baseline, -reward


def describe_ranking(ranking: Ranking) -> list[str]:
    """Describe which models are better; the sentences contain untrusted names."""
    few, best = len(ranking.contrasts) <= _MAX_SENTENCES, ranking.places[0].model
    baselines = {place.model for place in ranking.places if place.baseline}
    pairs = [
        (contrast, {contrast.baseline, contrast.candidate}) for contrast in ranking.contrasts
    ]
    return [
        _describe_pair(contrast)
        for contrast, pair in pairs
        if (few or best in pair) and not pair <= baselines
    ]


def ranking_json(rankings: Sequence[Ranking]) -> list[dict[str, Any]]:
    """Return the rankings for programs."""
    return [
        {
            "metric": ranking.metric,
            "places": [
                {"model": place.model, "place": place.place, "shared": place.shared}
                for place in ranking.places
            ],
            "pairs": [_pair_json(contrast) for contrast in ranking.contrasts],
        }
        for ranking in rankings
    ]


def _build_tables(summaries: Sequence[ModelSummary], *, human: bool) -> Iterator[ReportTable]:
    outside_crafter = is_outside_crafter(summaries)
    played = any(summary.results for summary in summaries)
    calling = [summary for summary in summaries if not is_scripted(summary.model)]
    for title, columns in _COLUMNS.items():
        shown = calling if title == _TOKENS else summaries
        if not (
            any(summary.tokens_spent for summary in calling) if title == _TOKENS else played
        ):
            continue  # The table would contain only dashes.
        if outside_crafter:
            columns = {
                head: cell for head, cell in columns.items() if head not in _CRAFTER_HEADS
            }
            if not columns:
                continue
        rows: list[Row] = [
            [
                summary.model + ("*" if summary.baseline else ""),
                *(cell(summary) for cell in columns.values()),
            ]
            for summary in shown
        ]
        human_cells = _HUMAN_CELLS.get(title)
        if human and human_cells is not None:
            rows.append([HUMAN.name, *(human_cells.get(head, DASH) for head in columns)])
        yield ReportTable(
            title,
            ["Model", *columns],
            rows,
            _SUCCESS_NOTE if "Success%" in columns else "",
            {index for index, summary in enumerate(shown) if summary.baseline} | {len(shown)},
        )


def _build_endings_table(summaries: Sequence[ModelSummary]) -> Iterator[ReportTable]:
    """Yield the table of reasons for which episodes ended, with the causes of death."""
    reasons = list(dict.fromkeys(reason for summary in summaries for reason in summary.endings))
    if reasons:
        rows: list[Row] = [
            [
                summary.model + ("*" if summary.baseline else ""),
                *(f"{summary.endings.get(reason, 0):,}" for reason in reasons),
            ]
            for summary in summaries
        ]
        dim = {index for index, summary in enumerate(summaries) if summary.baseline}
        yield ReportTable("HOW EPISODES ENDED", ["Model", *reasons], rows, "", dim)


def _build_custom_outcomes_table(
    summaries: Sequence[ModelSummary], custom: Mapping[str, Mapping[str, Interval]]
) -> Iterator[ReportTable]:
    """Yield the table of user-defined outcomes, if there are any."""
    heads = [*dict.fromkeys(name for means in custom.values() for name in means)]
    if heads:
        rows: list[Row] = [
            [
                summary.model + ("*" if summary.baseline else ""),
                *(_format_mean(custom.get(summary.model, {}).get(head)) for head in heads),
            ]
            for summary in summaries
        ]
        yield ReportTable("Custom outcomes", ["Model", *heads], rows)


def _format_share(share: Interval | None) -> Cell:
    return Cell(DASH if share is None else f"{100 * share.point:.1f}%")


def _format_score(summary: ModelSummary) -> Cell:
    if summary.score is None:
        return Cell(DASH)
    ends = ""
    if summary.score_interval is not None and summary.score_interval.known:
        ends = f"{summary.score_interval.low:.1f}-{summary.score_interval.high:.1f}, "
    return Cell(f"{summary.score:.1f}", f"({ends}n={summary.results})")


def _format_mean(
    interval: Interval | None, digits: int = 2, unit: str = "", scale: float = 1, sign: str = ""
) -> Cell:
    """Format a mean and half the width of its interval, in the same unit."""
    if interval is None:
        return Cell(DASH)
    # Adding zero removes the sign of a zero.
    value = f"{sign}{round(interval.point * scale, digits) + 0.0:,.{digits}f}{unit}"
    # An interval that is cut at the possible range is shorter on that side.
    longer = max(interval.high - interval.point, interval.point - interval.low)
    half = f"{longer * scale:,.{digits}f}" if interval.known else "?"
    return Cell(value, f"±{half}")


def _format_percent(interval: Interval | None) -> Cell:
    return _format_mean(interval, unit="%", scale=100)


def _format_seconds(interval: Interval | None) -> Cell:
    """Format a mean time, with more digits if it is short."""
    digits = 1 if interval is None or interval.point >= 10 else 3 if interval.point < 1 else 2
    return _format_mean(interval, digits, "s")


def _format_mean_dollars(interval: Interval | None) -> Cell:
    digits = 2 if interval is None else _count_dollar_decimals(interval.point)
    return _format_mean(interval, digits, sign="$")


def _format_total_dollars(amount: float | None) -> Cell:
    return Cell(DASH if amount is None else f"${amount:,.{_count_dollar_decimals(amount)}f}")


def _count_dollar_decimals(dollars: float) -> int:
    return 2 if dollars >= 1 or dollars == 0 else 4


_COLUMNS: dict[str, dict[str, Callable[[ModelSummary], Cell]]] = {
    _PERFORMANCE: {
        "Episodes": lambda summary: format_count(summary.started),
        "Completed%": lambda summary: _format_share(summary.completed),
        "Success%": lambda summary: _format_share(summary.success),
        "Avg Reward": lambda summary: _format_mean(summary.reward),
        "Avg Steps": lambda summary: _format_mean(summary.steps, 1),
        "Avg Duration": lambda summary: _format_seconds(summary.duration_s),
        "Crafter score": _format_score,
    },
    _TOKENS: {
        "Avg Turns": lambda summary: _format_mean(summary.turns, 1),
        "Avg Tokens": lambda summary: _format_mean(summary.tokens, 0),
        "Avg Dollars": lambda summary: _format_mean_dollars(summary.cost_usd),
        "Total Tokens": lambda summary: format_count(summary.tokens_spent),
        "Total Dollars": lambda summary: _format_total_dollars(summary.cost_spent),
    },
    _INVALID: {
        "Avg Invalid%": lambda summary: _format_percent(summary.invalid_rate),
        "Total Invalid": lambda summary: format_count(summary.invalid),
        "Total Actions": lambda summary: format_count(summary.actions),
        "Unknown": lambda summary: format_count(summary.unknown),
        "No effect": lambda summary: format_count(summary.no_effect),
        "Asleep": lambda summary: format_count(summary.asleep),
        "Malformed": lambda summary: format_count(summary.malformed),
    },
    _ACHIEVEMENTS: {
        "Avg Ach.": lambda summary: _format_mean(summary.achievements),
        "Total Ach.": lambda summary: format_count(summary.unlocked),
        "Unique Ach.": lambda summary: format_count(summary.unique),
        "Early (0-25)": lambda summary: format_count(summary.early),
        "Mid (26-50)": lambda summary: format_count(summary.mid),
        "Late (51+)": lambda summary: format_count(summary.late),
    },
}
_SUCCESS_NOTE = f"Success: {SUCCESS_ACHIEVEMENTS} achievements or more."
_CRAFTER_HEADS = {"Success%", "Crafter score", "No effect", "Asleep", *_COLUMNS[_ACHIEVEMENTS]}
"""Column heads that apply only to Crafter."""
_HUMAN_CELLS = {
    _PERFORMANCE: {
        "Episodes": format_count(HUMAN.episodes),
        "Avg Steps": Cell(f"{HUMAN.steps:.1f}"),
        "Crafter score": Cell(f"{HUMAN.score:.1f}", f"(n={HUMAN.episodes})"),
    },
    _ACHIEVEMENTS: {
        "Avg Ach.": Cell(f"{HUMAN.achievements:.2f}", f"SD {HUMAN.achievements_sd:.2f}")
    },
}
_RANKED_CELLS: dict[str, Callable[[Interval], Cell]] = {
    "reward": _format_mean,
    "invalid_rate": _format_percent,
}


def _list_ranking(ranking: Ranking) -> Items:
    """List the places, with an equals sign after shared ones, and the verdicts in words."""
    lines = []
    for place in ranking.places:
        value, half = _RANKED_CELLS[ranking.metric](place.mean)
        mark = "=" if place.shared else "."
        name = shorten_name(place.model) + ("*" if place.baseline else "")
        lines.append(f"{place.place}{mark} {name}: {value} {half}".rstrip())
    return Items([*lines, *describe_ranking(ranking)], RANKING_TITLES[ranking.metric])


def _describe_pair(contrast: Contrast) -> str:
    """Describe one pair of models, the better one first."""
    first, other, gap = contrast.candidate, contrast.baseline, contrast.difference
    where = task_restriction(contrast)
    if contrast.verdict is Verdict.UNDECIDED:
        if contrast.too_few is not None:
            normal = ", assuming normal differences" if gap.known else ""
            shown = _format_gap(contrast, gap)
            return f"{first} and {other}: {contrast.too_few}; {shown}{normal}."
        return (
            f"{first} and {other} cannot be told apart{where}: {_format_gap(contrast, gap)},"
            f" {describe_sample(contrast)}."
        )
    if contrast.withheld:
        return f"{first} and {other}: could not be judged, because episodes were lost."
    if contrast.verdict is Verdict.WORSE:
        first, other, gap = other, first, Interval(-gap.point, -gap.high, -gap.low)
    assert contrast.tests is not None
    return (
        f"{first} is better than {other}{where}: {_format_gap(contrast, gap)},"
        f" {describe_sample(contrast)}, {p_text(contrast.tests.p_adjusted)}."
    )


def _format_gap(contrast: Contrast, gap: Interval) -> str:
    ends = f" ({format_bounds(contrast.metric, gap)})" if gap.known else ""
    return f"{format_difference(contrast.metric, gap.point)}{ends}"


def _pair_json(contrast: Contrast) -> dict[str, Any]:
    gap = contrast.difference
    return {
        "model": contrast.candidate,
        "against": contrast.baseline,
        "verdict": contrast.verdict,
        "difference": gap.point,
        "low": gap.low if gap.known else None,
        "high": gap.high if gap.known else None,
        "n": contrast.n_candidate,
        "paired": contrast.paired,
        "p_adjusted": None if contrast.tests is None else contrast.tests.p_adjusted,
    }


def _collect_notes(
    summaries: Sequence[ModelSummary], *, human: bool, tested: bool
) -> Iterator[str]:
    yield "± is the half-width of the t interval of a mean over episodes, at about 95 %."
    if tested:
        yield (
            "Models are compared world by world (paired t test, adjusted by Holm's method for"
            " all pairs of models); = marks a place shared by models that do not differ"
            " significantly. In brackets: about 95 % intervals, not adjusted."
        )
    if any(summary.results == 1 for summary in summaries):
        yield "±? marks a single episode, which gives no interval."
    if is_outside_crafter(summaries):
        yield "Invalid = unknown; malformed replies are counted separately."
    else:
        yield (
            "The Crafter score, with its interval at about 95 %, increases with the number of"
            " episodes n: compare only scores with equal n."
        )
        yield "Invalid = unknown + no effect; asleep and malformed are counted separately."
    if any(summary.baseline for summary in summaries):
        yield "* marks a baseline: same worlds and limits, not ranked."
    if human:
        yield HUMAN.note


def _describe_errors(summaries: Sequence[ModelSummary]) -> Iterator[str]:
    for summary in summaries:
        model = shorten_name(summary.model)
        for group in summary.troubles:
            what = f"{group.count} of {summary.started} episodes {_STATES[group.state]}"
            message = shorten_name(
                group.message[: _MAX_MESSAGE_LENGTH + 1], _MAX_MESSAGE_LENGTH
            )
            message = f"{shorten_name(group.kind)}: {message}".rstrip(": ")
            yield f"{model}: {what}: {message}"
        if summary.unended > 0:
            yield (
                f"{model}: {summary.unended} of {summary.started} episodes did not end;"
                " resume the run to finish them"
            )

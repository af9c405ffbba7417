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
from assay.report.comparison.sentences import on_these_tasks, sample_words
from assay.report.document import (
    Block,
    Cell,
    Document,
    Items,
    ReportTable,
    Row,
    Section,
    Tone,
    Words,
    short_name,
)
from assay.report.numbers import DASH, bounds, change, count, p_text
from assay.report.run_summary import (
    HUMAN,
    RANKED,
    ModelSummary,
    Ranking,
    beside_humans,
    interval_json,
    is_elsewhere,
    summaries_json,
    summary_rows,
)
from assay.stats.intervals import Interval
from assay.types import TrialState, Verdict

_LONGEST_MESSAGE = 300
_PERFORMANCE, _TOKENS = "PERFORMANCE SUMMARY", "TOKENS AND COST, PER EPISODE AND IN ALL"
_INVALID, _ACHIEVEMENTS = "INVALID ACTION ANALYSIS", "ACHIEVEMENT ANALYSIS, BY ENVIRONMENT STEP"
_FOLDED = ("Endings", "Notes", "Experiments")
"""Sections that a terminal shows only with --detail."""
_MOST_SENTENCES = 6
"""With more pairs of models than this, sentences cover only the pairs with the best model."""
_STATES = {
    TrialState.FAILURE: "failed",
    TrialState.INFRASTRUCTURE: "ended by infrastructure errors",
}


def run_document(
    summaries: Sequence[ModelSummary],
    run_id: str | None = None,
    rankings: Sequence[Ranking] = (),
    own: Mapping[str, Mapping[str, Interval]] | None = None,
) -> Document:
    """Build the report of a run: tables, errors, rankings and ids.

    Args:
        summaries: Summary of each model's episodes.
        run_id: The run.
        rankings: Rankings of the models.
        own: Means of outcomes that a user-defined metric or environment declares, by model
            and name.
    """
    ordered = sorted(summaries, key=_by_result)
    human = beside_humans(ordered)
    tables = [*_tables(ordered, human=human), *_own_table(ordered, own or {})]
    ids = [
        f"experiment {short_name(id)}  {short_name(name)}"
        for summary in ordered
        for id, name in summary.experiments
    ]
    blocks: dict[str, list[Block]] = {"Results": [*tables], "Endings": [*_endings(ordered)]}
    if tables:
        said = [*_notes(ordered, human=human, tested=bool(rankings))]
        blocks["Notes"] = [Items(said, "", Tone.NOTE)]
    if ids:
        blocks["Experiments"] = [Items(ids, f"Run {short_name(run_id)}" if run_id else "")]
    if errors := list(_errors(ordered)):
        blocks["Errors"] = [Items(errors, "", Tone.WARNING)]
    # The rankings are last, because that is the part a terminal still shows.
    if rankings:
        blocks["Order"] = [Words("MODEL RANKINGS", Tone.CALLOUT), *map(_ranking, rankings)]
    return Document(
        title=f"Run {run_id}" if run_id else "Run",
        sections=[
            Section(title, shown, folded=title in _FOLDED)
            for title, shown in blocks.items()
            if shown
        ],
        values=lambda: {
            **summaries_json(summaries),
            "own": {
                model: {name: interval_json(mean) for name, mean in means.items()}
                for model, means in (own or {}).items()
            },
            "rankings": ranking_json(rankings),
        },
        rows=lambda: summary_rows(summaries),
    )


def _by_result(summary: ModelSummary) -> tuple[bool, float]:
    """Return the sort key: the best mean reward first, baselines last."""
    reward = -math.inf if summary.reward is None else summary.reward.point
    return summary.baseline, -reward


def ranking_sentences(ranking: Ranking) -> list[str]:
    """Describe which models are better; the sentences contain untrusted names."""
    few, best = len(ranking.contrasts) <= _MOST_SENTENCES, ranking.places[0].model
    beside = {place.model for place in ranking.places if place.baseline}
    pairs = [
        (contrast, {contrast.baseline, contrast.candidate}) for contrast in ranking.contrasts
    ]
    return [
        _sentence(contrast)
        for contrast, pair in pairs
        if (few or best in pair) and not pair <= beside
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


def _tables(summaries: Sequence[ModelSummary], *, human: bool) -> Iterator[ReportTable]:
    elsewhere = is_elsewhere(summaries)
    played = any(summary.results for summary in summaries)
    paid = [summary for summary in summaries if not is_scripted(summary.model)]
    for title, columns in _COLUMNS.items():
        shown = paid if title == _TOKENS else summaries
        if not (any(each.tokens_spent for each in paid) if title == _TOKENS else played):
            continue  # the table would contain only dashes
        if elsewhere:
            columns = {head: cell for head, cell in columns.items() if head not in _CRAFTERS}
            if not columns:
                continue
        rows: list[Row] = [
            [
                summary.model + ("*" if summary.baseline else ""),
                *(cell(summary) for cell in columns.values()),
            ]
            for summary in shown
        ]
        anchor = _HUMAN_CELLS.get(title)
        if human and anchor is not None:
            rows.append([HUMAN.name, *(anchor.get(head, DASH) for head in columns)])
        yield ReportTable(
            title,
            ["Model", *columns],
            rows,
            _SUCCESS_NOTE if "Success%" in columns else "",
            {place for place, each in enumerate(shown) if each.baseline} | {len(shown)},
        )


def _endings(summaries: Sequence[ModelSummary]) -> Iterator[ReportTable]:
    """Yield the table of reasons for which episodes ended, with the causes of death."""
    reasons = list(dict.fromkeys(reason for one in summaries for reason in one.endings))
    if reasons:
        rows: list[Row] = [
            [
                summary.model + ("*" if summary.baseline else ""),
                *(f"{summary.endings.get(reason, 0):,}" for reason in reasons),
            ]
            for summary in summaries
        ]
        dim = {place for place, summary in enumerate(summaries) if summary.baseline}
        yield ReportTable("HOW EPISODES ENDED", ["Model", *reasons], rows, "", dim)


def _own_table(
    summaries: Sequence[ModelSummary], own: Mapping[str, Mapping[str, Interval]]
) -> Iterator[ReportTable]:
    """Yield the table of user-defined outcomes, if there are any."""
    heads = [*dict.fromkeys(name for means in own.values() for name in means)]
    if heads:
        rows: list[Row] = [
            [
                summary.model + ("*" if summary.baseline else ""),
                *(_mean(own.get(summary.model, {}).get(head)) for head in heads),
            ]
            for summary in summaries
        ]
        yield ReportTable("Outcomes of your own", ["Model", *heads], rows)


def _share(share: Interval | None) -> Cell:
    return Cell(DASH if share is None else f"{100 * share.point:.1f}%")


def _score(summary: ModelSummary) -> Cell:
    if summary.score is None:
        return Cell(DASH)
    ends = ""
    if summary.score_interval is not None and summary.score_interval.known:
        ends = f"{summary.score_interval.low:.1f}-{summary.score_interval.high:.1f}, "
    return Cell(f"{summary.score:.1f}", f"({ends}n={summary.results})")


def _mean(
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


def _percent(interval: Interval | None) -> Cell:
    return _mean(interval, unit="%", scale=100)


def _seconds(interval: Interval | None) -> Cell:
    """Format a mean time, with more digits if it is short."""
    digits = 1 if interval is None or interval.point >= 10 else 3 if interval.point < 1 else 2
    return _mean(interval, digits, "s")


def _dollars(interval: Interval | None) -> Cell:
    digits = 2 if interval is None else _digits(interval.point)
    return _mean(interval, digits, sign="$")


def _total_dollars(amount: float | None) -> Cell:
    return Cell(DASH if amount is None else f"${amount:,.{_digits(amount)}f}")


def _digits(dollars: float) -> int:
    return 2 if dollars >= 1 or dollars == 0 else 4


_COLUMNS: dict[str, dict[str, Callable[[ModelSummary], Cell]]] = {
    _PERFORMANCE: {
        "Episodes": lambda summary: count(summary.started),
        "Completed%": lambda summary: _share(summary.completed),
        "Success%": lambda summary: _share(summary.success),
        "Avg Reward": lambda summary: _mean(summary.reward),
        "Avg Steps": lambda summary: _mean(summary.steps, 1),
        "Avg Duration": lambda summary: _seconds(summary.duration_s),
        "Crafter score": _score,
    },
    _TOKENS: {
        "Avg Turns": lambda summary: _mean(summary.turns, 1),
        "Avg Tokens": lambda summary: _mean(summary.tokens, 0),
        "Avg Dollars": lambda summary: _dollars(summary.cost_usd),
        "Total Tokens": lambda summary: count(summary.tokens_spent),
        "Total Dollars": lambda summary: _total_dollars(summary.cost_spent),
    },
    _INVALID: {
        "Avg Invalid%": lambda summary: _percent(summary.invalid_rate),
        "Total Invalid": lambda summary: count(summary.invalid),
        "Total Actions": lambda summary: count(summary.actions),
        "Unknown": lambda summary: count(summary.unknown),
        "No effect": lambda summary: count(summary.no_effect),
        "Asleep": lambda summary: count(summary.asleep),
        "Malformed": lambda summary: count(summary.malformed),
    },
    _ACHIEVEMENTS: {
        "Avg Ach.": lambda summary: _mean(summary.achievements),
        "Total Ach.": lambda summary: count(summary.unlocked),
        "Unique Ach.": lambda summary: count(summary.unique),
        "Early (0-25)": lambda summary: count(summary.early),
        "Mid (26-50)": lambda summary: count(summary.mid),
        "Late (51+)": lambda summary: count(summary.late),
    },
}
_SUCCESS_NOTE = f"Success: {SUCCESS_ACHIEVEMENTS} achievements or more."
_CRAFTERS = {"Success%", "Crafter score", "No effect", "Asleep", *_COLUMNS[_ACHIEVEMENTS]}
"""Column heads that apply only to Crafter."""
_HUMAN_CELLS = {
    _PERFORMANCE: {
        "Episodes": count(HUMAN.episodes),
        "Avg Steps": Cell(f"{HUMAN.steps:.1f}"),
        "Crafter score": Cell(f"{HUMAN.score:.1f}", f"(n={HUMAN.episodes})"),
    },
    _ACHIEVEMENTS: {
        "Avg Ach.": Cell(f"{HUMAN.achievements:.2f}", f"SD {HUMAN.achievements_sd:.2f}")
    },
}
_RANKED_CELLS: dict[str, Callable[[Interval], Cell]] = {
    "reward": _mean,
    "invalid_rate": _percent,
}


def _ranking(ranking: Ranking) -> Items:
    """List the places, with an equals sign after shared ones, and the verdicts in words."""
    lines = []
    for place in ranking.places:
        value, half = _RANKED_CELLS[ranking.metric](place.mean)
        mark = "=" if place.shared else "."
        name = short_name(place.model) + ("*" if place.baseline else "")
        lines.append(f"{place.place}{mark} {name}: {value} {half}".rstrip())
    return Items([*lines, *ranking_sentences(ranking)], RANKED[ranking.metric])


def _sentence(contrast: Contrast) -> str:
    """Describe one pair of models, the better one first."""
    first, other, gap = contrast.candidate, contrast.baseline, contrast.difference
    where = on_these_tasks(contrast)
    if contrast.verdict is Verdict.UNDECIDED:
        if contrast.tests is None:
            return f"{first} and {other}: nobody can say, {sample_words(contrast)}."
        return (
            f"{first} and {other} cannot be told apart{where}: {_gap(contrast, gap)},"
            f" {sample_words(contrast)}."
        )
    if contrast.verdict is Verdict.WORSE:
        first, other, gap = other, first, Interval(-gap.point, -gap.high, -gap.low)
    assert contrast.tests is not None
    return (
        f"{first} is better than {other}{where}: {_gap(contrast, gap)},"
        f" {sample_words(contrast)}, {p_text(contrast.tests.p_adjusted)}."
    )


def _gap(contrast: Contrast, gap: Interval) -> str:
    ends = f" ({bounds(contrast.metric, gap)})" if gap.known else ""
    return f"{change(contrast.metric, gap.point)}{ends}"


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


def _notes(summaries: Sequence[ModelSummary], *, human: bool, tested: bool) -> Iterator[str]:
    yield "± is how far the t interval of a mean over episodes reaches, at about 95 %."
    if tested:
        yield (
            "Models are compared world by world (paired t test, adjusted by Holm's method for"
            " all pairs of models); = marks a place that models share because they cannot be"
            " told apart. In brackets: about 95 % intervals, not adjusted."
        )
    if any(summary.results == 1 for summary in summaries):
        yield "±? one episode gives no interval."
    if is_elsewhere(summaries):
        yield "Invalid = unknown; malformed are counted apart."
    else:
        yield (
            "The Crafter score, with its interval at about 95 %, grows with the number of"
            " episodes n: compare scores of equal n only."
        )
        yield "Invalid = unknown + no effect; asleep and malformed are counted apart."
    if any(summary.baseline for summary in summaries):
        yield "* a baseline on the same worlds with the same limits; unranked."
    if human:
        yield HUMAN.note


def _errors(summaries: Sequence[ModelSummary]) -> Iterator[str]:
    for summary in summaries:
        model = short_name(summary.model)
        for group in summary.troubles:
            what = f"{group.count} of {summary.started} episodes {_STATES[group.state]}"
            said = short_name(group.message[: _LONGEST_MESSAGE + 1], _LONGEST_MESSAGE)
            message = f"{short_name(group.kind)}: {said}".rstrip(": ")
            yield f"{model}: {what}: {message}"
        if summary.unended > 0:
            yield (
                f"{model}: {summary.unended} of {summary.started} episodes without an"
                " ending; resume the run to end them"
            )

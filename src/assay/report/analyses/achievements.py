"""The report of how often and how soon achievements are reached."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay._util.text import counted
from assay.analyses.achievements import AchievementsAnalysis, ModelAchievements
from assay.crafter.rules import ACHIEVEMENTS, EASIEST_FIRST, HUMAN, RANDOM
from assay.report.analyses.common import INTERVALS, build
from assay.report.data import interval_columns
from assay.report.document import Cell, Document, Figures, ReportTable, Row, Section
from assay.report.numbers import mean_cell, share_cell, share_text

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

__all__ = ["achievements_document"]


def achievements_document(found: AchievementsAnalysis) -> Document:
    """Success rates beside those of people and of chance, times, and what was missing."""
    summary = ReportTable(
        "Achievements by model",
        ["Model", "Achievements", "Crafter score", "Of 22 ever", "Episodes", "Worlds"],
        [
            [
                model.group,
                mean_cell("achievements", model.count),
                Cell("-") if model.n < 2 else mean_cell("", model.score),
                f"{len(model.curves)}",
                f"{model.n:,}",
                f"{model.worlds:,}",
            ]
            for model in found.models
        ],
        "Crafter score: the geometric mean of the success rates, in percent; it grows with the"
        f" number of episodes. {INTERVALS}",
    )
    drawn = Figures(lambda: _drawings(found))
    return build(
        "achievements",
        f"Achievements in {counted(found.basis.episodes, 'episode')}",
        [_finding(found)],
        [
            Section("Success rates", [summary, drawn]),
            Section("Each achievement", [_rates_table(found)], in_terminal=False),
            Section("In short", [_short_table(found)]),
            Section("What was missing", [_missing_table(found)] if found.endings else []),
        ],
        found,
        [
            {
                "model": model.group,
                "achievement": name,
                **interval_columns("rate", model.rates[name]),
                "episodes": model.n,
                "median_step": model.curves[name].median if name in model.curves else None,
                "human": HUMAN.rates[name],
                "random": RANDOM.rates[name],
            }
            for model in found.models
            for name in ACHIEVEMENTS
        ],
    )


def _finding(found: AchievementsAnalysis) -> str:
    best = max(found.models, key=lambda model: model.count.point)
    text = (
        f"{best.group} reaches most: {best.count.point:.1f} achievements an episode"
        if len(found.models) > 1
        else f"{best.group} reaches {best.count.point:.1f} achievements an episode"
    )
    never = [
        name
        for name in EASIEST_FIRST
        if all(not model.rates[name].point for model in found.models)
    ]
    if never:
        easiest = (
            f"{never[0].replace('_', ' ')}, which people reach in"
            f" {share_text(HUMAN.rates[never[0]])} % of episodes"
        )
        if len(never) == 1:
            return f"{text}. Nobody reached {easiest}."
        return f"{text}. Nobody reached {len(never)} of the 22, such as {easiest}."
    return f"{text}; each of the 22 was reached by somebody."


def _rates_table(found: AchievementsAnalysis) -> ReportTable:
    """Success rates by achievement, the easiest for people first."""
    shown = [
        name
        for name in EASIEST_FIRST
        if any(model.rates[name].point for model in found.models) or HUMAN.rates[name] >= 0.5
    ]
    rows: list[Row] = [
        [
            name.replace("_", " "),
            *(_rate(model, name) for model in found.models),
            f"{share_text(HUMAN.rates[name])}%",
            f"{share_text(RANDOM.rates[name])}%",
        ]
        for name in shown
    ]
    return ReportTable(
        "Success rate of each achievement",
        ["Achievement", *(model.group for model in found.models), "Human", "Random"],
        rows,
        f"{INTERVALS} Human and random: Hafner, 2021, {HUMAN.episodes} and"
        f" {RANDOM.episodes:,} whole episodes of the classic world, without a limit of turns."
        f" Left out: {len(ACHIEVEMENTS) - len(shown)} that nobody here reached and few people"
        " do.",
    )


def _short_table(found: AchievementsAnalysis) -> ReportTable:
    """Success rates for a terminal: a line for each that somebody reached."""
    return ReportTable(
        "Success rate of each achievement, and the step by which half of all episodes have it",
        ["Achievement", *(model.group for model in found.models), "Human", "Random"],
        [
            [
                name.replace("_", " "),
                *(
                    Cell(f"{share_text(model.rates[name].point)}%", _median(model, name))
                    for model in found.models
                ),
                *(f"{share_text(of.rates[name])}%" for of in found.references),
            ]
            for name in EASIEST_FIRST
            if any(model.rates[name].point for model in found.models)
        ],
    )


def _median(model: ModelAchievements, name: str) -> str:
    curve = model.curves.get(name)
    return "" if curve is None or curve.median is None else f"by {curve.median:.0f}"


def _rate(model: ModelAchievements, name: str) -> Cell:
    cell = share_cell(model.rates[name])
    return Cell(cell.value, f"{cell.beside} {_median(model, name)}".strip())


def _missing_table(found: AchievementsAnalysis) -> ReportTable:
    """What episodes ended without, and what was missing for it."""
    return ReportTable(
        "What episodes ended without, and what was missing for it",
        ["Model", "Achievement", "Ended without", "Had all it takes", "Else lacked most often"],
        [
            [
                model.group,
                step.achievement.replace("_", " "),
                f"{step.without} of {model.n}",
                f"{step.ready}",
                step.missing or "-",
            ]
            for model in found.models
            for step in model.next_steps[:3]
        ],
        "By the rules of the world: tools, materials, a table that was placed. Of each model"
        " the three that people find easiest.",
    )


def _drawings(found: AchievementsAnalysis) -> "Iterator[Drawing]":
    """The bar chart, and the times."""
    from assay.report.figures.achievements import (
        RateRow,
        UnlockLine,
        rate_bars,
        unlock_curves,
    )

    models = sorted(found.models, key=lambda model: -model.count.point)
    yield rate_bars(
        [RateRow(model.group, model.rates, model.n) for model in models],
        EASIEST_FIRST,
        {
            f"{reference.name} (n = {reference.episodes:,})": reference.rates
            for reference in found.references
        },
    )

    # Those say most that some reach late, and that models differ in.
    def telling(name: str) -> float:
        rates = [model.rates[name].point for model in models]
        return sum(min(rate, 1 - rate) for rate in rates) + max(rates) - min(rates)

    reached = [name for name in EASIEST_FIRST if any(name in model.curves for model in models)]
    chosen = sorted(sorted(reached, key=telling, reverse=True)[:6], key=EASIEST_FIRST.index)
    last = max(
        (
            step
            for model in models
            for curve in model.curves.values()
            for step in (*curve.steps, *(mark.step for mark in curve.checkpoints))
        ),
        default=0.0,
    )
    panels: dict[str, Any] = {
        name: [
            UnlockLine(
                model.group,
                model.curves[name].steps,
                model.curves[name].shares,
                model.curves[name].checkpoints,
                last,
                model.n,
            )
            for model in models[:5]
            if name in model.curves
        ]
        for name in chosen
    }
    if panels:
        yield unlock_curves({name: lines for name, lines in panels.items() if lines})

"""Success rates and unlock times of achievements, and missing requirements at the end."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from assay.analyses.deaths import Ending
from assay.analyses.episodes import (
    INTERVALS,
    LEVEL,
    Basis,
    EpisodeFacts,
    analysis_document,
    basis_of,
    build,
    by_group,
    cause_of,
    completed,
    mean_over,
    world_of,
)
from assay.core.text import counted
from assay.crafter.rules import (
    ACHIEVEMENTS,
    COLLECT,
    EASIEST_FIRST,
    HUMAN,
    MAKE,
    PLACE,
    RANDOM,
    REFERENCES,
    Reference,
)
from assay.errors import UsageError
from assay.judge.describe import score_of
from assay.report.document import Cell, Document, Figures, ReportTable, Row, Section
from assay.report.files import interval_columns
from assay.report.numbers import mean_cell, share_cell, share_text
from assay.stats.intervals import Interval
from assay.stats.survival import cumulative_incidence, median_time

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_CHECKPOINTS: Final = 8


class UnlockShare(NamedTuple):
    """Share of episodes that had unlocked an achievement by a step."""

    step: int
    share: Interval


@dataclass(frozen=True, slots=True)
class UnlockCurve:
    """Share of episodes that have unlocked an achievement, as a function of steps."""

    steps: tuple[float, ...]
    """Steps at which the share rises."""
    shares: tuple[float, ...]
    """Share from each of these steps on (Aalen-Johansen): deaths compete, limits censor."""
    median: float | None
    """Step by which half of all episodes have unlocked it; None if that never happens."""
    checkpoints: tuple[UnlockShare, ...]
    """Shares with intervals, up to the step at which the first episode was cut off."""


class NextStep(NamedTuple):
    """An achievement that some episodes did not unlock."""

    achievement: str
    without: int
    """Number of episodes without it."""
    ready: int
    """Number of those that met all requirements by the rules, so that only the action was
    missing."""
    missing: str
    """Most frequent missing requirements of the others; empty if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAchievements:
    """Achievements of one model."""

    group: str
    n: int
    worlds: int
    count: Interval
    """Number of distinct achievements per episode."""
    score: Interval
    """Crafter score in percent: the geometric mean of success rates."""
    rates: Mapping[str, Interval]
    """Share of episodes that unlocked each achievement."""
    curves: Mapping[str, UnlockCurve]
    """Curves of the achievements that at least one episode unlocked."""
    next_steps: tuple[NextStep, ...]
    """Achievements that some episodes did not unlock, the easiest for people first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AchievementsAnalysis:
    """Achievements of all models."""

    basis: Basis
    models: tuple[ModelAchievements, ...]
    references: tuple[Reference, ...]
    endings: int
    """Number of episodes replayed to find missing requirements."""


def analyse_achievements(
    facts: Sequence[EpisodeFacts], endings: Mapping[str, Ending]
) -> AchievementsAnalysis:
    """Compute success rates, times to unlock, and missing requirements.

    Facts need no steps; `endings` has the replayed episodes, by session.

    Raises:
        UsageError: No episode is from an environment with achievements.
    """
    used = [one for one in completed(facts) if one.has_achievements]
    if not used:
        tasks = ", ".join(sorted({one.row.task for one in facts})[:3])
        raise UsageError(
            f"these episodes have no achievements: their task is {tasks}, and no step of them"
            " unlocked one; 'assay compare' and 'assay analyze actions' read other tasks too"
        )
    notes = []
    limits = sorted({one.row.stop_reason for one in used if _is_cut_off(one)})
    if limits:
        notes.append(
            f"Some episodes were cut off ({', '.join(limits[:4])}): their rates are those"
            " within these limits. People and the random policy had none."
        )
    if not endings:
        notes.append(
            "None of these episodes can be played again, so that nobody knows what was missing."
        )
    elif len(endings) < len(used):
        notes.append(f"What was missing is from {len(endings)} of {len(used)} episodes.")
    return AchievementsAnalysis(
        basis=basis_of([one for one in facts if one.has_achievements], *notes),
        models=tuple(
            _model(name, episodes, endings) for name, episodes in by_group(used).items()
        ),
        references=REFERENCES,
        endings=len(endings),
    )


def _is_cut_off(facts: EpisodeFacts) -> bool:
    """Return whether the episode ended without a death, so that it could have continued."""
    return cause_of(facts) is None


def _model(
    name: str, episodes: Sequence[EpisodeFacts], endings: Mapping[str, Ending]
) -> ModelAchievements:
    unlocked = np.array(
        [[name in one.row.achievements for name in ACHIEVEMENTS] for one in episodes]
    )
    worlds = [world_of(one) for one in episodes]
    counts = [float(line.sum()) for line in unlocked]
    score = Interval(math.nan, math.nan, math.nan)
    if len(episodes) > 1:
        score = score_of(unlocked, worlds, LEVEL).interval
    rates = {
        achievement: mean_over(
            episodes, unlocked[:, place].astype(float).tolist(), f"unlocked/{achievement}"
        )
        for place, achievement in enumerate(ACHIEVEMENTS)
    }
    return ModelAchievements(
        group=name,
        n=len(episodes),
        worlds=len(set(worlds)),
        count=mean_over(episodes, counts, "achievements"),
        score=score,
        rates=rates,
        curves={
            achievement: _curve(episodes, achievement)
            for achievement, rate in rates.items()
            if rate.point
        },
        next_steps=_next_steps([one for one in episodes if one.id in endings], endings),
    )


def _curve(episodes: Sequence[EpisodeFacts], achievement: str) -> UnlockCurve:
    steps = [one.row.achievements.get(achievement) for one in episodes]
    times = [
        float(one.row.steps if step is None else step)
        for one, step in zip(episodes, steps, strict=True)
    ]
    reached = [step is not None for step in steps]
    censored = [
        step is None and _is_cut_off(one) for one, step in zip(episodes, steps, strict=True)
    ]
    found = cumulative_incidence(times, reached, censored)
    median = median_time(times, reached, censored)
    cut = [time for time, open_ in zip(times, censored, strict=True) if open_]
    last = min(cut, default=max(times))
    marks = sorted({round(last * part / _CHECKPOINTS) for part in range(1, _CHECKPOINTS + 1)})
    return UnlockCurve(
        tuple(found.times.tolist()),
        tuple(found.shares.tolist()),
        None if math.isnan(median) else median,
        tuple(
            UnlockShare(
                mark,
                mean_over(
                    episodes,
                    [float(step is not None and step <= mark) for step in steps],
                    f"unlocked/{achievement}",
                ),
            )
            for mark in marks
            if mark
        ),
    )


def _next_steps(
    episodes: Sequence[EpisodeFacts], endings: Mapping[str, Ending]
) -> tuple[NextStep, ...]:
    found = []
    for name in EASIEST_FIRST:
        missing = Counter(
            " and ".join(lacking(name, endings[one.id].inventory, one.row.achievements))
            for one in episodes
            if name not in one.row.achievements
        )
        ready = missing.pop("", 0)
        most = missing.most_common(1)[0][0] if missing else ""
        if ready or missing:
            found.append(NextStep(name, ready + missing.total(), ready, most))
    return tuple(found)


def lacking(
    achievement: str, inventory: Mapping[str, int], unlocked: Mapping[str, int]
) -> list[str]:
    """Return the missing requirements for an achievement; resources to be found do not count.

    Args:
        achievement: One of the 22.
        inventory: Items of the player.
        unlocked: Achievements so far, which show whether a table was ever placed.
    """
    verb, _, thing = achievement.partition("_")
    needs: list[str] = []
    if verb == "collect":
        tool = next(rule.tool for rule in COLLECT.values() if rule.item == thing)
        needs += [tool.replace("_", " ")] if tool and not inventory.get(tool) else []
    elif verb == "place":
        needs += _items(PLACE[thing].uses, inventory)
    elif verb == "make":
        needs += _items(MAKE[thing].uses, inventory)
        needs += [near for near in MAKE[thing].nearby if f"place_{near}" not in unlocked]
    elif achievement == "eat_plant" and "place_plant" not in unlocked:
        needs.append("a plant of its own")
    return needs


def _items(uses: Mapping[str, int], inventory: Mapping[str, int]) -> list[str]:
    return [
        f"{count - inventory.get(item, 0)} {item}"
        for item, count in uses.items()
        if inventory.get(item, 0) < count
    ]


@analysis_document.register
def _document(found: AchievementsAnalysis) -> Document:
    """Build the report: success rates, unlock times, and missing requirements."""
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
    """Build the table of success rates, with the achievement easiest for people first."""
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
    """Build the table for a terminal: one line per achievement that was unlocked."""
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
    return Cell(cell.value, f"{cell.detail} {_median(model, name)}".strip())


def _missing_table(found: AchievementsAnalysis) -> ReportTable:
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
    """Yield the bar chart and the unlock curves."""
    from assay.report.figures.achievements import (
        RateRow,
        UnlockLine,
        draw_rate_bars,
        draw_unlock_curves,
    )

    models = sorted(found.models, key=lambda model: -model.count.point)
    yield draw_rate_bars(
        [RateRow(model.group, model.rates, model.n) for model in models],
        EASIEST_FIRST,
        {
            f"{reference.name} (n = {reference.episodes:,})": reference.rates
            for reference in found.references
        },
    )

    # The most informative ones: unlocked in some episodes only, or different between models.
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
        yield draw_unlock_curves({name: lines for name, lines in panels.items() if lines})

"""Firing rates of hooks: by model, by turn, jointly with other hooks, and by action."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from assay.analyses.episodes import (
    AMOUNT,
    COUNT,
    INTERVALS,
    LEVEL,
    SHARE,
    Basis,
    EpisodeFacts,
    analysis_document,
    basis_of,
    build,
    by_group,
    cause_of,
    completed,
    mean_over,
    percent,
    turn_bins,
)
from assay.core.text import counted
from assay.errors import UsageError
from assay.report.document import Cell, Document, Figures, ReportTable, Row, Section
from assay.report.files import interval_columns
from assay.report.numbers import mean_cell, share_cell
from assay.stats.intervals import Interval
from assay.stats.multiplicity import benjamini_hochberg
from assay.stats.shares import fisher_exact
from assay.stats.survival import median_time
from assay.store.load import HookFiring

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_BINS: Final = 10
_ACTIONS: Final = 4


class TurnRate(NamedTuple):
    """Firing rate of a hook in a range of turns."""

    first: int
    """First turn of the range, counted from 1."""
    last: int
    rate: Interval
    """Firings per turn, over episodes that reached these turns."""
    episodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOfModel:
    """One hook in the episodes of one model."""

    group: str
    n: int
    fired: Interval
    """Share of episodes in which it fired."""
    per_episode: Interval
    """Number of firings per episode."""
    turns_per_firing: float | None
    """Turns (decisions, with their tool calls) per firing; None if it never fired."""
    first_step: float | None
    """Step by which it has fired in half of all episodes; None if that never happens."""
    typical_step: float | None
    """Median step of all firings."""
    by_turn: tuple[TurnRate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSummary:
    """Firings of one hook."""

    name: str
    firings: int
    models: tuple[HookOfModel, ...]
    actions: tuple[tuple[str, float], ...]
    """Actions it fired on, as shares, the most frequent first; only firings in a step count."""


class Together(NamedTuple):
    """Share of episodes with one hook in which another hook fires, too."""

    given: str
    other: str
    share: float
    """Share of the episodes with `given` that also have `other`."""
    episodes: int
    """Number of episodes with `given`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksAnalysis:
    """Firings of all hooks."""

    basis: Basis
    hooks: tuple[HookSummary, ...]
    """Hooks, the most frequent first."""
    together: tuple[Together, ...]
    actions: Mapping[str, float]
    """Share of each action in all steps, for reference."""


def analyse_hooks(facts: Sequence[EpisodeFacts]) -> HooksAnalysis:
    """Compute the firing rates of all hooks; facts need hooks and steps.

    Raises:
        UsageError: No hook fired at all.
    """
    used = completed(facts)
    counts = Counter(firing.name for one in used for firing in one.hooks)
    if not counts:
        raise UsageError(
            f"no hook fired in these {len(used)} episodes: hooks watch episodes that assay"
            " played in Crafter, or hooks of your own ('assay run --hooks FILE');"
            " 'assay analyze actions' reads imported logs too"
        )
    names = [name for name, _ in counts.most_common()]
    edges = turn_bins(max(one.row.turns for one in used), _BINS)
    played = Counter(action for one in used for action in one.steps.actions)
    return HooksAnalysis(
        basis=basis_of(facts),
        hooks=tuple(
            HookSummary(
                name=name,
                firings=counts[name],
                models=tuple(
                    _of_model(name, group, episodes, edges)
                    for group, episodes in by_group(used).items()
                ),
                actions=_actions(name, used),
            )
            for name in names
        ),
        together=_together(names, used),
        actions={action: n / played.total() for action, n in played.most_common()},
    )


def _of_model(
    name: str,
    group: str,
    episodes: Sequence[EpisodeFacts],
    edges: Sequence[tuple[int, int]],
) -> HookOfModel:
    firings = [[one for one in facts.hooks if one.name == name] for facts in episodes]
    steps = [[one.step for one in mine if one.step is not None] for mine in firings]
    every = [step for mine in steps for step in mine]
    reached = [bool(mine) for mine in steps]
    times = [
        float(min(mine) if mine else max(facts.row.steps, 1))
        for facts, mine in zip(episodes, steps, strict=True)
    ]
    censored = [
        not mine and cause_of(facts) is None
        for facts, mine in zip(episodes, steps, strict=True)
    ]
    first = median_time(times, reached, censored) if any(reached) else math.nan
    total = sum(map(len, firings))
    return HookOfModel(
        group=group,
        n=len(episodes),
        fired=mean_over(episodes, [float(bool(mine)) for mine in firings], SHARE),
        per_episode=mean_over(episodes, [float(len(mine)) for mine in firings], COUNT),
        turns_per_firing=sum(one.row.turns for one in episodes) / total if total else None,
        first_step=None if math.isnan(first) else first,
        typical_step=float(np.median(every)) if every else None,
        by_turn=tuple(_by_turn(episodes, firings, edges)),
    )


def _by_turn(
    episodes: Sequence[EpisodeFacts],
    firings: Sequence[Sequence[HookFiring]],
    edges: Sequence[tuple[int, int]],
) -> list[TurnRate]:
    turns = [[one.turn for one in mine] for mine in firings]
    rates = []
    for first, last in edges:
        there = [place for place, one in enumerate(episodes) if one.row.turns >= first]
        if there:
            values = [
                sum(first <= turn <= last for turn in turns[place])
                / (min(last, episodes[place].row.turns) - first + 1)
                for place in there
            ]
            rate = mean_over([episodes[place] for place in there], values, AMOUNT)
            rates.append(TurnRate(first, last, rate, len(there)))
    return rates


def _actions(name: str, used: Sequence[EpisodeFacts]) -> tuple[tuple[str, float], ...]:
    actions = Counter(
        one.steps.actions[firing.step - 1]
        for one in used
        for firing in one.hooks
        if firing.name == name
        and firing.step is not None
        and 0 < firing.step <= len(one.steps.actions)
    )
    return tuple((action, n / actions.total()) for action, n in actions.most_common(_ACTIONS))


def _together(names: Sequence[str], used: Sequence[EpisodeFacts]) -> tuple[Together, ...]:
    fired = [{firing.name for firing in one.hooks} for one in used]
    pairs = []
    for given in names:
        having = [mine for mine in fired if given in mine]
        pairs += [
            Together(
                given, other, sum(other in mine for mine in having) / len(having), len(having)
            )
            for other in names
            if other != given
        ]
    return tuple(pairs)


@analysis_document.register
def _document(found: HooksAnalysis) -> Document:
    """Build the report: hooks by model and by turn, joint firings, and actions."""
    rows: list[Row] = [
        [
            hook.name,
            model.group,
            share_cell(model.fired),
            mean_cell("", model.per_episode),
            "-" if model.turns_per_firing is None else f"{model.turns_per_firing:,.1f}",
            "-" if model.first_step is None else f"{model.first_step:,.0f}",
            "-" if model.typical_step is None else f"{model.typical_step:,.0f}",
        ]
        for hook in found.hooks
        for model in hook.models
    ]
    often = ReportTable(
        "How often each hook fires",
        ["Hook", "Model", "Episodes", "Per episode", "Turns per", "First step", "Typical step"],
        rows,
        "Turns per: decisions of the model, with their tool calls, for one firing. First step:"
        " by which half of all episodes have had it. Typical step: the median of all firings."
        f" {INTERVALS}",
    )
    what = ReportTable(
        "What hooks fire on",
        ["Hook", "Firings", "Together with", "Actions"],
        [
            [
                hook.name,
                f"{hook.firings:,}",
                _companion(found, hook.name),
                ", ".join(f"{action} {percent(share)}" for action, share in hook.actions[:2])
                or "-",
            ]
            for hook in found.hooks
        ],
        "Actions: of the steps in which it fired. Together: the share of its episodes in which"
        " the other fired too.",
    )
    return build(
        "hooks",
        f"Hooks in {counted(found.basis.episodes, 'episode')}",
        [_finding(found)],
        [
            Section("By turn", [_short_table(found), Figures(lambda: _by_turn_figures(found))]),
            Section("By model", [often], in_terminal=False),
            Section("What they fire on", [what, Figures(lambda: _together_figures(found))]),
        ],
        found,
        [
            {
                "hook": hook.name,
                "model": model.group,
                **interval_columns("fired", model.fired),
                **interval_columns("per_episode", model.per_episode),
                "turns_per_firing": model.turns_per_firing,
                "first_step": model.first_step,
                "typical_step": model.typical_step,
                "episodes": model.n,
            }
            for hook in found.hooks
            for model in hook.models
        ],
    )


def _finding(found: HooksAnalysis) -> str:
    most = found.hooks[0]
    often = most.firings / found.basis.episodes
    text = f"{most.name} fires most often, {often:.1f} times an episode"
    if len(most.models) == 1:
        return f"{text}."

    told = _told_apart(found)
    if told is not None:
        hook, low, high = told
        return (
            f"{text}. {hook.name} tells models apart: it fires in {percent(high.fired.point)}"
            f" of the episodes of {high.group} and {percent(low.fired.point)} of those of"
            f" {low.group}."
        )
    low, high = _ends(most.models, lambda one: one.per_episode.point)
    return (
        f"{text}: {high.per_episode.point:.1f} times with {high.group},"
        f" {low.per_episode.point:.1f} with {low.group}. No hook is shown to tell models apart."
    )


def _told_apart(found: HooksAnalysis) -> tuple[HookSummary, HookOfModel, HookOfModel] | None:
    """Return the hook that two models differ in most, of those in which a difference is shown.

    Fisher's exact test of every hook for every two models, with the false discovery rate over
    all of them at 5 % (Benjamini and Hochberg, 1995). None if no difference is shown.
    """
    candidates = [
        (hook, *_ends(hook.models[i : i + 1] + hook.models[j : j + 1], _fired))
        for hook in found.hooks
        for i, j in combinations(range(len(hook.models)), 2)
    ]
    if not candidates:
        return None
    p_values = []
    for _, *pair in candidates:
        # Episodes in one world may repeat each other, so that the worlds count.
        units = [min(model.n, found.basis.worlds) for model in pair]
        (low, n), (high, m) = (
            (round(_fired(model) * unit), unit) for model, unit in zip(pair, units, strict=True)
        )
        p_values.append(fisher_exact(low, n, high, m))
    shown = [
        candidate
        for candidate, p_value in zip(candidates, benjamini_hochberg(p_values), strict=True)
        if p_value < 1 - LEVEL
    ]
    return max(shown, key=lambda one: _fired(one[2]) - _fired(one[1]), default=None)


def _fired(model: HookOfModel) -> float:
    return model.fired.point


def _ends(
    models: Sequence[HookOfModel], of: Callable[[HookOfModel], float]
) -> tuple[HookOfModel, HookOfModel]:
    return min(models, key=of), max(models, key=of)


def _short_table(found: HooksAnalysis) -> ReportTable:
    models = found.hooks[0].models
    return ReportTable(
        "Firings per episode, and the share of episodes in which a hook fires",
        ["Hook", *(model.group for model in models)],
        [
            [
                hook.name,
                *(
                    Cell(f"{model.per_episode.point:.1f}", percent(model.fired.point))
                    for model in hook.models
                ),
            ]
            for hook in found.hooks
        ],
    )


def _companion(found: HooksAnalysis, name: str) -> str:
    pairs = [pair for pair in found.together if pair.given == name]
    if not pairs:
        return "-"
    best = max(pairs, key=lambda pair: pair.share)
    return f"{best.other} {percent(best.share)}"


def _by_turn_figures(found: HooksAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.panels import PanelLine, draw_line_panels

    yield draw_line_panels(
        {
            hook.name: [
                PanelLine(
                    model.group,
                    [((rate.first + rate.last) / 2, rate.rate) for rate in model.by_turn],
                    model.n,
                )
                for model in hook.models
            ]
            for hook in found.hooks
        },
        title="How often hooks fire, by turn",
        xlabel="turn",
        ylabel="per 100 turns",
        note="Firings in 100 turns, over the episodes that came to these turns; bars: 95 %"
        " intervals over worlds; n: episodes.",
        scale=100,
    )


def _together_figures(found: HooksAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.panels import draw_share_matrix

    names = [hook.name for hook in found.hooks][:10]
    if len(names) < 2:
        return
    shares = {(pair.given, pair.other): pair.share for pair in found.together}
    yield draw_share_matrix(
        names,
        names,
        [[shares.get((given, other), 1.0) for other in names] for given in names],
        title="Hooks that fire in the same episodes",
        note="Of the episodes in which the hook of a line fired, the percentage in which that"
        " of a column fired too.",
        names=("if it fired", "also fired"),
    )

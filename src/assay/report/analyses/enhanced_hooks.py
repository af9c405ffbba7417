"""The report of declared hooks."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay._util.text import counted
from assay.analyses.enhanced_hooks import EnhancedHooksAnalysis, HookEffect, Sign
from assay.report.analyses.common import build
from assay.report.data import interval_columns
from assay.report.document import (
    Document,
    Figures,
    Items,
    ReportTable,
    Section,
    Tone,
    Words,
)
from assay.report.numbers import mean_cell, p_number, share_cell

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

__all__ = ["enhanced_hooks_document"]

_ASSOCIATION = (
    "These are associations, not effects: episodes in which a hook fired may differ in other"
    " ways. Only a comparison of versions, 'assay compare', shows an effect."
)


def enhanced_hooks_document(found: EnhancedHooksAnalysis) -> Document:
    """How often each fires, what goes with it, and what follows."""
    at = found.landmark
    often = ReportTable(
        f"Declared hooks, and {found.result} after step {at}",
        ["Hook", "Firings", "First at", "Fired by then", "Fired less not fired", "p", "Shows"],
        [
            [
                hook.name,
                f"{hook.firings:,}",
                "-" if hook.typical_step is None else f"step {hook.typical_step:.0f}",
                f"{hook.fired_by} of {hook.alive}",
                "-"
                if math.isnan(hook.difference.point)
                else mean_cell("", hook.difference, signed=True),
                "-" if math.isnan(hook.p_value) else p_number(hook.p_value),
                hook.sign.value,
            ]
            for hook in found.hooks
        ],
        f"Episodes still going on at step {at}, parted by whether the hook had fired; what they"
        " reach after it is compared within models, over worlds. p is adjusted for all"
        f" {len(found.hooks)} hooks (Holm). First at: the median first firing.",
    )
    names = found.basis.groups
    by_model = ReportTable(
        "Share of episodes in which each hook fired, by model",
        ["Hook", *names, "Evaluated in"],
        [
            [
                hook.name,
                *(
                    share_cell(hook.fired[name]) if name in hook.fired else "-"
                    for name in names
                ),
                f"{hook.episodes:,}",
            ]
            for hook in found.hooks
        ],
    )
    follows = Items(_follows(found), "What follows")
    return build(
        "enhanced-hooks",
        f"Declared hooks in {counted(found.basis.episodes, 'episode')}",
        [_finding(found)],
        [
            Section("What goes with a hook", [often, Figures(lambda: _forest(found))]),
            Section("What follows", [follows, Words(_ASSOCIATION, Tone.WARNING)]),
            Section("By model", [by_model], in_terminal=False),
        ],
        found,
        [
            {
                "hook": hook.name,
                "firings": hook.firings,
                "alive_at_landmark": hook.alive,
                "fired_by_landmark": hook.fired_by,
                **interval_columns("difference", hook.difference),
                "p_adjusted": hook.p_value,
                "shows": hook.sign.value,
                "recommendation": hook.recommendation,
                "landmark": at,
            }
            for hook in found.hooks
        ],
    )


def _follows(found: EnhancedHooksAnalysis) -> list[str]:
    """What follows from each hook; hooks of which the same is to be said stand together."""
    names: dict[str, list[str]] = {}
    for hook in found.hooks:
        names.setdefault(hook.recommendation, []).append(hook.name)
    return [f"{', '.join(those)}: {said}" for said, those in names.items()]


def _finding(found: EnhancedHooksAnalysis) -> str:
    clear = [hook for hook in found.hooks if hook.sign in (Sign.MORE, Sign.FEWER)]
    if not clear:
        return (
            f"For none of the {len(found.hooks)} hooks do the data tell whether firing by step"
            f" {found.landmark} goes with more or fewer {found.result} after it."
        )

    def said(hook: HookEffect) -> str:
        return (
            f"a firing of {hook.name} goes with"
            f" {abs(hook.difference.point):.1f} {hook.sign.value}"
        )

    rest = len(found.hooks) - len(clear)
    text = f"By step {found.landmark}, {' and '.join(map(said, clear))} {found.result} after it"
    return f"{text}; of the other {rest} the data do not tell." if rest else f"{text}."


def _forest(found: EnhancedHooksAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.intervals import ForestRow, forest
    from assay.report.figures.style import listed

    rows = [
        ForestRow(hook.name, hook.difference, f"{hook.fired_by} of {hook.alive} fired")
        for hook in found.hooks
        if not math.isnan(hook.difference.point)
    ]
    left_out = [hook.name for hook in found.hooks if math.isnan(hook.difference.point)]
    meaning = "95 % interval of fired less not fired, within models, over worlds"
    meaning += "; an association, not an effect"
    if left_out:
        meaning += f". Not drawn, too few episodes to compare: {listed(left_out)}"
    if rows:
        yield forest(
            rows,
            f"difference in later {found.result}",
            meaning=meaning,
            title=f"What goes with a hook that fired by step {found.landmark}",
        )

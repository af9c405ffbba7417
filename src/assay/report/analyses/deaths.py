"""The report of what episodes died of."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from assay._util.text import counted
from assay.analyses.deaths import DeathsAnalysis
from assay.judge.subjects import ordered_causes
from assay.report.analyses.common import INTERVALS, build, percent
from assay.report.data import interval_columns
from assay.report.document import Document, Figures, ReportTable, Section
from assay.report.numbers import share_cell

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

__all__ = ["deaths_document"]

_KILLED = {"zombie": "by a zombie", "arrow": "by an arrow", "lava": "in lava"}
"""What is not said with `of`, as of hunger, thirst and fatigue."""


def deaths_document(found: DeathsAnalysis) -> Document:
    """What of, when, and what the player was doing."""
    last = ReportTable(
        "The last steps, by cause of death",
        [
            "Died of",
            "Deaths",
            "Asleep",
            "By night",
            "Health 10 steps before",
            "Low",
            "Did most",
        ],
        [
            [
                dying.cause,
                f"{dying.episodes}",
                percent(dying.asleep),
                percent(dying.night),
                f"{dying.health[-11]:.1f}" if len(dying.health) > 10 else "-",
                _most(dying.low.items()),
                _most(dying.actions),
            ]
            for dying in found.dying
            if dying.episodes
        ],
        "From episodes that were played again. Asleep and what was done: within the last ten"
        " steps, the most frequent. Health before: of 9, ten steps before death. Low: the vital"
        " that was most often at 3 or less of 9 at the end.",
    )
    return build(
        "deaths",
        f"Deaths in {counted(found.basis.episodes, 'episode')}",
        [_finding(found)],
        [
            Section(
                "What episodes died of",
                [_deaths_table(found), Figures(lambda: _drawings(found))],
            ),
            Section("The last steps", [last] if last.rows else []),
        ],
        found,
        [
            {
                "model": model.group,
                "cause": cause,
                **interval_columns("share", model.causes.get(cause)),
                "episodes": model.n,
            }
            for model in found.models
            for cause in _causes(found)
        ],
    )


def _most(shares: Iterable[tuple[str, float]]) -> str:
    name, share = max(shares, key=lambda one: one[1], default=("", 0.0))
    return f"{name} {percent(share)}" if share else "-"


def _causes(found: DeathsAnalysis) -> list[str]:
    return ordered_causes(cause for model in found.models for cause in model.causes)


def _finding(found: DeathsAnalysis) -> str:
    if not found.deaths:
        return "Nobody died: every episode was cut off or came to its end alive."
    first = found.dying[0]
    share = sum(
        model.causes[first.cause].point * model.n
        for model in found.models
        if first.cause in model.causes
    )
    text = (
        f"{found.deaths} of {found.basis.episodes} episodes ended in death, most often"
        f" {_KILLED.get(first.cause, f'of {first.cause}')} ({round(share)})"
    )
    if first.episodes and first.asleep >= 0.5:
        text += f"; {percent(first.asleep)} of these slept within the last ten steps"
    return f"{text}."


def _deaths_table(found: DeathsAnalysis) -> ReportTable:
    """The share of episodes that died of each cause, by model."""
    causes = _causes(found)
    return ReportTable(
        "Episodes that died, by cause",
        ["Model", "Died", *(cause.capitalize() for cause in causes), "Median step", "Episodes"],
        [
            [
                model.group,
                share_cell(model.died),
                *(
                    percent(model.causes[cause].point) if cause in model.causes else "0%"
                    for cause in causes
                ),
                "-" if model.median_step is None else f"{model.median_step:,.0f}",
                f"{model.n:,}",
            ]
            for model in found.models
        ],
        f"Shares of all episodes; median step: of the deaths. {INTERVALS}",
    )


def _drawings(found: DeathsAnalysis) -> "Iterator[Drawing]":
    """The causes, how long episodes live, and health before death."""
    from assay.report.figures.deaths import (
        DeathRow,
        HealthLine,
        causes_of_death,
        health_before_death,
        survival,
    )

    rows = [
        DeathRow(
            model.group,
            model.n,
            model.died,
            {cause: share.point for cause, share in model.causes.items()},
            model.steps,
            model.shares,
            model.last,
        )
        for model in found.models
    ]
    if not found.deaths:
        return
    yield causes_of_death(rows, _causes(found))
    yield survival(rows)
    lines = [HealthLine(one.cause, one.episodes, one.health) for one in found.dying]
    if any(line.health for line in lines):
        yield health_before_death(lines)

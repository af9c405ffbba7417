"""Figures of deaths: causes, times, and health before death."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from matplotlib.axes import Axes

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.style import (
    INK,
    clean_text,
    draw_legend_above,
    format_compact,
    format_interval,
    format_number,
    group_style,
    isolate_direction,
    join_texts,
    new_figure,
    shorten_names,
    shorten_text,
    use_figure_style,
)
from assay.stats.intervals import Interval

_MAX_MODELS: Final = 12


class DeathRow(NamedTuple):
    """Causes of death of one model."""

    name: str
    n: int
    died: Interval
    causes: Mapping[str, float]
    """Proportions of all episodes."""
    steps: Sequence[float] = ()
    """Steps at which the proportion of dead episodes rises."""
    shares: Sequence[float] = ()
    last: float = 0.0


@use_figure_style()
def draw_causes_of_death(rows: Sequence[DeathRow], causes: Sequence[str]) -> Drawing:
    """Draw the proportion of episodes that died of each cause, for up to twelve models."""
    if not causes:
        raise UsageError("nothing to draw: no episode ended in death")
    drawn = rows[:_MAX_MODELS]
    figure, [ax] = new_figure(1.35 + 0.45 * len(drawn))
    left = [0.0] * len(drawn)
    for index, cause in enumerate(causes):
        style = group_style(index)
        widths = [100 * row.causes.get(cause, 0.0) for row in drawn]
        ax.barh(
            range(len(drawn)),
            widths,
            0.62,
            left=left,
            color=style.colour,
            alpha=0.7,
            hatch=style.hatch,
            edgecolor=INK,
            linewidth=0.5,
            label=clean_text(cause),
        )
        for place, width in enumerate(widths):
            if width >= 9:
                x = left[place] + width / 2
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.8}
                ax.text(
                    x, place, f"{width:.0f}", ha="center", va="center", fontsize=9, bbox=box
                )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for place, row in enumerate(drawn):
        if row.died.known:
            ends = [100 * row.died.low, 100 * row.died.high]
            ax.plot(ends, [place + 0.38] * 2, "|-", color=INK, lw=1.1, ms=5)
    names = shorten_names(row.name for row in drawn)
    ax.set_yticks(
        range(len(drawn)),
        [
            f"{isolate_direction(name)}\nn = {row.n}"
            for name, row in zip(names, drawn, strict=True)
        ],
    )
    ax.set_ylim(len(drawn) - 0.4, -0.6)
    ax.set_xlim(0, 101)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("episodes that died (%)")
    draw_legend_above(ax, min(4, len(causes)))
    title = "Causes of death"
    descriptions = [
        f"{shorten_text(row.name)}: {format_interval(row.died, 100)} percent died"
        + "".join(f", {cause} {100 * share:.0f}" for cause, share in row.causes.items())
        for row in rows
    ]
    return Drawing(
        title,
        f"{title}. {join_texts(descriptions)}.",
        "Proportions of all episodes, by cause; lines below the bars: 95 % intervals over"
        " worlds of all deaths together; n: episodes.",
        figure,
        ReportTable(
            "share of episodes in percent",
            ("model", "n", "died", *causes),
            [
                (
                    clean_text(row.name),
                    str(row.n),
                    format_interval(row.died, 100),
                    *(format_number(100 * row.causes.get(cause, 0.0)) for cause in causes),
                )
                for row in rows
            ],
        ),
    )


@use_figure_style()
def draw_survival(rows: Sequence[DeathRow]) -> Drawing:
    """Draw the proportion of episodes still alive, by step."""
    if not rows:
        raise UsageError("nothing to draw: no episodes")
    figure, [ax] = new_figure(2.9)
    for place, row in enumerate(rows[:_MAX_MODELS]):
        style = group_style(place)
        last = row.shares[-1] if row.shares else 0.0
        ax.step(
            [0, *row.steps, row.last],
            [100, *(100 - 100 * share for share in row.shares), 100 - 100 * last],
            where="post",
            color=style.colour,
            linestyle=style.line,
            label=f"{isolate_direction(shorten_text(row.name))}  (n = {row.n})",
        )
    ax.set_ylim(-3, 103)
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(format_compact)
    ax.set_xlabel("step")
    ax.set_ylabel("still alive (%)")
    draw_legend_above(ax, 2)
    title = "Survival of episodes"
    descriptions = [
        f"{shorten_text(row.name)}: {100 - 100 * (row.shares or [0.0])[-1]:.0f} percent alive"
        f" at step {format_number(row.last)}"
        for row in rows
    ]
    return Drawing(
        title,
        f"{title}. {join_texts(descriptions)}.",
        "Kaplan-Meier estimate: episodes truncated alive are censored; a line ends with the"
        " longest episode.",
        figure,
    )


class HealthLine(NamedTuple):
    """Mean health before deaths of one cause."""

    cause: str
    n: int
    health: Sequence[float]
    """Health in the last steps, in order."""


@use_figure_style()
def draw_health_before_death(lines: Sequence[HealthLine]) -> Drawing:
    """Draw the mean health in the last steps, by cause of death."""
    lines = [line for line in lines if line.health]
    if not lines:
        raise UsageError("nothing to draw: no death could be replayed")
    figure, [ax] = new_figure(2.9)
    for place, line in enumerate(lines):
        _draw_health(ax, line, place)
    ax.set_ylim(-0.3, 9.3)
    ax.set_xlabel("steps before death")
    ax.set_ylabel("mean health (of 9)")
    draw_legend_above(ax, 3)
    title = "Health before death"
    descriptions = [
        f"{line.cause}: {line.health[0]:.1f} at {len(line.health) - 1} steps before death"
        for line in lines
    ]
    return Drawing(
        title,
        f"{title}. {join_texts(descriptions)}.",
        "Means over deaths of one cause, from replayed episodes; n: deaths.",
        figure,
    )


def _draw_health(ax: Axes, line: HealthLine, place: int) -> None:
    style = group_style(place)
    ax.plot(
        range(-len(line.health) + 1, 1),
        line.health,
        style.line,
        color=style.colour,
        marker=style.marker,
        markevery=6,
        ms=5,
        label=f"{clean_text(line.cause)}  (n = {line.n})",
    )

"""Figures of achievements: how often and how soon each is unlocked."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from matplotlib.axes import Axes

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing, link_to
from assay.report.figures.style import (
    GREY,
    INK,
    clean_text,
    draw_grid_legend,
    draw_legend_above,
    format_compact,
    format_interval,
    format_number,
    group_style,
    isolate_direction,
    join_texts,
    new_figure,
    new_grid,
    shorten_names,
    shorten_text,
    use_figure_style,
)
from assay.stats.intervals import Interval

_MAX_BARS: Final = 5
_MAX_PANELS: Final = 6


class RateRow(NamedTuple):
    """Proportion of one model's episodes that reached each achievement."""

    name: str
    rates: Mapping[str, Interval]
    """Between 0 and 1."""
    n: int


@use_figure_style()
def draw_rate_bars(
    rows: Sequence[RateRow],
    order: Sequence[str],
    references: Mapping[str, Mapping[str, float]],
    *,
    title: str = "Success rate of each achievement",
    label: str = "episodes that reached it (%)",
    what: str = "shares of episodes",
) -> Drawing:
    """Draw proportions as bars, grouped by achievement or action.

    Args:
        rows: One per model; the first five are drawn.
        order: The groups from top to bottom: achievements or actions.
        references: Published rates by name; drawn as marks, two at most.
        title: Title of the figure.
        label: Label of the axis.
        what: Description of the bars.
    """
    if not rows:
        raise UsageError(f"nothing to draw for {title!r}: there are no rows")
    nonzero = [row for row in rows if any(rate.point for rate in row.rates.values())] or rows
    drawn = nonzero[:_MAX_BARS]
    thick = 0.84 / len(drawn)
    figure, [ax] = new_figure(1.0 + len(order) * (0.14 + 0.085 * len(drawn)))
    handles: list[Any] = []
    names = shorten_names((row.name for row in drawn), 40)
    for index, (row, name) in enumerate(zip(drawn, names, strict=True)):
        # Styled by position among all rows, so that a model looks the same in every figure.
        style = group_style(rows.index(row))
        places = [place + (index - (len(drawn) - 1) / 2) * thick for place in range(len(order))]
        bars = ax.barh(
            places,
            [100 * row.rates[achievement].point for achievement in order],
            thick * 0.92,
            color=style.colour,
            alpha=0.65,
            hatch=style.hatch,
            edgecolor=INK,
            linewidth=0.4,
            label=f"{isolate_direction(name)}  (n = {row.n})",
        )
        handles.append(bars)
        for bar, achievement in zip(bars, order, strict=True):
            link_to(bar, achievement=achievement, subject=row.name)
        for place, achievement in zip(places, order, strict=True):
            rate = row.rates[achievement]
            if rate.known:
                # A missing bar already shows a rate of 0, so its interval is thin.
                ink, thin = (INK, 1.0) if rate.point else (style.colour, 0.5)
                ends = [100 * rate.low, 100 * rate.high]
                ax.plot(ends, [place] * 2, "-", color=ink, lw=thin)
    for mark, (name, rates) in zip(("D", "x"), references.items(), strict=False):
        handles += ax.plot(
            [100 * rates[achievement] for achievement in order],
            range(len(order)),
            mark,
            color=INK if mark == "D" else GREY,
            mfc="white",
            ms=5,
            mew=1.4,
            linestyle="none",
            zorder=5,
            label=clean_text(name),
        )
    ax.set_yticks(range(len(order)), [name.replace("_", " ") for name in order])
    ax.set_ylim(len(order) - 0.4, -0.6)
    shown = [row.rates[name] for row in drawn for name in order]
    longest = 100 * max(rate.high if rate.known else rate.point for rate in shown)
    ax.set_xlim(-1.5 if references else 0, 101.5 if references else min(101.5, 1.04 * longest))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(label)
    draw_legend_above(ax, 2, handles=handles)
    more = (
        f" The first {len(drawn)} of {len(nonzero)} models."
        if len(drawn) < len(nonzero)
        else ""
    )
    zero = [row.name for row in rows if row not in nonzero]
    more += f" All zero: {join_texts(map(shorten_text, zero))}." if zero else ""
    descriptions = [_describe_best_rates(row) for row in rows]
    return Drawing(
        title,
        f"{title}. {join_texts(descriptions)}.",
        f"Bars: {what}; lines: 95 % intervals over worlds; n: episodes.{more}",
        figure,
        ReportTable(
            f"{title}, in percent",
            ("", *(clean_text(row.name) for row in rows), *map(clean_text, references)),
            [
                (
                    achievement,
                    *(format_interval(row.rates[achievement], 100) for row in rows),
                    *(format_number(100 * rates[achievement]) for rates in references.values()),
                )
                for achievement in order
            ],
        ),
    )


def _describe_best_rates(row: RateRow) -> str:
    reached = sorted(row.rates, key=lambda name: -row.rates[name].point)[:4]
    shares = ", ".join(f"{name} {100 * row.rates[name].point:.0f} percent" for name in reached)
    return f"{shorten_text(row.name)}: {shares}"


class UnlockLine(NamedTuple):
    """Proportion of one model's episodes that had an achievement, by step."""

    name: str
    steps: Sequence[float]
    shares: Sequence[float]
    marks: Sequence[tuple[float, Interval]]
    """Proportions with intervals at some steps."""
    last: float
    """The last step of any episode."""
    n: int


@use_figure_style()
def draw_unlock_curves(panels: Mapping[str, Sequence[UnlockLine]]) -> Drawing:
    """Draw the proportion of episodes that reached an achievement by a step, in six panels."""
    if not panels:
        raise UsageError("nothing to draw: no episode reached an achievement")
    drawn = dict(list(panels.items())[:_MAX_PANELS])
    lines_of = {line.name: line for lines in panels.values() for line in lines}
    places = {name: place for place, name in enumerate(lines_of)}
    figure, top, axes = new_grid(len(drawn), 1.7, head=0.24 * -(-len(places) // 2))
    for ax, (achievement, lines) in zip(axes, drawn.items(), strict=True):
        for line in lines:
            _draw_line(ax, line, places[line.name])
        ax.set_title(achievement.replace("_", " "))
        ax.set_ylim(-3, 103)
        ax.xaxis.set_major_formatter(format_compact)
    for ax in axes[-2:]:
        ax.set_xlabel("step")
    for ax in axes[::2]:
        ax.set_ylabel("episodes (%)")
    handles = []
    for name, place in places.items():
        style, label = (
            group_style(place),
            f"{isolate_direction(shorten_text(name))}  (n = {lines_of[name].n})",
        )
        handles += top.plot([], [], color=style.colour, linestyle=style.line, label=label)
    draw_grid_legend(top, handles)
    title = "Time to each achievement"
    descriptions = [
        f"{achievement}, {shorten_text(line.name)}:"
        f" {100 * (line.shares or [0])[-1]:.0f} percent"
        for achievement, lines in drawn.items()
        for line in lines
    ]
    return Drawing(
        title,
        f"{title}. At the end: {join_texts(descriptions)}.",
        "Proportion of episodes with the achievement, by step (Aalen-Johansen estimate: death"
        " is a competing event, truncated episodes are censored). Bars: 95 % intervals over"
        " worlds.",
        figure,
        ReportTable(
            "share of episodes in percent, by step",
            ("achievement", "model", "n", "step", "share"),
            [
                (
                    achievement,
                    clean_text(line.name),
                    str(line.n),
                    format_number(step),
                    format_interval(at, 100),
                )
                for achievement, lines in panels.items()
                for line in lines
                for step, at in line.marks
            ],
        ),
    )


def _draw_line(ax: Axes, line: UnlockLine, place: int) -> None:
    style = group_style(place)
    last = line.shares[-1] if line.shares else 0.0
    ax.step(
        [0, *line.steps, line.last],
        [0, *(100 * share for share in line.shares), 100 * last],
        where="post",
        color=style.colour,
        linestyle=style.line,
    )
    for step, share in line.marks[3::4]:
        if share.known:
            ends = [100 * share.low, 100 * share.high]
            # Offset, so that the bars of several models do not hide each other.
            at = step + (place - 1) * 0.012 * line.last
            ax.plot([at] * 2, ends, "-", color=style.colour, lw=1.2, alpha=0.7)

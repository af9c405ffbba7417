"""Figures of worlds: results in each, and maps of some."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from matplotlib.colors import ListedColormap

from assay.errors import UsageError
from assay.report.document import ReportTable
from assay.report.figures.drawing import Drawing
from assay.report.figures.style import (
    GREY,
    clean_text,
    draw_grid_legend,
    draw_legend_above,
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

_MAX_NAMED: Final = 30
"""With more worlds than this, their names do not fit."""
_MAX_WORLDS: Final = 200
_MATERIAL_COLOURS: Final = {
    "outside": "#000000",
    "water": "#56B4E9",
    "grass": "#9BC53D",
    "stone": "#8C8C8C",
    "path": "#C8B79A",
    "sand": "#F0E2A8",
    "tree": "#1B6B2F",
    "lava": "#D55E00",
    "coal": "#222222",
    "iron": "#CC79A7",
    "diamond": "#FFFFFF",
    "table": "#8A6D00",
    "furnace": "#5A3E2B",
}
"""The colours of a map, by material."""
_LEGEND_MATERIALS: Final = (
    *("grass", "tree", "water", "sand", "stone", "path", "coal", "iron", "diamond", "lava"),
)


@use_figure_style()
def draw_results_by_world(
    worlds: Sequence[str], by_model: Mapping[str, Sequence[float]], label: str
) -> Drawing:
    """Draw each model's result in each of the first 200 worlds, the easiest world first.

    A result is NaN if the model did not play the world.
    """
    if not worlds:
        raise UsageError("nothing to draw: no worlds")
    n = min(len(worlds), _MAX_WORLDS)
    figure, [ax] = new_figure(3.4)
    names = shorten_names(by_model, 40)
    table = np.array([list(values)[:n] for values in by_model.values()], float)
    for place in range(n):
        column = table[:, place][~np.isnan(table[:, place])]
        if len(column) > 1:
            ends = [float(column.min()), float(column.max())]
            ax.plot([place] * 2, ends, "-", color="#c8c8c8", lw=1.2, zorder=1)
    for index, (name, values) in enumerate(zip(names, table, strict=True)):
        style = group_style(index)
        ax.plot(
            range(n),
            values,
            style.marker,
            color=style.colour,
            ms=5 if n <= _MAX_NAMED else 3,
            label=f"{isolate_direction(name)}  (n = {int((~np.isnan(values)).sum())})",
        )
        mean = float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")
        ax.axhline(mean, color=style.colour, linestyle=style.line, lw=0.9, alpha=0.7)
    if n <= _MAX_NAMED:
        ax.set_xticks(range(n), [clean_text(world) for world in worlds[:n]])
        if n > 8:
            for tick in ax.get_xticklabels():
                tick.set(rotation=60, ha="right", rotation_mode="anchor", fontsize=8.5)
    else:
        ax.set_xticks([])
    ax.set_xlabel("world, by seed: easiest left" if n <= _MAX_NAMED else "worlds, easiest left")
    ax.set_ylabel(clean_text(label))
    draw_legend_above(ax, 2)
    title = f"{clean_text(label).capitalize()} in each world"
    cut = f" The first {n} of {len(worlds)} worlds." if n < len(worlds) else ""
    descriptions = [
        f"{shorten_text(name)}: from {format_number(float(np.nanmin(values)))} to"
        f" {format_number(float(np.nanmax(values)))}"
        for name, values in zip(by_model, table, strict=True)
        if not np.isnan(values).all()
    ]
    return Drawing(
        title,
        f"{title}. {join_texts(descriptions)}.",
        f"Points: means of a model's episodes in a world; lines: its mean over worlds; n:"
        f" worlds.{cut}",
        figure,
        ReportTable(
            f"{label} by world",
            ("world", *map(clean_text, by_model)),
            [
                (clean_text(world), *(format_number(float(values[place])) for values in table))
                for place, world in enumerate(worlds[:n])
            ],
        ),
    )


class WorldMap(NamedTuple):
    """Map of a world."""

    name: str
    about: str
    """Text below its name."""
    map: Sequence[Sequence[int]]
    """Ids of materials, indexed [x][y]."""
    start: tuple[int, int]


@use_figure_style()
def draw_world_maps(maps: Sequence[WorldMap], materials: Sequence[str]) -> Drawing:
    """Draw maps of up to four worlds, with the start position of the player."""
    if not maps:
        raise UsageError("nothing to draw: no world could be created")
    drawn = maps[:4]
    colours = ListedColormap([_MATERIAL_COLOURS.get(name, GREY) for name in materials])
    figure, top, axes = new_grid(len(drawn), 3.1, head=0.5, sharex=False, sharey=False)
    for ax, world in zip(axes, drawn, strict=True):
        ax.imshow(
            np.array(world.map).T,
            cmap=colours,
            vmin=0,
            vmax=len(materials) - 1,
            interpolation="nearest",
        )
        ax.plot(*world.start, "*", color="white", mec="black", ms=13, mew=1.2)
        ax.set_title(f"{clean_text(world.name)}\n{clean_text(world.about)}", fontsize=9)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.grid(visible=False)
    handles = [
        top.scatter(
            [], [], marker="s", s=60, c=_MATERIAL_COLOURS[name], edgecolors=GREY, label=name
        )
        for name in _LEGEND_MATERIALS
        if name in materials
    ]
    draw_grid_legend(top, handles, 5)
    title = "Maps of the easiest and hardest worlds"
    return Drawing(
        title,
        f"{title}. {join_texts(f'{world.name}: {world.about}' for world in drawn)}.",
        "Star: start of the player. Distances are steps on the shortest path to the nearest"
        " cell of each kind; a cell of stone counts as two.",
        figure,
    )

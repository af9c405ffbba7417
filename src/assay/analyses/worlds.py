"""Influence of the world: results by world, variance shares, and discriminating worlds.

The terrain of a world is the distance from the start to the things a player needs. Steps are
counted for a player who knows the map: one for a free cell, two for a cell of stone or ore,
which has to be dug first. The world is recreated from a recorded episode.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from assay.analyses.episodes import (
    INTERVALS,
    LEVEL,
    Basis,
    EpisodeFacts,
    TaskWorld,
    analysis_document,
    basis_of,
    build,
    by_group,
    completed,
    mean_over,
    world_of,
)
from assay.crafter.rules import AREA, MATERIALS, OBJECTS, TASK, WALKABLE
from assay.crafter.world import World as CrafterWorld
from assay.episodes.replay import Replay
from assay.errors import ReplayError, UsageError
from assay.report.document import Document, Figures, Paragraph, ReportTable, Section, Tone
from assay.report.numbers import (
    format_difference,
    format_number,
    format_value,
    mean_cell,
    share_cell,
    share_text,
)
from assay.stats.intervals import Interval
from assay.stats.variance import VarianceShares, sd_interval, variance_shares
from assay.store.load import load_sessions
from assay.store.store import Store

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

WANTED: Final = ("tree", "water", "cow", "stone", "coal", "iron", "diamond")
"""Things that players need, in order of need."""
_DIG: Final = ("stone", "coal", "iron", "diamond")
_FIRST_OBJECT: Final = len(MATERIALS)


@dataclass(frozen=True, slots=True)
class Terrain:
    """A world at its start."""

    steps: Mapping[str, int | None]
    """Steps to a cell next to the nearest of each; None if there is none or no path to it."""
    map: tuple[tuple[int, ...], ...]
    """Ids of materials, 64 x 64, indexed [x][y]."""
    start: tuple[int, int]


def make_worlds(
    store: Store, facts: Sequence[EpisodeFacts], worlds: Sequence[TaskWorld]
) -> dict[TaskWorld, Terrain]:
    """Recreate the Crafter worlds of some episodes at their start."""
    first: dict[TaskWorld, str] = {}
    for one in facts:
        world = world_of(one)
        if world in worlds and one.row.task.startswith(TASK):
            first.setdefault(world, one.id)
    with store.reading() as connection:
        sessions = list(load_sessions(connection, list(first.values()), messages=False))
    found: dict[TaskWorld, Terrain] = {}
    for world, session in zip(first, sessions, strict=True):
        try:
            found[world] = look_at(Replay(session).world)
        except ReplayError:
            continue  # from another program, or without enough information
    return found


def look_at(world: CrafterWorld) -> Terrain:
    """Compute the distance from the player to the nearest thing of each kind."""
    materials, standing = world.materials(), world.semantic()
    away = _steps(materials, world.player_pos)
    steps: dict[str, int | None] = {}
    for name in WANTED:
        if name in OBJECTS:
            cells = np.argwhere(standing == _FIRST_OBJECT + OBJECTS.index(name))
        else:
            cells = np.argwhere(materials == MATERIALS.index(name))
        steps[name] = _nearest(cells, away)
    return Terrain(steps, tuple(map(tuple, materials.tolist())), world.player_pos)


def _steps(materials: NDArray[np.uint8], start: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Return the steps to every cell that can be reached (Dijkstra, 1959)."""
    cost = {MATERIALS.index(name): 1 for name in WALKABLE}
    cost |= {MATERIALS.index(name): 2 for name in _DIG}
    grid = materials.tolist()
    away = {start: 0}
    queue = [(0, start)]
    while queue:
        done, (x, y) = heapq.heappop(queue)
        if done > away[x, y]:
            continue
        for cell in ((x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)):
            if not (0 <= cell[0] < AREA and 0 <= cell[1] < AREA):
                continue
            price = cost.get(grid[cell[0]][cell[1]])
            if price is not None and done + price < away.get(cell, 1 << 30):
                away[cell] = done + price
                heapq.heappush(queue, (away[cell], cell))
    return away


def _nearest(cells: NDArray[np.intp], away: Mapping[tuple[int, int], int]) -> int | None:
    beside = [
        away[x + dx, y + dy]
        for x, y in cells.tolist()
        for dx, dy in ((-1, 0), (1, 0), (0, -1), (0, 1))
        if (x + dx, y + dy) in away
    ]
    return min(beside, default=None)


METRICS: Final[Mapping[str, Callable[[EpisodeFacts], float]]] = {
    "achievements": lambda one: float(len(one.row.achievements)),
    "reward": lambda one: one.row.reward,
    "steps": lambda one: float(one.row.steps),
    "invalid_rate": lambda one: one.row.invalid_rate,
}
"""Metrics for results by world."""
_OUTLIERS: Final = 2
"""Number of easiest and of hardest worlds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldResult:
    """Results in one world."""

    world: TaskWorld
    by_model: Mapping[str, float]
    """Mean of each model that played it."""
    n: int
    """Number of episodes."""
    effect: float
    """Difference from the mean over worlds; NaN unless all models played it."""
    surprise: float
    """Largest residual after the effects of world and model, in standard deviations of all
    residuals; NaN unless all models played it, or with one model."""
    surprising: str | None
    """Model with that residual."""
    discrimination: float
    """Slope of the models' results on their means in other worlds. 1: models differ as much as
    there; above 1: more; 0: not at all; below 0: in reverse order; NaN: unknown."""
    terrain: Terrain | None = None
    """Only for outliers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStability:
    """Variation of one model between worlds."""

    group: str
    n: int
    worlds: int
    mean: Interval
    sd: Interval
    """Standard deviation over worlds, of the means of their episodes."""
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldsAnalysis:
    """Influence of the world on results."""

    basis: Basis
    metric: str
    shares: VarianceShares | None
    """None if the world cannot be separated from chance."""
    common: int
    """Number of worlds that all models played."""
    replicates: bool
    """Whether some model played a world more than once."""
    models: tuple[ModelStability, ...]
    worlds: tuple[WorldResult, ...]
    """The easiest first."""
    outliers: tuple[WorldResult, ...]
    """The easiest and the hardest worlds, with their terrain."""
    telling: tuple[WorldResult, ...]
    """Worlds with more than the usual difference between models, the largest first."""


def analyse_worlds(
    facts: Sequence[EpisodeFacts],
    terrain: Callable[[Sequence[TaskWorld]], Mapping[TaskWorld, Terrain]],
    *,
    metric: str | None = None,
    seed: int = 0,
) -> WorldsAnalysis:
    """Analyse results by world.

    Args:
        facts: The episodes; no steps are needed.
        terrain: Recreates worlds; called with the outliers only.
        metric: One of `METRICS`; default: achievements, or reward in other environments.
        seed: Seed of the draws for the intervals of variance shares.

    Raises:
        UsageError: There are fewer than two worlds, no world that all models played, or the
            metric is unknown.
    """
    used = [one for one in completed(facts) if one.row.seed is not None]
    if metric is None:
        metric = "achievements" if any(one.has_achievements for one in used) else "reward"
    if metric not in METRICS:
        raise UsageError(f"metric {metric!r} is not allowed; choose from: {', '.join(METRICS)}")
    if len({world_of(one) for one in used}) < 2:
        raise UsageError(
            "these episodes are of fewer than two worlds with a seed, so that nobody can say"
            " what the world does; play more with 'assay run --episodes 20'"
        )
    groups = by_group(used)
    cells = _cells(groups, METRICS[metric])
    every = list(dict.fromkeys(world_of(one) for one in used))
    common = [world for world in every if all(world in cells[name] for name in groups)]
    if not common:
        raise UsageError(
            f"no world was played by all {len(groups)} models ({', '.join(groups)}); analyze "
            "models that played the same worlds, such as those of one run: --run ID"
        )
    shares = None
    if len(common) > 1:
        table = [[cells[name][world] for world in common] for name in groups]
        shares = variance_shares(table, level=LEVEL, rng=np.random.default_rng(seed))
    replicates = any(len(cell) > 1 for mine in cells.values() for cell in mine.values())
    worlds = _worlds(cells, every, common)
    outliers = _outliers(worlds)
    found = terrain([result.world for result in outliers])
    telling = sorted(
        (one for one in worlds if one.discrimination > 1),
        key=lambda one: (-one.discrimination, one.world),
    )
    return WorldsAnalysis(
        basis=basis_of(used, *_notes(groups, every, common, replicates, shares)),
        metric=metric,
        shares=shares,
        common=len(common),
        replicates=replicates,
        models=tuple(
            _stability(name, episodes, cells[name], metric) for name, episodes in groups.items()
        ),
        worlds=tuple(worlds),
        outliers=tuple(replace(one, terrain=found.get(one.world)) for one in outliers),
        telling=tuple(telling),
    )


_Cells = Mapping[str, Mapping[TaskWorld, list[float]]]
"""Values of each model in each world."""


def _cells(
    groups: Mapping[str, Sequence[EpisodeFacts]], value: Callable[[EpisodeFacts], float]
) -> _Cells:
    cells: dict[str, dict[TaskWorld, list[float]]] = {}
    for name, episodes in groups.items():
        mine = cells.setdefault(name, {})
        for one in episodes:
            mine.setdefault(world_of(one), []).append(value(one))
    return cells


def _notes(
    groups: Mapping[str, Sequence[EpisodeFacts]],
    every: Sequence[TaskWorld],
    common: Sequence[TaskWorld],
    replicates: bool,
    shares: VarianceShares | None,
) -> list[str]:
    notes = []
    if len(common) < len(every):
        notes.append(
            f"{len(common)} of {len(every)} worlds were played by all {len(groups)} models; the"
            " shares are of those."
        )
    if shares is None:
        notes.append(
            "The world cannot be told from chance here: let several models play the same"
            " worlds, or one model each world several times ('assay run --replicates 3')."
        )
    elif not replicates:
        notes.append(
            "Each model played each world once, so that what only one model does in a world"
            " cannot be told from chance: 'assay run --replicates 3' would tell."
        )
    return notes


def _worlds(
    cells: _Cells, every: Sequence[TaskWorld], common: Sequence[TaskWorld]
) -> list[WorldResult]:
    names = list(cells)
    means_M_W = np.array(
        [[np.mean(cells[name][world]) for world in common] for name in names]
    ).reshape(len(names), len(common))
    effects = means_M_W.mean(axis=0) - means_M_W.mean()
    left_M_W = means_M_W - means_M_W.mean(axis=1, keepdims=True) - effects
    freedom = max((len(names) - 1) * (len(common) - 1), 1)
    spread = math.sqrt(float((left_M_W**2).sum()) / freedom)
    slopes = _discrimination(means_M_W)
    found = []
    for world in every:
        by_model = {
            name: float(np.mean(cells[name][world])) for name in names if world in cells[name]
        }
        n = sum(len(mine.get(world, ())) for mine in cells.values())
        effect = surprise = slope = math.nan
        surprising = None
        if world in common:
            place = common.index(world)
            effect, slope = float(effects[place]), float(slopes[place])
            if len(names) > 1 and spread:
                most = int(np.abs(left_M_W[:, place]).argmax())
                surprise, surprising = float(left_M_W[most, place]) / spread, names[most]
        found.append(
            WorldResult(
                world=world,
                by_model=by_model,
                n=n,
                effect=effect,
                surprise=surprise,
                surprising=surprising,
                discrimination=slope,
            )
        )
    return sorted(found, key=lambda one: (math.isnan(one.effect), -one.effect, one.world))


def _discrimination(means_M_W: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the slope of the models' results in a world on their means in the other worlds."""
    models, worlds = means_M_W.shape
    if models < 2 or worlds < 2:
        return np.full(worlds, math.nan)
    others = (means_M_W.sum(axis=1, keepdims=True) - means_M_W) / (worlds - 1)
    centred = others - others.mean(axis=0)
    squares = (centred**2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes: NDArray[np.float64] = (centred * (means_M_W - means_M_W.mean(axis=0))).sum(
            axis=0
        ) / squares
    return np.where(squares > 0, slopes, math.nan)


def _outliers(worlds: Sequence[WorldResult]) -> list[WorldResult]:
    known = [one for one in worlds if not math.isnan(one.effect)]
    if len(known) <= 2 * _OUTLIERS:
        return known
    return [*known[:_OUTLIERS], *known[-_OUTLIERS:]]


def _stability(
    name: str,
    episodes: Sequence[EpisodeFacts],
    cells: Mapping[TaskWorld, Sequence[float]],
    metric: str,
) -> ModelStability:
    means = [float(np.mean(cell)) for cell in cells.values()]
    sd = Interval(math.nan, math.nan, math.nan)
    if len(means) > 1:
        sd = sd_interval(float(np.std(means, ddof=1)), len(means), level=LEVEL)
    values = [METRICS[metric](one) for one in episodes]
    return ModelStability(
        group=name,
        n=len(episodes),
        worlds=len(means),
        mean=mean_over(episodes, values, metric),
        sd=sd,
        least=min(means),
        most=max(means),
    )


_SHOWN = 4
_WARNING = (
    "Worlds that were chosen because models are far apart there say nothing about all worlds:"
    " a difference between models looks larger than it is, because the same results chose"
    " the worlds. Use them to find a difference quickly, play other worlds to say how large it"
    " is, and name the worlds beside every claim."
)


@analysis_document.register
def _document(found: WorldsAnalysis) -> Document:
    """Build the report: variance shares, stability, outliers, and discriminating worlds."""
    metric = found.metric
    stability = ReportTable(
        f"Stability: {metric} over worlds",
        ["Model", "Mean", "Deviation between worlds", "Least", "Most", "Worlds", "Episodes"],
        [
            [
                model.group,
                mean_cell(metric, model.mean),
                mean_cell("", model.sd),
                format_value(metric, model.least),
                format_value(metric, model.most),
                f"{model.worlds:,}",
                f"{model.n:,}",
            ]
            for model in found.models
        ],
        f"Deviation: the standard deviation of the means of worlds. {INTERVALS}",
    )
    first = [*_shares_table(found), stability]
    outliers = ReportTable(
        "The easiest and the hardest worlds",
        ["World", "Beside average", *(f"To {name}" for name in WANTED)],
        [
            [
                str(one.world),
                format_difference(metric, shrunken_effect(found, one)),
                *_ways(one),
            ]
            for one in found.outliers
        ],
        "Beside average: how much better models do there, shrunk for chance. To: steps from the"
        " start to the nearest, for who knows the way; a cell of stone counts two.",
    )
    return build(
        "seeds",
        f"{metric.capitalize()} in {len(found.worlds):,} worlds",
        [_finding(found)],
        [
            Section("How much the world decides", [*first, Figures(lambda: _figures(found))]),
            Section("Outliers", [outliers, Figures(lambda: _maps(found))]),
            Section("Worlds that behave differently by model", list(_surprises(found))),
            Section(
                "Worlds in which models are furthest apart, not tested", list(_telling(found))
            ),
            Section("All worlds", [_table(found)], in_terminal=False, folded=True),
        ],
        found,
        [
            {
                "task": one.world.task,
                "seed": one.world.seed,
                **{f"{metric} of {name}": one.by_model.get(name) for name in _names(found)},
                "effect": one.effect,
                "surprise": one.surprise,
                "discrimination": one.discrimination,
                "episodes": one.n,
            }
            for one in found.worlds
        ],
    )


def _named_shares(found: WorldsAnalysis) -> list[tuple[str, Interval]]:
    shares = found.shares
    if shares is None:
        return []
    rows = [("the world", shares.world)]
    rows += [("the model", shares.subject)] if len(found.models) > 1 else []
    if shares.interaction is not None:
        return [*rows, ("both together", shares.interaction), ("the rest", shares.rest)]
    together = len(found.models) > 1
    return [*rows, ("both together, and the rest" if together else "the rest", shares.rest)]


def _shares_table(found: WorldsAnalysis) -> Iterator[ReportTable]:
    rows = _named_shares(found)
    if rows:
        yield ReportTable(
            f"What {found.metric} differ by, as shares of their variance",
            ["Source", "Share"],
            [[name, share_cell(share)] for name, share in rows],
            f"Over {found.common} worlds that all played. Both together: what only one model"
            " does in a world. In brackets: 95 % intervals, for worlds drawn at random and"
            " these models.",
        )


def _finding(found: WorldsAnalysis) -> str:
    if found.shares is None:
        return (
            f"How much the world decides of {found.metric} cannot be told from chance with"
            " these episodes."
        )
    share = found.shares.world
    ends = f"[{100 * share.low:.0f}, {100 * share.high:.0f}]"
    share_of = f"{share_text(share.point)} % {ends}"
    text = f"The world decides {share_of} of the variance of {found.metric}"
    if len(found.models) > 1:
        text += f", the model {share_text(found.shares.subject.point)} %"
    if not share.low > 0:
        return f"{text}; no world is shown to be harder than another."
    hardest, easiest = found.outliers[-1], found.outliers[0]
    apart = shrunken_effect(found, easiest) - shrunken_effect(found, hardest)
    return (
        f"{text}; from {easiest.world} to {hardest.world} models lose about"
        f" {format_value(found.metric, apart)} {found.metric} (shrunk for chance)."
    )


def shrunken_effect(found: WorldsAnalysis, world: WorldResult) -> float:
    """Return the effect of a world, without what chance adds to the extremes of many worlds.

    It is multiplied by the proportion of the variance of a world's mean that is due to the
    world (Robinson, "That BLUP is a good thing: the estimation of random effects", 1991): 0 if
    worlds do not differ by more than chance. NaN if the world cannot be told from chance.
    """
    shares = found.shares
    if shares is None:
        return math.nan
    noise = shares.rest.point / world.n
    if shares.interaction is not None:
        noise += shares.interaction.point / len(found.models)
    whole = shares.world.point + noise
    return world.effect * shares.world.point / whole if whole else 0.0


def _ways(one: WorldResult) -> list[str]:
    if one.terrain is None:
        return ["-"] * len(WANTED)
    return [_steps_text(one.terrain.steps[name]) for name in WANTED]


def _steps_text(steps: int | None) -> str:
    return "no way" if steps is None else str(steps)


def _surprises(found: WorldsAnalysis) -> Iterator[ReportTable]:
    known = [one for one in found.worlds if not math.isnan(one.surprise)]
    known.sort(key=lambda one: -abs(one.surprise))
    if known:
        yield ReportTable(
            "Worlds in which a model does what neither explains",
            ["World", "Model", "Deviations", *(model.group for model in found.models)],
            [
                [
                    str(one.world),
                    one.surprising or "",
                    f"{one.surprise:+.1f}",
                    *(
                        format_value(found.metric, one.by_model.get(name))
                        for name in _names(found)
                    ),
                ]
                for one in known[:_SHOWN]
            ],
            "Deviations: the result less what the world and the model lead to expect, in"
            " standard deviations of such remainders. Of many worlds some are beyond 2 by"
            " chance.",
        )


def _names(found: WorldsAnalysis) -> list[str]:
    return [model.group for model in found.models]


def _telling(found: WorldsAnalysis) -> Iterator[Any]:
    if found.telling:
        seeds = ",".join(str(one.world.seed) for one in found.telling[:8])
        yield Paragraph(
            f"Models are furthest apart in the worlds of seeds {seeds}, in the order that the"
            " other worlds give them."
        )
        yield Paragraph(_WARNING, Tone.WARNING)


def _table(found: WorldsAnalysis) -> ReportTable:
    return ReportTable(
        "All worlds, the easiest first",
        ["World", *_names(found), "Beside average", "Tells apart", "Episodes"],
        [
            [
                str(one.world),
                *(format_value(found.metric, one.by_model.get(name)) for name in _names(found)),
                format_difference(found.metric, one.effect),
                format_number(one.discrimination),
                f"{one.n}",
            ]
            for one in found.worlds
        ],
        "Tells apart: how far models are apart, in the order of the other worlds; 1 is as"
        " there, 0 not at all, below 0 the other way round.",
    )


def _figures(found: WorldsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.intervals import ForestRow, draw_forest
    from assay.report.figures.worlds import draw_results_by_world

    yield draw_results_by_world(
        [
            str(one.world.seed) if len(found.basis.tasks) == 1 else str(one.world)
            for one in found.worlds
        ],
        {
            name: [one.by_model.get(name, math.nan) for one in found.worlds]
            for name in _names(found)
        },
        found.metric,
    )
    rows = _named_shares(found)
    if rows:
        yield draw_forest(
            [
                ForestRow(name, Interval(*(100 * bound for bound in share)))
                for name, share in rows
            ],
            "share of the variance (%)",
            zero_line=None,
            meaning=f"95 % intervals, {found.common} worlds",
            title=f"What {found.metric} differ by",
        )


def _maps(found: WorldsAnalysis) -> "Iterator[Drawing]":
    from assay.report.figures.worlds import WorldMap, draw_world_maps

    maps = [
        WorldMap(
            f"{one.world}: {format_difference(found.metric, one.effect)}",
            ", ".join(
                f"{name} {_steps_text(one.terrain.steps[name])}"
                for name in ("tree", "water", "cow", "stone", "iron")
            ),
            one.terrain.map,
            one.terrain.start,
        )
        for one in found.outliers
        if one.terrain is not None
    ]
    if maps:
        yield draw_world_maps(maps, MATERIALS)

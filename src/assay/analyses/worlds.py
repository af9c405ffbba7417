"""How much the world decides: results by world, what they share, and which worlds tell most."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from assay.analyses.episodes import (
    LEVEL,
    Basis,
    EpisodeFacts,
    TaskWorld,
    basis_of,
    by_group,
    completed,
    mean_over,
    world_of,
)
from assay.analyses.terrain import Terrain
from assay.errors import UsageError
from assay.stats.components import VarianceShares, variance_shares
from assay.stats.intervals import Interval
from assay.stats.spread import sd_interval

__all__ = ["METRICS", "ModelStability", "WorldResult", "WorldsAnalysis", "analyse_worlds"]

METRICS: Final[Mapping[str, Callable[[EpisodeFacts], float]]] = {
    "achievements": lambda one: float(len(one.row.achievements)),
    "reward": lambda one: one.row.reward,
    "steps": lambda one: float(one.row.steps),
    "invalid_rate": lambda one: one.row.invalid_rate,
}
"""What results of worlds may be counted in."""
_OUTLIERS: Final = 2
"""So many of the best and of the worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldResult:
    """The results in one world."""

    world: TaskWorld
    by_model: Mapping[str, float]
    """The mean of each model that played it."""
    n: int
    """Episodes."""
    effect: float
    """How much better models do here than on average; NaN unless all played it."""
    surprise: float
    """The largest part of a result that neither the world nor the model explains, in standard
    deviations of such parts; NaN unless all played it, or with one model."""
    surprising: str | None
    """The model it is about."""
    discrimination: float
    """How far models are apart here, in the order of the other worlds: 1 as there, above it
    more, 0 not at all, below it the other way round; NaN where that is not known."""
    terrain: Terrain | None = None
    """Of outliers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStability:
    """How much one model differs from world to world."""

    group: str
    n: int
    worlds: int
    mean: Interval
    sd: Interval
    """Over worlds, of the means of their episodes."""
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldsAnalysis:
    """How much the world decides."""

    basis: Basis
    metric: str
    shares: VarianceShares | None
    """None where the data cannot tell the world from chance."""
    common: int
    """Worlds that all models played."""
    replicates: bool
    """Whether some model played a world more than once."""
    models: tuple[ModelStability, ...]
    worlds: tuple[WorldResult, ...]
    """The easiest first."""
    outliers: tuple[WorldResult, ...]
    """The easiest and the hardest, with their terrain."""
    telling: tuple[WorldResult, ...]
    """Those in which models are furthest apart, the best first."""


def analyse_worlds(
    facts: Sequence[EpisodeFacts],
    terrain: Callable[[Sequence[TaskWorld]], Mapping[TaskWorld, Terrain]],
    *,
    metric: str | None = None,
    seed: int = 0,
) -> WorldsAnalysis:
    """Results by world.

    Args:
        facts: The episodes; no steps are needed.
        terrain: Makes worlds; asked for the outliers alone.
        metric: One of `METRICS`; achievements, or reward in other environments.
        seed: Of the draws behind the intervals of shares.

    Raises:
        UsageError: There are fewer than two worlds, or the metric is not known.
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
"""The values of each model in each world."""


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
    effects = means_M_W.mean(axis=0) - means_M_W.mean() if common else np.zeros(0)
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
    """The slope of the models' results in a world on their means in the other worlds."""
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

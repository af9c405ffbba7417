"""One drawing of every kind, with hostile names."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from assay.judge.results import PairRow
from assay.report.figures.cost import CostPoint, draw_cost_quality
from assay.report.figures.curves import (
    PrecisionPoint,
    Run,
    VariancePanel,
    draw_learning_curves,
    draw_variance_panels,
)
from assay.report.figures.distributions import (
    draw_bootstrap_distribution,
    draw_box_plot,
    draw_histogram,
)
from assay.report.figures.drawing import Drawing
from assay.report.figures.instances import (
    CompletionRow,
    SuccessRow,
    draw_completion_times,
    draw_success_bars,
    draw_success_heat_map,
)
from assay.report.figures.intervals import (
    ForestRow,
    VersionRow,
    draw_forest,
    draw_versions_over_time,
)
from assay.report.figures.pairs import draw_pair_differences, draw_pair_lines
from assay.report.figures.radial import draw_radial, scale_to_best
from assay.report.figures.style import Values
from assay.stats.intervals import Interval, t_interval, wilson

__all__ = ["DOLLARS", "LONG", "PLAIN", "drawings"]

PLAIN: Final = "model-a v1.1"
DOLLARS: Final = "$x$ <script>alert(1)</script> 日本"
LONG: Final = "عربي שלום 😀 \x1b[31m\u202e" + "very-long-" * 12

_NAN: Final = math.nan
_UNKNOWN: Final = Interval(0.4, _NAN, _NAN)


def drawings() -> dict[str, Callable[[], Drawing]]:
    """Return deterministic drawing functions by kind."""
    rng = np.random.default_rng(0)
    groups: dict[str, Values] = {
        PLAIN: rng.poisson(4, 30),
        DOLLARS: rng.poisson(6, 12),
        LONG: [2, 3],
    }
    pairs = [
        PairRow(f"seed {seed} {LONG}", float(a), float(a + d))
        for seed, (a, d) in enumerate(
            zip(rng.poisson(4, 12), rng.integers(-2, 4, 12), strict=True)
        )
    ]
    estimates = rng.normal(1, 0.5, 2000)
    runs = [_run(rng, end) for end in (1e6, 1e6, 1e6, 1e6, 6e5)]
    return {
        "histogram": lambda: draw_histogram(groups, "achievements"),
        "box plot": lambda: draw_box_plot(groups, LONG),
        "bootstrap": lambda: draw_bootstrap_distribution(
            estimates, Interval(1, -0.1, 2.1), "difference", method="Student t"
        ),
        "forest": lambda: draw_forest(
            [
                ForestRow(PLAIN, Interval(1, 0.5, 1.5), "12 pairs"),
                ForestRow(DOLLARS, Interval(1, 0.5, math.inf), LONG),
                ForestRow(LONG, _UNKNOWN, "1 pair"),
            ],
            "difference in achievements",
        ),
        "success bars": lambda: draw_success_bars(
            [
                SuccessRow(task, subject, wilson(hits, 10), 10)
                for task, hits in (("crafter/easy", 9), (LONG, 0))
                for subject in (PLAIN, DOLLARS)
            ]
        ),
        "heat map": lambda: draw_success_heat_map(
            ["easy", LONG],
            [PLAIN, DOLLARS, LONG],
            [[0.9, 1, _NAN], [0, 0.2, 0.6]],
            counts=[[10, 10, 0], [10, 10, 5]],
        ),
        "times": lambda: draw_completion_times(
            [
                CompletionRow(subject, "easy", 10.0 * place, place % 3 == 2)
                for subject in (PLAIN, DOLLARS, LONG)
                for place in range(1, 6)
            ]
        ),
        "pair lines": lambda: draw_pair_lines(pairs, PLAIN, DOLLARS, "achievements"),
        "pair differences": lambda: draw_pair_differences(
            pairs,
            PLAIN,
            LONG,
            LONG,
            interval=t_interval([row.difference for row in pairs]),
        ),
        "cost": lambda: draw_cost_quality(
            [
                CostPoint(PLAIN, Interval(0.002, 0.0015, 0.0025), Interval(4, 3.5, 4.5), 30),
                CostPoint(DOLLARS, Interval(0.1, 0.08, 0.12), Interval(6, 5, 7), 12),
                CostPoint(LONG, None, _UNKNOWN, 2),
            ],
            "achievements",
        ),
        "curves": lambda: draw_learning_curves(
            {PLAIN: runs[:4], DOLLARS: runs[2:], LONG: runs[:1]}, "reward"
        ),
        "radial": _radial,
        "variance": lambda: draw_variance_panels(
            [_panel("AUC", 0.12, 6), _panel(LONG, 0.5, None)],
            threshold=0.05,
            runs=12,
            metric="overview/reward",
        ),
        "versions": lambda: draw_versions_over_time(
            [
                VersionRow("v1.0", Interval(3, 2, 4), 8),
                VersionRow(LONG, Interval(4, 3, 5), 8, DOLLARS),
                VersionRow("v2.0", _UNKNOWN, 1),
            ],
            LONG,
        ),
    }


def _run(rng: np.random.Generator, end: float) -> Run:
    steps = np.linspace(0, end, 60)
    return steps, 1 - np.exp(-steps / 3e5) + rng.normal(0, 0.1, len(steps))


def _radial() -> Drawing:
    axes = ["AUC", "final", "last 5", "slope", DOLLARS]
    raw: dict[str, list[float | None]] = {
        PLAIN: [0.5, 0.6, 0.55, 1e-6, 2e5],
        LONG: [0.7, 0.65, None, 2e-6, 1e5],
    }
    return draw_radial(axes, scale_to_best(axes, raw, lower_is_better={DOLLARS}), raw=raw)


def _panel(name: str, spread: float, needed: int | None) -> VariancePanel:
    errors = [(n, spread / math.sqrt(n)) for n in range(2, 20)]
    return VariancePanel(
        name=name,
        precision=[PrecisionPoint(n, one, 0.7 * one, 1.6 * one) for n, one in errors],
        rule=[(n, spread) for n in range(2, 13)],
        rule_n=None,
        needed=needed,
        needed_low=needed and needed - 2,
        needed_high=needed and needed + 9,
    )

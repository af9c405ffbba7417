"""How often the judge finds a difference of trials on tasks where there is none."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from assay.judge.comparison import compare
from assay.judge.subjects import Subject, TrialOutcome
from assay.stats.significance import paired_t_test
from assay.types import Verdict

from .cells import Cell, Floats, Row, Rows, Trial, Two, table
from .parts import Found
from .shares import MOST

__all__ = ["units"]

_TASK_SDS: Final = (0.0, 0.35, 0.7, 1.4)
"""How far the difference of two models goes from task to task; within one it spreads by 1."""


def units(sets: int) -> Found:
    """Verdicts on two models that are equal over all tasks, or over those that are there."""
    return table(9, max(100, sets // 10), ["task sd"], _rows())


def _rows() -> Rows:
    twelve, unequal, four, two = [8] * 12, [1, 8] * 5, [8] * 4, [3] * 2
    rows: dict[tuple[str, ...], Row] = {}
    for sd in _TASK_SDS:
        rows[(f"{sd:g}",)] = {
            "12 x 8, every pair counts": Cell(_t_test(twelve, sd)),
            "12 x 8": Cell(_judged(twelve, sd), most=0.05),
            "12 x 8, not paired": Cell(_judged(twelve, sd, paired=False), most=0.05),
            "10 of 1 or 8": Cell(_judged(unequal, sd), most=MOST),
            "4 x 8, fixed": Cell(_judged(four, sd, fixed=True), most=0.05),
            "2 x 3, fixed": Cell(_judged(two, sd, fixed=True), most=0.05),
        }
    return rows


def _drawn(rng: np.random.Generator, sizes: Sequence[int], task_sd: float, fixed: bool) -> Two:
    """Values of both models, world by world; fixed tasks differ by nothing on average."""
    difficulty = np.repeat(rng.standard_normal(len(sizes)), sizes)
    effects = rng.normal(0, task_sd, len(sizes))
    if fixed:
        effects -= np.average(effects, weights=sizes)
    a, b = difficulty + rng.normal(0, np.sqrt(0.5), (2, sum(sizes)))
    return a, b + np.repeat(effects, sizes)


def _t_test(sizes: Sequence[int], task_sd: float) -> Trial:
    return lambda rng: paired_t_test(*_drawn(rng, sizes, task_sd, fixed=False)).p_value < 0.05


def _judged(
    sizes: Sequence[int], task_sd: float, *, fixed: bool = False, paired: bool = True
) -> Trial:
    def trial(rng: np.random.Generator) -> bool:
        a, b = _drawn(rng, sizes, task_sd, fixed)
        subjects = [_subject("a", a, sizes), _subject("b", b, sizes, 0 if paired else 100)]
        return compare(subjects).contrasts[0].verdict is not Verdict.UNDECIDED

    return trial


def _subject(name: str, values: Floats, sizes: Sequence[int], first_seed: int = 0) -> Subject:
    worlds = [(task, seed) for task, size in enumerate(sizes) for seed in range(size)]
    return Subject(
        id=name,
        name=name,
        trials=tuple(
            TrialOutcome(
                trial_id=f"{name} {task} {seed}",
                pair=f"{task} {first_seed + seed}",
                task=str(task),
                seed=first_seed + seed,
                values={"reward": value},
            )
            for (task, seed), value in zip(worlds, values.tolist(), strict=True)
        ),
    )

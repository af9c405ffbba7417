"""Training runs for tests: rising curves whose final level depends on the seed."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assay.store.store import Store
from assay.store.training_runs import TrainingRun, make_curve
from assay.store.training_tables import write_training_runs

METRIC = "overview/reward"
STEPS = range(0, 100_001, 5_000)


def level_of(seed: int, gain: float = 0.0) -> float:
    """Return the final level of a seed's curve."""
    return 1.0 + gain + 0.1 * float(np.random.default_rng(seed).normal())


def rise(level: float) -> list[float]:
    return [level * (1 - 2.0 ** (-step / 20_000)) for step in STEPS]


def make_run(run_id: str, seed: int | None, level: float, **facts: Any) -> TrainingRun:
    curves = {METRIC: make_curve(STEPS, rise(level)), "loss": make_curve(STEPS, rise(-level))}
    return TrainingRun(id=run_id, seed=seed, curves=curves, **facts)


def store_with(path: Path, runs: Sequence[TrainingRun]) -> Store:
    store = Store(path)
    with store.writing() as connection:
        write_training_runs(connection, runs)
    return store


def write_csv(path: Path, columns: Mapping[str, Sequence[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def write_run(path: Path, level: float, **facts: Any) -> Path:
    """Write a file with a rising curve."""
    steps = list(STEPS)
    constant = {name: [value] * len(steps) for name, value in facts.items()}
    return write_csv(path, {"step": steps, METRIC: rise(level), **constant})

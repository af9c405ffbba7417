"""Training runs are trials, and their series are comparable experiments."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

import assay
from assay.cli import main
from assay.stats.learning_curves import auc
from assay.store.migrations import migrate
from assay.store.store import Store
from assay.store.training_runs import TrainingRun, TrainingStatus, make_curve
from assay.store.training_tables import write_training_runs
from tests.support import query

STEPS = tuple(range(0, 101, 10))


def read_training_run(
    series: str | None, seed: int, gain: float, **changes: Any
) -> TrainingRun:
    values = [(gain + seed / 10) * step / 100 for step in STEPS]
    return TrainingRun(
        id=f"{series}.{seed}",
        series=series,
        task="maze",
        seed=seed,
        curves={"overview/reward": make_curve(STEPS, values)},
        **changes,
    )


def series(name: str, gain: float) -> list[TrainingRun]:
    dice = np.random.default_rng(1)
    return [read_training_run(name, seed, gain + dice.normal(0, 0.01)) for seed in range(1, 7)]


def written(path: Path, *runs: TrainingRun, swap: bool = False) -> Store:
    store = Store(path)
    with store.writing() as connection:
        write_training_runs(connection, runs, swap=swap)
    return store


def test_two_series_are_compared_by_seed(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    written(path, *series("control", 1.0), *series("candidate", 1.5))
    found = assay.compare(
        "control", "candidate", database=path, metrics=["overview/reward.final"]
    )
    (contrast,) = found.contrasts
    assert contrast.verdict == "better"
    assert [pair.pair for pair in contrast.pairs] == [f"maze {seed}" for seed in range(1, 7)]
    assert contrast.difference.point == pytest.approx(0.5, abs=0.02)


def test_trial_has_the_end_and_the_curve_summaries_of_its_run(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    crashed, running = TrainingStatus.CRASHED, TrainingStatus.RUNNING
    store = written(
        path,
        read_training_run("a", 1, 1.0),
        read_training_run("a", 2, 1.0, status=crashed),
        read_training_run("a", 3, 1.0, status=running),
        read_training_run(None, 4, 1.0),
    )
    assert query(store, "SELECT id, kind, subject, seed, state FROM trials ORDER BY seed") == [
        ("a.1", "training", "a", 1, "result"),
        ("a.2", "training", "a", 2, "infrastructure"),
        ("a.3", "training", "a", 3, None),
        ("None.4", "training", None, 4, "result"),
    ]
    area = auc(STEPS, [1.1 * step / 100 for step in STEPS], percent=0.25)
    assert query(store, "FROM outcomes WHERE experiment_id IS NOT NULL ORDER BY metric") == [
        ("a.1", *_experiment(store), "a", "maze", 1, 0, "overview/reward.auc", area),
        ("a.1", *_experiment(store), "a", "maze", 1, 0, "overview/reward.final", 1.1),
    ]


def _experiment(store: Store) -> tuple[Any, ...]:
    (row,) = query(store, "SELECT id FROM experiments")
    return row


def test_rewritten_or_replaced_run_leaves_one_trial(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    run = read_training_run("a", 1, 1.0)
    store = written(path, run)
    before = query(store, "FROM outcomes ORDER BY ALL")
    written(path, run)
    assert query(store, "FROM outcomes ORDER BY ALL") == before
    written(path, replace(run, curves={"loss": make_curve(STEPS, STEPS)}), swap=True)
    assert query(store, "SELECT count(*) FROM trials") == [(1,)]
    assert query(store, "SELECT metric FROM outcomes ORDER BY ALL") == [
        ("loss.auc",),
        ("loss.final",),
    ]


@pytest.mark.extras
def test_series_of_an_earlier_version_can_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, source = tmp_path / "old.duckdb", tmp_path / "new.duckdb"
    written(source, *series("control", 1.0), *series("candidate", 1.5))
    with duckdb.connect(str(path)) as connection:
        migrate(connection, 0, target=2)
        connection.execute(f"ATTACH '{source}' AS new (READ_ONLY)")
        for table in ("training_runs", "metric_points"):
            connection.execute(f"INSERT INTO {table} FROM new.{table}")
    compare = ["compare", "control", "candidate", "--metrics", "overview/reward.auc"]
    assert main([*compare, "--database", str(path)]) == 0
    assert "candidate v1.0" in capsys.readouterr().out
    assert query(Store(path), "FROM outcomes ORDER BY ALL") == query(
        Store(source), "FROM outcomes ORDER BY ALL"
    )

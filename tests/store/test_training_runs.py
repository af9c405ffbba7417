"""Training runs and plans are stored completely or not at all."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.store.plans import find_plan, store_plan
from assay.store.training_runs import make_curve
from assay.store.training_tables import (
    load_training_runs,
    runs_with_metric,
    write_training_runs,
)
from tests.training.made import METRIC, make_run, store_with


def test_training_runs_are_stored_all_or_none(tmp_path: Path) -> None:
    first = make_run("b", 1, 1.0, subject="vit", configuration={"lr": 0.1})
    store = store_with(tmp_path / "t.duckdb", [first])
    with store.writing() as connection:
        runs = [make_run("a", 1, 1.0), make_run("b", 1, 2.0)]
        with pytest.raises(UsageError, match="'b' exists with different content"):
            write_training_runs(connection, runs)
        other = make_run("b", 1, 1.0, subject="trxl", configuration={"lr": 0.1})
        with pytest.raises(UsageError, match=r"content \(subject: vit there, trxl here\)"):
            write_training_runs(connection, [other])
        with pytest.raises(UsageError, match="two training runs have the id"):
            write_training_runs(connection, [runs[0], runs[0]])
        (kept,) = load_training_runs(connection)
        assert kept.same_content(first)
        assert load_training_runs(connection, ["nobody"]) == []
        assert write_training_runs(connection, runs, swap=True) == {
            "a": "added",
            "b": "replaced",
        }
        found = load_training_runs(connection, ["b", "a"], metrics=[METRIC])
        assert [run.id for run in found] == ["b", "a"]
        assert [list(run.curves) for run in found] == [[METRIC]] * 2
        assert runs_with_metric(connection, "loss") == ("a", "b")
        plan, is_first = store_plan(connection, "hash", {"metric": METRIC}, ["a", "b"])
        again, is_second = store_plan(connection, "hash", {"metric": METRIC}, ["a", "b", "c"])
        assert (is_first, is_second) == (True, False)
        assert plan == again == find_plan(connection, "hash")
        assert find_plan(connection, "other") is None


def test_training_runs_with_equal_content_are_equal() -> None:
    one = make_run("a", 1, 1.0)
    assert one.same_content(make_run("a", 1, 1.0, source="elsewhere.csv"))
    assert not one.same_content(make_run("a", 2, 1.0))
    assert one.differences(make_run("a", 2, 1.5)) == [
        *("seed", f"points of {METRIC}", "points of loss"),
    ]
    # A metric that was never a finite number leaves nothing in a store.
    empty = replace(one, curves={**one.curves, "nan": make_curve([1], [float("nan")])})
    assert empty.same_content(one)
    assert not one.same_content(make_run("a", 1, 1.5))
    assert not make_curve([1], [1.0]).same_points(make_curve([1, 2], [1.0, 2.0]))

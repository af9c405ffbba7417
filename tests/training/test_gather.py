"""Runs are found in files and in the database, and none is dropped silently."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UsageError
from assay.store.store import Store
from assay.store.training_runs import TrainingStatus, make_curve
from assay.training.gather import find_run, gather_runs
from assay.training.readers.sources import expand_names
from tests.training.made import METRIC, make_run, store_with, write_csv, write_run

EVENTS = Path(__file__).parents[1] / "golden" / "curves" / "tensorboard" / "tensors"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    runs = [make_run(f"run{at}", at, 1.0) for at in range(1, 7)]
    runs.append(make_run("broken", 8, 1.0, status=TrainingStatus.CRASHED))
    runs.append(make_run("busy", 9, 1.0, status=TrainingStatus.RUNNING))
    return store_with(tmp_path_factory.mktemp("store") / "t.duckdb", runs)


def test_runs_keep_the_given_order(store: Store) -> None:
    found = gather_runs(["run3", "run1"], METRIC, store)
    assert [item.run.id for item in found.runs] == ["run3", "run1"]
    assert found.unusable == ()
    assert len(found.runs[0].curve) == 21


def test_files_and_stored_runs_can_be_mixed(store: Store, tmp_path: Path) -> None:
    file = write_run(tmp_path / "a" / "run1.csv", 1.0, seed=77)
    found = gather_runs(["run1", str(file)], METRIC, store)
    assert [item.run.seed for item in found.runs] == [1, 77]


def test_files_need_no_database(tmp_path: Path) -> None:
    names = [str(write_run(tmp_path / f"{letter}.csv", 1.0)) for letter in "ab"]
    assert len(gather_runs(names, METRIC, Store(tmp_path / "none.duckdb")).runs) == 2


def test_missing_crashed_and_running_runs_are_reported_as_unusable(store: Store) -> None:
    names = ["run1", "nobody", "broken", "busy", "gone.csv"]
    found = gather_runs(names, METRIC, store)
    assert [item.name for item in found.runs] == ["run1"]
    reasons = {item.name: item.reason for item in found.unusable}
    assert "unknown training run" in reasons["nobody"]
    assert "crashed" in reasons["broken"]
    assert "still running" in reasons["busy"]
    assert "no such file" in reasons["gone.csv"]


def test_a_run_is_missing_without_a_database(tmp_path: Path) -> None:
    found = gather_runs(["run1"], METRIC, Store(tmp_path / "none.duckdb"))
    assert "does not exist" in found.unusable[0].reason


def test_the_prefix_of_an_id_is_enough_unless_it_splits_a_number(tmp_path: Path) -> None:
    runs = [make_run(name, None, 1.0) for name in ("alpha-15", "beta-2", "3f29ab")]
    store = store_with(tmp_path / "t.duckdb", runs)
    found = gather_runs(["alp", "beta-", "3f2"], METRIC, store)
    assert [item.run.id for item in found.runs] == ["alpha-15", "beta-2", "3f29ab"]
    assert gather_runs(["alpha-1"], METRIC, store).unusable[0].name == "alpha-1"


def test_an_id_has_priority_over_a_folder_and_a_folder_over_a_prefix(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("run1", "bus"):
        shutil.copytree(EVENTS, name)
    assert find_run("run1", store).seed == 1
    assert find_run("bus", store).source == "bus"
    shutil.rmtree("bus")
    assert find_run("bus", store).id == "busy"


def test_an_ambiguous_prefix_is_an_error(store: Store) -> None:
    with pytest.raises(UsageError, match="ambiguous"):
        gather_runs(["run"], METRIC, store)


@pytest.mark.parametrize("names", [["run1", "run1"], ["run1", "bro", "broken"]], ids=str)
def test_a_run_given_twice_is_an_error(names: list[str], store: Store) -> None:
    with pytest.raises(UsageError, match="named twice"):
        gather_runs(names, METRIC, store)


def test_a_file_under_two_paths_is_one_run(tmp_path: Path) -> None:
    file = write_run(tmp_path / "a.csv", 1.0)
    other = str(tmp_path / "." / "sub" / ".." / "a.csv")
    (tmp_path / "sub").mkdir()
    with pytest.raises(UsageError, match="named twice"):
        gather_runs([str(file), other], METRIC, Store(tmp_path / "none.duckdb"))


def test_a_missing_metric_is_an_error_that_names_the_existing_ones(
    store: Store, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'overview/reward'\?.*loss"):
        gather_runs(["run1"], "overview/rewards", store)
    file = write_run(tmp_path / "a.csv", 1.0)
    with pytest.raises(UsageError, match="choose from: overview/reward"):
        gather_runs([str(file)], "speed", store)


def test_a_curve_of_one_point_is_an_error(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", {"step": [1, 2], METRIC: [1.0, "nan"]})
    with pytest.raises(UsageError, match="has 1 finite points"):
        gather_runs([str(file)], METRIC, Store(tmp_path / "none.duckdb"))


def test_a_value_too_large_to_square_is_an_error(tmp_path: Path) -> None:
    file = write_csv(tmp_path / "a.csv", {"step": [1, 2], METRIC: [1e300, 2e300]})
    with pytest.raises(UsageError, match=r"value 2e\+300 .* use a unit"):
        gather_runs([str(file)], METRIC, Store(tmp_path / "none.duckdb"))


def test_dropped_and_repeated_points_and_different_lengths_are_noted(tmp_path: Path) -> None:
    steps = [0, 1, 2, 3]
    long: dict[str, list[Any]] = {"step": [0, 50, 100], METRIC: [1, 2, 3], "seed": [4] * 3}
    odd: dict[str, list[Any]] = {
        "step": [*steps[:3], 2],
        METRIC: [1, "nan", 2, 3],
        "seed": [4] * 4,
    }
    names = [
        str(write_csv(tmp_path / name, columns))
        for name, columns in (("long.csv", long), ("odd.csv", odd))
    ]
    notes = "\n".join(gather_runs(names, METRIC, Store(tmp_path / "none.duckdb")).notes)
    assert "1 points are NaN" in notes
    assert "1 points were logged again" in notes
    assert "end before 90 %" in notes
    assert "same seed, 4" in notes


def test_an_ellipsis_adds_the_runs_between(store: Store) -> None:
    found = gather_runs(["run1", "run2", "...", "run6"], METRIC, store)
    assert [item.name for item in found.runs] == [f"run{at}" for at in range(1, 7)]


def test_an_ellipsis_at_the_end_adds_all_following_runs(store: Store) -> None:
    assert len(gather_runs(["run2", "..."], METRIC, store).runs) == 5
    first = gather_runs(["run1", "run2", "…"], METRIC, store, taken=["run4", "run5"])
    assert [item.name for item in first.runs] == ["run1", "run2", "run3"]


def test_an_ellipsis_keeps_leading_zeros_prefix_and_suffix(tmp_path: Path) -> None:
    names = expand_names(["a08.csv", "...", "a11.csv"], lambda _: True)
    assert names == ["a08.csv", "a09.csv", "a10.csv", "a11.csv"]
    names = expand_names(["v2.seed3", "...", "v2.seed5"], lambda _: True)
    assert names == ["v2.seed3", "v2.seed4", "v2.seed5"]


@pytest.mark.parametrize(
    "names",
    [
        ["..."],
        ["run1", "...", "..."],
        ["run1", "...", "walk9"],
        ["run9", "...", "run1"],
        ["a", "…"],
    ],
    ids=str,
)
def test_an_invalid_ellipsis_is_an_error(names: list[str]) -> None:
    with pytest.raises(UsageError, match=r"cannot be expanded|must follow the name"):
        expand_names(names, lambda _: False)


def test_curves_are_sorted_and_finite() -> None:
    curve = make_curve([3, 1, 2], [30.0, 10.0, float("inf")])
    assert curve.steps_P.tolist() == [1, 3]
    assert curve.dropped == 1
    assert len(make_curve([], [])) == 0

"""Pairs are parsed and checked; groups are never paired silently."""

import json
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.store.store import Store
from assay.store.training_runs import TrainingRun, TrainingStatus
from assay.training.design import (
    find_capacity_gaps,
    paired_design,
    parse_pairs,
    seed_design,
    unpaired_design,
)
from tests.training.made import METRIC, make_run, store_with, write_run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    runs = [make_run(f"c{at}", at, 1.0) for at in (1, 2, 3)]
    runs += [make_run(f"t{at}", at, 1.1) for at in (1, 2, 3)]
    runs += [make_run("unseeded-c", None, 1.0), make_run("unseeded-t", None, 1.1)]
    runs.append(make_run("dead", 3, 1.0, status=TrainingStatus.CRASHED))
    return store_with(tmp_path_factory.mktemp("store") / "t.duckdb", runs)


def pair(control: str, candidate: str, **more: object) -> str:
    return json.dumps({"control": control, "candidate": candidate, **more})


def test_pairs_are_given_as_objects_or_as_a_list() -> None:
    pairs = [pair("a", "b"), pair("c", "d", seed=5)]
    assert parse_pairs(pairs) == parse_pairs([f"[{', '.join(pairs)}]"])
    assert [tuple(parsed) for parsed in parse_pairs(pairs)] == [("a", "b", None), ("c", "d", 5)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("run1 run2", "is not valid JSON", id="words"),
        pytest.param("5", "is not a pair", id="a number"),
        pytest.param("[]", "is empty", id="nothing"),
        pytest.param('{"control": "a"}', "has no 'candidate'", id="half a pair"),
        pytest.param('{"control": 1, "candidate": "b"}', "has no 'control'", id="no name"),
        pytest.param(pair("a", "b", sed=1), "unknown key 'sed'", id="mistyped"),
        pytest.param(pair("a", "b", seed="x"), "seed 'x'", id="seed"),
        pytest.param("[" * 100_000, "is not valid JSON", id="deep"),
    ],
)
def test_an_invalid_pair_is_rejected_with_a_message(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_pairs([text])
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_pair_of_runs_with_equal_seeds_is_accepted(store: Store) -> None:
    found = paired_design(
        parse_pairs([pair("c1", "t1"), pair("c2", "t2", seed=2)]), METRIC, store
    )
    assert found.paired
    assert found.seeds == (1, 2)
    assert found.warnings == ()
    assert [item.run.id for item in found.candidate] == ["t1", "t2"]


@pytest.mark.parametrize("text", [pair("c1", "t2"), pair("c1", "t1", seed=9)], ids=str)
def test_a_pair_of_runs_with_different_seeds_is_an_error(text: str, store: Store) -> None:
    with pytest.raises(UsageError, match=r"different seeds: c1 has 1, t\d has \d"):
        paired_design(parse_pairs([text, pair("c3", "t3")]), METRIC, store)


def test_pairs_with_unknown_seeds_are_accepted_with_a_note(store: Store) -> None:
    pairs = [pair("c1", "t1"), pair("unseeded-c", "t2"), pair("c3", "unseeded-t")]
    found = paired_design(parse_pairs(pairs), METRIC, store)
    assert "2 of 3 pairs are unknown" in found.warnings[0]
    stated = [pair("unseeded-c", "unseeded-t", seed=4)]
    assert paired_design(parse_pairs(stated), METRIC, store).warnings == ()


def test_a_pair_with_an_unusable_run_is_excluded_and_named(store: Store) -> None:
    pairs = [pair("c1", "t1"), pair("c2", "nobody"), pair("dead", "t3"), pair("c3", "t2x")]
    found = paired_design(parse_pairs(pairs), METRIC, store)
    assert len(found.control) == 1
    reasons = {item.name: item.reason for item in found.unusable}
    assert set(reasons) == {"c2", "nobody", "dead", "t3", "c3", "t2x"}
    assert "partner 'nobody'" in reasons["c2"]
    assert "crashed" in reasons["dead"]


def test_a_run_cannot_be_in_both_arms(store: Store) -> None:
    with pytest.raises(UsageError, match="a control and a candidate"):
        unpaired_design(["c1", "c2"], ["t1", "c2"], METRIC, store)


def test_groups_with_equal_seeds_stay_unpaired_with_a_hint_to_pair_them(
    store: Store,
) -> None:
    found = unpaired_design(["c1", "c2"], ["t2", "t1"], METRIC, store)
    assert not found.paired
    assert found.notes[-1].endswith("add --pair-by-seed")
    apart = unpaired_design(["c1", "c2"], ["t2", "t3"], METRIC, store)
    assert "--pair-by-seed" not in " ".join(apart.notes)


def test_runs_are_paired_by_seed_and_unpaired_ones_are_named(store: Store) -> None:
    found = seed_design(["c2", "c1", "unseeded-c", "dead"], ["t1", "t2", "t3"], METRIC, store)
    assert found.paired
    assert found.seeds == (2, 1)
    assert [run.name for run in found.control] == ["c2", "c1"]
    assert [run.name for run in found.candidate] == ["t2", "t1"]
    reasons = {run.name: run.reason for run in found.unusable}
    assert set(reasons) == {"unseeded-c", "dead", "t3"}
    assert "its seed is unknown" in reasons["unseeded-c"]
    assert reasons["t3"] == "its partner 'dead' cannot be used"
    alone = seed_design(["c1", "c2", "c3"], ["t1", "t2"], METRIC, store)
    assert [run.reason for run in alone.unusable] == ["no candidate run has its seed, 3"]


def test_an_arm_with_a_repeated_seed_cannot_be_paired_by_seed(
    store: Store, tmp_path: Path
) -> None:
    twin = write_run(tmp_path / "twin.csv", 1.0, seed=1)
    with pytest.raises(UsageError, match=r"control runs 'c1' and '.*twin\.csv' have the same"):
        seed_design(["c1", str(twin)], ["t1", "t2"], METRIC, store)


def test_networks_that_differ_in_size_by_a_tenth_are_noted() -> None:
    def arm(**sizes: object) -> list[TrainingRun]:
        return [TrainingRun(id="a", configuration=sizes), TrainingRun(id="b")]

    assert find_capacity_gaps(arm(parameters=1000), arm(parameters=1099)) == ()
    assert find_capacity_gaps(arm(parameters=1000), arm(flops_per_step=5)) == ()
    assert find_capacity_gaps(arm(parameters="many"), arm(parameters=0)) == ()
    (gap,) = find_capacity_gaps(
        arm(parameters=1_000_000, flops_per_step=10),
        arm(parameters=1_210_000, flops_per_step=10.5),
    )
    assert gap.sentence.startswith(
        "Capacity differs: the candidate has 21% more parameters than the control "
        "(1,210,000 against 1,000,000)"
    )
    (less,) = find_capacity_gaps(arm(flops_per_step=10), arm(flops_per_step="8"))
    assert "20% fewer FLOPs per step" in less.sentence


@pytest.mark.extras
def test_an_open_list_of_controls_ends_before_the_candidates(tmp_path: Path) -> None:
    runs = [make_run(f"run{at}", at, 1.0) for at in range(1, 7)]
    store = store_with(tmp_path / "t.duckdb", runs)
    found = unpaired_design(["run1", "..."], ["run4", "..."], METRIC, store)
    assert [len(found.control), len(found.candidate)] == [3, 3]

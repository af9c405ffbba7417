"""A plan fixes an analysis in advance; deviations from it are reported."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from assay.errors import UsageError
from assay.judge.plans import AnalysisPlan
from assay.stats.learning_curves import SummarySpec
from assay.store.plans import store_plan
from assay.store.store import Store
from assay.training.analysis import analyse, find_deviations
from assay.training.analysis_settings import (
    describe_summary,
    make_settings,
    make_summary,
    read_plan,
)
from assay.training.gather import RunPlace
from tests.training.analysis_cases import make_design
from tests.training.made import level_of

PLAN = """
metric = "overview/reward"
alpha = 0.01
n = 15
paired = true
[summary]
type = "last_n"
n = 3
[test]
method = "studentised"
side = "greater"
"""


def read(path: Path, text: str = PLAN) -> AnalysisPlan:
    path.write_text(text, "utf-8")
    return read_plan(path)


def differences(
    plan: AnalysisPlan,
    folder: Path,
    *,
    given: Mapping[str, Any] = MappingProxyType({}),
    summary: Mapping[str, Any] = MappingProxyType({}),
    n: tuple[int, int] = (15, 15),
    paired: bool = True,
    seen: Sequence[str] = ("old1",),
    files: int = 0,
    registered: bool = True,
) -> list[str]:
    """Return the deviations of an analysis of this number of runs, some from files."""
    levels = [[level_of(at + 50 * arm) for at in range(n[arm])] for arm in (0, 1)]
    design = make_design(levels[0], levels[1], paired)
    of_files = [replace(run, place=RunPlace.FILE) for run in design.control[:files]]
    design = replace(design, control=(*of_files, *design.control[files:]))
    store = Store(folder / "plans.duckdb")
    if registered:
        with store.writing() as connection:
            store_plan(connection, plan.hash, plan.content, seen)
    settings = make_settings(given, summary, plan.content)
    return find_deviations(plan, analyse(design, settings), store)


def test_a_plan_sets_options_that_are_not_given(tmp_path: Path) -> None:
    plan = read(tmp_path / "plan.toml")
    settings = make_settings({"ttest": True, "alpha": None}, {}, plan.content)
    assert (settings.alpha, settings.method, settings.side) == (0.01, "studentised", "greater")
    assert settings.summary == SummarySpec(type=settings.summary.type, n=3)
    assert differences(plan, tmp_path) == []


def test_the_hash_of_a_plan_depends_only_on_its_meaning(tmp_path: Path) -> None:
    plan = read(tmp_path / "plan.toml")
    same = read(
        tmp_path / "b.toml", PLAN.replace("\n[", "\n\n # words\n[").replace("0.01", "1e-2")
    )
    assert plan.hash == same.hash
    assert plan.hash != read(tmp_path / "c.toml", PLAN.replace("15", "16")).hash
    text = '{"n": 15, "metric": "m", "summary": {"percent": 0.25}}'
    spelled = 'metric = "m"\nn = 15\nalpha = 0.05\n'
    assert read(tmp_path / "a.json", text).hash == read(tmp_path / "d.toml", spelled).hash


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"given": {"metric": "loss"}}, "metric: the plan has overview/reward"),
        ({"given": {"alpha": 0.05}}, "alpha: the plan has 0.01, the analysis used 0.05"),
        ({"given": {"method": "bca"}}, "method: the plan has studentised"),
        ({"given": {"side": "less"}}, "side:"),
        ({"summary": {"n": 7}}, "summary.n: the plan has 3, the analysis used 7"),
        ({"summary": {"type": "final"}}, "summary.type"),
        ({"n": (15, 12), "paired": False}, "15 runs per arm, there are 15 and 12"),
        ({"n": (20, 20)}, "n: the plan says 15 pairs, there are 20"),
        ({"paired": False}, "the plan says paired, this is unpaired"),
        ({"seen": ["c3", "old1"]}, "1 of the runs were in the store"),
        ({"files": 3}, "3 runs come from files"),
        ({"registered": False}, "never registered"),
    ],
    ids=str,
)
def test_a_deviation_is_reported(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    found = differences(read(tmp_path / "plan.toml"), tmp_path, **changes)
    assert any(words in deviation for deviation in found), found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("metric = ", "cannot be read", id="no TOML"),
        pytest.param("n = 5", "metric is missing", id="no metric"),
        pytest.param('metric = "m"', "n is missing", id="no n"),
        pytest.param('metric = "m"\nn = 1', "n is 1", id="one run"),
        pytest.param('metric = "m"\nn = "5"', "n is '5'", id="n of letters"),
        pytest.param('metric = "m"\nn = true', "n is True", id="n of truth"),
        pytest.param('metrik = "m"\nn = 5', "did you mean 'metric'?", id="mistyped"),
        pytest.param('metric = "m"\nn = 5\nalpha = 2', "alpha 2 is not", id="alpha"),
        pytest.param('metric = "m"\nn = 5\nsummary = 1', "summary is 1", id="summary"),
        pytest.param(
            'metric = "m"\nn = 5\n[summary]\ntype = "auk"', "did you mean 'auc'?", id="type"
        ),
        pytest.param(
            'metric = "m"\nn = 5\n[summary]\npercent = 0.5\nstep_min = 3',
            "percent",
            id="two windows",
        ),
        pytest.param('metric = "m"\nn = 5\n[test]\nsize = 1', "test.size", id="test"),
    ],
)
def test_an_invalid_plan_is_rejected_with_a_message(
    text: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path / "plan.toml", text)
    assert words in str(caught.value)
    assert "plan.toml" in str(caught.value)


def test_a_missing_plan_is_rejected_with_a_message(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_plan(tmp_path / "plan.toml")


def test_a_given_summary_or_window_replaces_the_window_of_a_plan() -> None:
    plan = {"summary": {"type": "auc", "percent": 0.5}}
    bounds = make_settings({}, {"step_min": 10.0}, plan).summary
    assert (bounds.percent, bounds.step_min) == (None, 10.0)
    other = make_settings({}, {"type": "final"}, plan).summary
    assert other.percent is None
    back = make_settings({}, {"percent": 0.1}, {"summary": {"type": "auc", "step_min": 1.0}})
    assert (back.summary.percent, back.summary.step_min) == (0.1, None)


def test_the_area_uses_the_last_quarter_and_other_summaries_the_whole_curve() -> None:
    assert make_summary({}).percent == 0.25
    assert make_summary({"step_max": 9.0}).percent is None
    assert make_summary({"type": "last_n"}).percent is None
    assert "last 0.25 of the steps" in describe_summary(make_summary({}))


@pytest.mark.parametrize(
    ("given", "summary", "words"),
    [
        ({}, {"percent": 0.5, "step_min": 1.0}, "percent"),
        ({}, {"type": "time_to_threshold"}, "--summary.threshold"),
        ({}, {"percent": 0.0}, "percent"),
        ({}, {"percent_window": "first", "step_min": 1.0}, "has no effect"),
        ({}, {"percent_window": "first", "type": "final"}, "has no effect"),
        ({}, {"n": 0, "type": "last_n"}, "0"),
        ({"alpha": 1.0}, {}, "alpha 1.0"),
        ({"alpha": 1e-17}, {}, "alpha 1e-17"),
        ({"n_resamples": 10**12}, {}, "too many"),
        ({"n_resamples": 5}, {}, "n_resamples 5"),
        ({"seed": -1}, {}, "seed -1"),
        ({"target_effect_size": 0.0}, {}, "(got 0.0)"),
        ({"target_power": 1.5}, {}, "power 1.5"),
        ({"metric": ""}, {}, "no name"),
        ({"method": "bcaa"}, {}, "did you mean 'bca'?"),
    ],
    ids=str,
)
def test_an_invalid_setting_is_rejected_with_a_message(
    given: dict[str, Any], summary: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        make_settings(given, summary)
    assert words in str(caught.value)

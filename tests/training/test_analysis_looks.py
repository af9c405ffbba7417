"""Interim analyses of a growing set of runs are corrected as one sequence."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from duckdb import DuckDBPyConnection

import assay
from assay.errors import StoreError
from assay.judge.looks import AnalysisLook, LookRule, RecordedLook, settle_look
from assay.judge.plans import AnalysisPlan
from assay.stats.differences import paired_difference
from assay.stats.intervals import Side
from assay.store.store import Store
from assay.training.analysis_settings import read_plan
from tests.support import Program
from tests.training.made import METRIC, level_of, make_run, store_with, write_run

COUNTS = (15, 20, 25, 30)
SETS = 10_000
PLAN = f"""
metric = "{METRIC}"
n = 6
looks = [4, 6]
paired = true
"""


@pytest.fixture
def analysis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Program:
    monkeypatch.chdir(tmp_path)
    train(4)
    return Program("analysis", "--database", "t.duckdb", "--bootstrap.n_resamples=100")


def train(seeds: int) -> None:
    """Train a control and a candidate with this number of seeds."""
    store_with(
        Path("t.duckdb"),
        [
            make_run(f"{arm}{seed}", seed, level_of(seed + 100 * (arm == "b")), series=arm)
            for arm in ("a", "b")
            for seed in range(seeds)
        ],
    )


ARMS = ["--control", "a", "--candidate", "b", "--pair-by-seed"]


def test_a_second_look_at_an_extended_set_is_noted_and_has_a_wider_interval(
    analysis: Program,
) -> None:
    first = analysis(*ARMS)
    assert "look" not in first.output.lower()
    train(6)
    found = analysis.json(*ARMS)
    look = found["look"]
    assert (look["number"], look["rule"], look["recorded"]) == (2, "unplanned", True)
    [earlier] = look["earlier"]
    assert (earlier["n"], earlier["alpha"]) == ({"control": 4, "candidate": 4}, 0.05)
    assert 0.0025 < look["alpha"] < 0.05
    assert look["error_of_all_looks"] == pytest.approx(0.0525, abs=1e-5)
    low, high = paired(found, look["alpha"])
    assert (found["difference"]["low"], found["difference"]["high"]) == (low, high)
    analysis(*ARMS, "--output.report", "report.html", "--output.csv_path", "rows.csv")
    words = "Look 2 at this comparison, not planned; earlier: 4 pairs on "
    for file in ("report.html", "rows.csv"):
        assert words in Path(file).read_text("utf-8")
    assert words in analysis(*ARMS, "--quiet").errors


def paired(found: dict[str, dict[str, list[dict[str, float]]]], alpha: float) -> list[float]:
    values = [[run["value"] for run in found[arm]["runs"]] for arm in ("control", "candidate")]
    return list(paired_difference(*values, level=1 - alpha))[1:]


def test_repeating_an_analysis_of_the_same_runs_is_the_same_look(analysis: Program) -> None:
    first = analysis.json(*ARMS)
    assert first["look"]["sentence"] is None
    assert analysis.json(*ARMS)["look"] == first["look"]
    train(6)
    second = analysis.json(*ARMS)["look"]
    assert analysis.json(*ARMS)["look"] == second
    ids = ["--control-run-ids", "a0", "...", "a3", "--candidate-run-ids", "b0", "...", "b3"]
    assert analysis.json(*ids, "--pair-by-seed") == first
    with Store(Path("t.duckdb")).reading() as connection:
        rows = connection.execute("SELECT look, plan FROM analysis_looks ORDER BY look")
        assert rows.fetchall() == [(1, None), (2, None)]


def test_another_metric_summary_or_partner_is_another_comparison(analysis: Program) -> None:
    analysis(*ARMS)
    store_with(Path("t.duckdb"), [make_run(f"c{seed}", seed, 1.0 + seed) for seed in range(4)])
    train(6)
    others = ["--control-run-ids", "a0", "...", "a3", "--candidate-run-ids", "c0", "...", "c3"]
    for more in (
        [*ARMS, "--metric", "loss"],
        [*ARMS, "--summary.type", "final"],
        [*others, "--pair-by-seed"],
    ):
        assert analysis.json(*more)["look"]["number"] == 1


def test_a_set_with_a_replaced_run_counts_earlier_looks(analysis: Program) -> None:
    analysis(*ARMS)
    train(5)
    ids = ["--control-run-ids", "a1", "...", "a4", "--candidate-run-ids", "b1", "...", "b4"]
    look = analysis.json(*ids, "--pair-by-seed")["look"]
    assert (look["number"], look["rule"]) == (2, "unplanned")
    assert look["alpha"] == pytest.approx(0.0025)
    assert look["error_of_all_looks"] == pytest.approx(0.0525)


def test_planned_looks_share_alpha_and_are_counted(analysis: Program) -> None:
    Path("plan.toml").write_text(PLAN, "utf-8")
    planned = ["--plan", "plan.toml", *ARMS]
    done = analysis(*planned)
    assert "Look 1 of 2, planned after 4 and 6 pairs: its interval has" in done.output
    train(6)
    found = analysis.json(*planned)
    look = found["look"]
    assert (look["number"], look["rule"], look["planned"]) == (2, "obrien-fleming", [4, 6])
    assert look["error_of_all_looks"] == pytest.approx(0.05, abs=1e-6)
    assert found["plan_deviations"] is not None
    assert not any("n:" in line or "looks:" in line for line in found["plan_deviations"])
    assert analysis.json(*ARMS)["look"]["earlier"] == look["earlier"]


def test_an_unplanned_look_is_reported_as_a_deviation_from_the_plan(analysis: Program) -> None:
    Path("plan.toml").write_text(PLAN, "utf-8")
    analysis(*ARMS)
    train(6)
    found = analysis.json("--plan", "plan.toml", *ARMS)
    assert found["look"]["rule"] == "unplanned"
    assert any(
        line.startswith("looks: 1 look at these runs before this one did not follow the plan")
        for line in found["plan_deviations"]
    )


def test_an_unplanned_number_of_pairs_spends_its_share_of_alpha(
    analysis: Program,
) -> None:
    Path("plan.toml").write_text(PLAN, "utf-8")
    planned = ["--plan", "plan.toml", *ARMS]
    train(5)
    found = analysis.json(*planned)
    assert "n: the plan says 4 or 6 pairs, there are 5" in found["plan_deviations"]
    train(6)
    look = analysis.json(*planned)["look"]
    # After 5 pairs, and as if after 4.
    assert (look["number"], len(look["earlier"])) == (3, 1)
    assert look["alpha"] < 0.05


def test_looks_at_files_and_read_only_databases_are_noted_as_not_recorded(
    analysis: Program, tmp_path: Path
) -> None:
    files = []
    for arm, gain in (("control", 0.0), ("candidate", 0.2)):
        names = [f"{arm}.seed{at}.csv" for at in range(4)]
        for at, name in enumerate(names):
            write_run(Path(name), level_of(at + int(100 * gain)), seed=at)
        files += [f"--{arm}-run-ids", *names]
    assert "record" not in analysis(*files, "--pair-by-seed").output
    Path("plan.toml").write_text(PLAN, "utf-8")
    done = analysis(*files, "--pair-by-seed", "--plan", "plan.toml")
    words = "This look is not recorded, because not all runs are in the database"
    assert words in " ".join(done.output.split())
    arms: dict[str, Any] = {"control_series": "a", "candidate_series": "b"}
    assay.analysis(database="t.duckdb", **arms)
    train(6)
    found = assay.analysis(database=ReadOnly(tmp_path / "t.duckdb"), **arms).analysis
    assert found.look is not None
    assert "because the database cannot be written" in (found.look.sentence or "")


class ReadOnly(Store):
    """A database on a read-only disk."""

    @contextmanager
    def writing(self, *, beside: Path | None = None) -> Iterator[DuckDBPyConnection]:
        raise StoreError("it cannot be opened: Read-only file system")
        yield


def test_an_extended_set_without_a_recorded_look_is_noted(analysis: Program) -> None:
    launched = {"launch": {"extended_from": 4}}
    runs = [
        make_run(f"{arm}{seed}", seed, level_of(seed + 50), series=arm, provenance=launched)
        for arm in ("a", "b")
        for seed in (4, 5)
    ]
    runs = [replace(run, id=f"x{run.id}") for run in runs]
    store_with(Path("t.duckdb"), runs)
    words = "An arm was extended from 4 runs, and no look at those is on record"
    assert words in " ".join(analysis(*ARMS).output.split())
    assert analysis.json(*ARMS)["look"]["alpha"] == 0.05


def ids(pairs: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the run ids of both arms."""
    control, candidate = (tuple(f"{arm}{at:02}" for at in range(pairs)) for arm in ("a", "b"))
    return control, candidate


def looked(plan: AnalysisPlan | None = None) -> list[AnalysisLook]:
    """Return the results of `assay analysis` at looks after these numbers of pairs."""
    made: list[AnalysisLook] = []
    records: list[RecordedLook] = []
    for count in COUNTS:
        control, candidate = runs = ids(count)
        look = settle_look(
            runs, paired=True, alpha=0.05, side=Side.TWO_SIDED, plan=plan, looks=records
        )
        made.append(look)
        records.append(
            RecordedLook(
                control=control,
                candidate=candidate,
                estimate=0.0,
                low=0.0,
                high=0.0,
                verdict="undecided",
                look=look.number,
                alpha=look.two_sided,
                plan=look.plan,
            )
        )
    return made


def test_looks_at_an_extended_set_keep_the_error_rate(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Four looks at 15 to 30 pairs without a difference: 10.8 % are wrong if uncorrected."""
    text = f'metric = "{METRIC}"\nn = 30\nlooks = {list(COUNTS)}'
    (tmp_path / "plan.toml").write_text(text, "utf-8")
    rng = np.random.default_rng(15)
    values_S_N = rng.standard_normal((SETS, COUNTS[-1]))
    n = np.array(COUNTS)
    sums, squares = (part.cumsum(axis=1)[:, n - 1] for part in (values_S_N, values_S_N**2))
    t = np.abs(sums) * np.sqrt((n - 1) / (n * (squares - sums**2 / n)))
    # No look has a bound below 2, so that the other sets pass none.
    near_S_N = values_S_N[(t > 2).any(axis=1)]
    for name, promised, plan in (
        ("planned", 0.05, read_plan(tmp_path / "plan.toml")),
        ("unplanned", 0.05 * 1.1, None),
    ):
        looks = looked(plan)
        assert looks[-1].error <= promised + 1e-6
        wrong = 0
        for values in near_S_N:
            for count, look in zip(COUNTS, looks, strict=True):
                zeros = np.zeros(count)
                found = paired_difference(zeros, values[:count], level=1 - look.alpha)
                if not found.low <= 0 <= found.high:
                    wrong += 1
                    break
        record_property("note", f"{name} looks: {wrong / SETS:.2%} of {SETS:,} sets wrong")
        assert wrong / SETS <= promised + 2 * np.sqrt(promised / SETS)
    assert [look.rule for look in looks] == [LookRule.SINGLE, *[LookRule.UNPLANNED] * 3]


def test_a_one_sided_look_has_the_alpha_of_one_side() -> None:
    look = settle_look(ids(15), paired=True, alpha=0.05, side=Side.GREATER, plan=None, looks=[])
    assert (look.alpha, look.two_sided) == (0.05, 0.1)
    assert look.error == pytest.approx(0.05)

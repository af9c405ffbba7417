"""`assay analysis` from the command line."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.cli import app
from assay.training.config import TrainingConfig
from tests.support import Program
from tests.training.made import METRIC, level_of, make_run, store_with, write_run

PAIRS = [
    '{"control": "control_run1", "candidate": "treatment_run1"}',
    '{"control": "control_run2", "candidate": "treatment_run2"}',
]
LARGER = "the candidate has 30% more parameters than the control (1,300 against 1,000)"
PLAN = f"""
metric = "{METRIC}"
n = 3
paired = false
[summary]
type = "final"
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "t.duckdb"
    runs = []
    for at in range(1, 7):
        new = at > 3
        facts = {
            "series": "trxl" if new else "vit",
            "configuration": {"parameters": 1300 if new else 1000, "flops_per_step": 50},
        }
        runs.append(make_run(f"run{at}", at % 3, level_of(at, 0.1 * new), **facts))
    for at in (1, 2):
        runs.append(make_run(f"control_run{at}", None, level_of(at)))
        runs.append(make_run(f"treatment_run{at}", None, level_of(at, 0.2 + at / 100)))
    store_with(path, runs)
    return path


@pytest.fixture
def analysis(
    stored: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Program:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_DATABASE", str(stored))
    return Program("analysis")


GROUPS = ["--control-run-ids", "run1", "run2", "run3", "--candidate-run-ids", "run4", "..."]


def test_paired_command_line_of_the_specification_works(analysis: Program) -> None:
    done = analysis(
        *("--pairs", *PAIRS, "--metric", METRIC, "--summary.type", "auc"),
        *("--bootstrap.n_resamples", "10000", "--output.csv_path", "results.csv"),
    )
    assert done.code == 0, done.errors
    assert "difference, candidate - control" in done.output
    assert "cannot be checked" in " ".join(done.output.split())
    assert "wrote results.csv" in done.output
    rows = list(csv.DictReader(Path("results.csv").read_text("utf-8").splitlines()))
    assert [row["run"] for row in rows if row["kind"] == "run"] == [
        *("control_run1", "control_run2", "treatment_run1", "treatment_run2"),
    ]


def test_groups_are_compared_unpaired_and_the_paired_command_is_named(
    analysis: Program,
) -> None:
    done = analysis(*GROUPS, "--metric", METRIC)
    assert done.code == 0, done.errors
    assert "permutation test" in done.output
    assert "add --pair-by-seed" in " ".join(done.output.split())
    assert "for information only" in done.output


def test_paired_option_pairs_series_by_seed(analysis: Program) -> None:
    series = ["--control", "vit", "--candidate", "trxl", "--pair-by-seed"]
    found = analysis.json(*series, "--bootstrap.n_resamples", "100")
    pairs = [[run["name"] for run in found[arm]["runs"]] for arm in ("control", "candidate")]
    assert pairs == [["run1", "run2", "run3"], ["run4", "run5", "run6"]]
    assert found["seeds"] == [1, 2, 0]
    ids = ["--control-run-ids", "run1", "run3", "--candidate-run-ids", "run4", "...", "run6"]
    other = analysis.json(*ids, "--pair-by-seed", "--bootstrap.n_resamples", "100", code=3)
    assert other["seeds"] == [1, 0]
    assert other["left_out"] == [
        {"name": "run5", "reason": "no control run has its seed, 2", "seed": 2}
    ]


def test_different_capacity_of_arms_is_a_warning_in_every_output(analysis: Program) -> None:
    found = analysis(*GROUPS, "--json", "--bootstrap.n_resamples", "100")
    assert LARGER in found.errors
    [gap] = json.loads(found.output)["capacity"]
    assert (gap["name"], gap["control"], gap["candidate"]) == ("parameters", 1000, 1300)
    assert LARGER in gap["sentence"]


def test_matching_width_is_suggested_in_every_output(analysis: Program) -> None:
    wide = TrainingConfig(architecture="trxl", width=64)
    arms = {"a": configured(TrainingConfig()), "b": configured(wide), "c": foreign()}
    store_arms(Path("own.duckdb"), arms)
    where = ["--database", "own.duckdb", "--bootstrap.n_resamples", "100", "--control"]
    words = (
        "Train the candidate with --width 32: 114,146 parameters, 2.8 % fewer than the "
        "control, and 1,002,880 FLOPs per step, 0.4 % fewer than the control."
    )
    done = analysis(*where, "a", "--candidate", "b", "--output.report", "report.html")
    assert words in " ".join(done.output.split())
    assert words in Path("report.html").read_text("utf-8")
    gap, other = analysis.json(*where, "a", "--candidate", "b")["capacity"]
    assert gap["sentence"].endswith(words)
    nearest = {"width": 32, "parameters": 114_146, "flops_per_step": 1_002_880}
    settings = {"arm": "candidate", "nearest": nearest, "matches": True, "sentence": words}
    assert gap["advice"] == settings
    assert other["advice"] is None
    [gap] = analysis.json(*where, "a", "--candidate", "c")["capacity"]
    assert "Train the control with --width 16:" in gap["sentence"]
    [gap] = analysis.json(*where, "a", "--candidate", "d")["capacity"]
    assert "No width of the control is within 10%; the nearest is --width 16:" in str(gap)
    [gap] = analysis.json(*where, "c", "--candidate", "d")["capacity"]
    assert gap["sentence"].endswith("Train models of one size, within 10%.")


def configured(config: TrainingConfig) -> dict[str, Any]:
    sizes = {"parameters": config.capacity.parameters, "flops_per_step": config.capacity.flops}
    return {**config.with_default_width().stored(), **sizes}


def foreign(parameters: int = 31_000) -> dict[str, Any]:
    """Return a configuration of another trainer with the network name of an assay network."""
    return {**TrainingConfig().with_default_width().stored(), "parameters": parameters}


def store_arms(path: Path, arms: dict[str, dict[str, Any]]) -> None:
    runs = [
        make_run(
            f"{arm}{at}", at, level_of(10 * at + place), series=arm, configuration=settings
        )
        for place, (arm, settings) in enumerate({**arms, "d": foreign(36_000)}.items())
        for at in range(3)
    ]
    store_with(path, runs)


@pytest.mark.extras
def test_every_analysis_option_has_its_output(analysis: Program) -> None:
    found = analysis.json(
        *GROUPS,
        *("--summary.type", "last_n", "--summary.n", "3", "--summary.step_min", "1000"),
        *("--bootstrap.method", "studentised", "--bootstrap.alpha", "0.1"),
        *("--bootstrap.side", "two-sided", "--bootstrap.seed", "9"),
        *("--ttest.enabled", "--power.enabled", "--power.target_effect_size", "0.3"),
        *("--power.power", "0.9", "--output.dir", "out", "--bootstrap.n_resamples", "500"),
    )
    assert found["settings"]["summary"]["n"] == 3
    assert found["settings"]["n_resamples"] == 500
    assert found["generator_seed"] == 9
    assert {test["name"] for test in found["tests"]} == {"permutation test", "Welch's t test"}
    assert found["power"]["needed"]["n"] >= 2
    assert set(found["effects"]) >= {"Hedges' g", "probability of improvement"}
    names = {file.name for file in Path("out").iterdir()}
    assert names == {
        *("learning_curves.png", "bootstrap_distribution.png", "radial.png"),
        *("analysis.csv", "analysis.json"),
    }
    written = json.loads(Path("out/analysis.json").read_text("utf-8"))
    assert written["difference"] == found["difference"]
    assert found["versions"]["scipy"]


def test_report_has_the_verdict_tables_and_figures(analysis: Program) -> None:
    done = analysis(*GROUPS, "--output.report", "report.html", "--bootstrap.n_resamples", "500")
    assert done.code == 0, done.errors
    assert "wrote report.html" in done.output
    assert LARGER in " ".join(done.output.split())
    page = Path("report.html").read_text("utf-8")
    assert page.count("<svg") == 3
    for words in ('class="callout"', "candidate - control", "generator seed", LARGER):
        assert words in page


def test_unknown_report_format_is_rejected_before_the_analysis(analysis: Program) -> None:
    assert "choose from: .html, .md, .json, .csv" in analysis.error(
        *GROUPS, "--output.report", "report.pdf"
    )


@pytest.mark.parametrize(
    "option",
    [
        "--summary.percent_window first",
        "--summary.normalize_steps",
        "--summary.no-normalize_steps",
        "--summary.step_max 5",
        "--bootstrap.n-resamples 100",
        "--output.print_table",
        "--output.no-print_table",
        "--power.target-effect-size 1",
    ],
)
def test_options_parse_with_dots_and_underscores(option: str) -> None:
    app.parse_args(["analysis", *option.split()], exit_on_error=False, print_error=False)


def test_output_without_table_prints_warnings_to_standard_error(analysis: Program) -> None:
    more = ["--candidate-run-ids", "run4", "run5", "nobody"]
    done = analysis("--control-run-ids", "run1", "run2", *more, "--output.no-print_table")
    assert done.code == 3
    assert done.output.count("\n") == 1
    assert "nobody is excluded" in done.errors


def test_analysis_is_checked_against_its_registered_plan(analysis: Program) -> None:
    Path("plan.toml").write_text(PLAN, "utf-8")
    fresh = ["--plan", "plan.toml", "--database", "new.duckdb"]
    first = analysis.json(*fresh, "--register")
    assert (first["registered"], first["seen"]) == (True, [])
    again = analysis.json(*fresh, "--register")
    assert (again["registered"], again["created_at"]) == (False, first["created_at"])
    store_with(Path("new.duckdb"), [make_run(f"a{at}", at, level_of(at)) for at in range(6)])
    names = ["--control-run-ids", "a0", "a1", "a2", "--candidate-run-ids", "a3", "a4", "a5"]
    kept = analysis(*fresh, *names)
    assert "The analysis follows its plan." in kept.output
    assert "final value" in kept.output
    broken = analysis.json(*fresh, *names[:-1], "--bootstrap.alpha", "0.1")
    assert len(broken["plan_deviations"]) == 2


@pytest.mark.extras
def test_runs_older_than_the_plan_and_unregistered_plans_are_reported(
    analysis: Program, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("plan.toml").write_text(PLAN, "utf-8")
    shutil.copy(stored, "copy.duckdb")
    monkeypatch.setenv("ASSAY_DATABASE", "copy.duckdb")
    done = analysis(*GROUPS, "--plan", "plan.toml")
    assert "never registered" in done.output
    assert "10 runs with its metric" in analysis("--plan", "plan.toml", "--register").output
    done = analysis(*GROUPS, "--plan", "plan.toml")
    assert "6 of the runs were in the store when the plan was registered" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give the runs"),
        (["--control-run-ids", "run1", "run2"], "give the runs"),
        (["--pairs", *PAIRS, *GROUPS], "give either --pairs"),
        (["--pairs", *PAIRS, "--pair-by-seed"], "--pairs or --pair-by-seed, not both"),
        ([*GROUPS, "--control", "vit"], "--control or --control-run-ids, not both"),
        (["--control", "vat", "--candidate", "trxl"], "did you mean 'vit'?"),
        (["--pairs", "run1"], "is not valid JSON"),
        (["--pairs", '{"control": "run1", "candidate": "run5"}'], "different seeds"),
        (["--pairs", PAIRS[0]], "1 pair can be used"),
        ([*GROUPS, "--metric", "speed"], "choose from: loss, overview/reward"),
        ([*GROUPS, "--summary.percent", "0.5", "--summary.step_min", "3"], "percent"),
        (
            [*GROUPS, "--summary.percent_window", "first", "--summary.step_min", "3"],
            "has no effect",
        ),
        ([*GROUPS, "--summary.type", "time_to_threshold"], "--summary.threshold"),
        ([*GROUPS, "--summary.type", "mean"], "--summary.type"),
        ([*GROUPS, "--bootstrap.alpha", "5"], "alpha 5.0"),
        ([*GROUPS, "--plan", "none.toml"], "No such file"),
        ([*GROUPS, "--bootstrap.n_resamples", "1000000000000"], "too many"),
        ([*GROUPS, "--output.dir", "a.file"], "'a.file' is a file"),
        ([*GROUPS, "--output.csv_path", "."], "is a folder"),
        (["--register"], "--plan FILE"),
        (["--plan", "plan.toml", "--register", "--metric", "loss"], "plan file unchanged"),
        (
            ["--plan", "plan.toml", "--register", "--bootstrap.alpha", "0.1"],
            "plan file unchanged",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[-40:],
)
def test_wrong_command_line_gets_a_clear_error(
    arguments: list[str], words: str, analysis: Program
) -> None:
    Path("plan.toml").write_text(PLAN, "utf-8")
    Path("a.file").touch()
    assert words in analysis.error(*arguments)


def test_files_with_the_same_name_in_two_folders_are_two_runs(analysis: Program) -> None:
    pairs = []
    for seed in (1, 2, 3):
        for arm, gain in (("control", 0.0), ("candidate", 0.1)):
            write_run(Path(arm) / f"seed{seed}.csv", level_of(seed, gain + seed / 1000))
        pairs.append({arm: f"{arm}/seed{seed}.csv" for arm in ("control", "candidate")})
    found = analysis.json("--pairs", json.dumps(pairs), "--database", "none.duckdb")
    assert found["seeds"] == [1, 2, 3]
    assert found["warnings"] == []
    assert found["pairing"]["saved"] > 0.9
    hash_ = found["control"]["runs"][0]["provenance"]["file_hash"]
    assert len(hash_) == 32

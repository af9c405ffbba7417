"""`assay variance` from the command line."""

from pathlib import Path

import pytest

from assay.store.training_runs import TrainingStatus
from tests.support import Program
from tests.training.made import METRIC, level_of, make_run, store_with, write_run

RUNS = [f"run{at}" for at in range(1, 16)]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "t.duckdb"
    runs = [make_run(name, at, level_of(at)) for at, name in enumerate(RUNS)]
    runs.append(make_run("dead", 99, 1.0, status=TrainingStatus.CRASHED))
    store_with(path, runs)
    return path


@pytest.fixture
def variance(
    stored: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Program:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_DATABASE", str(stored))
    return Program("variance")


@pytest.mark.extras
def test_command_line_of_the_specification_works(variance: Program) -> None:
    done = variance(
        *RUNS, "--metric", METRIC, "--threshold", "0.05", "--output", "variance_plot.png"
    )
    assert done.code == 0, done.errors
    assert "plain rule: minimum N, sd / mean below 5 %" in done.output
    assert "relative standard error at N = 15" in done.output
    assert "The plain rule misleads" in done.output
    assert "figure: variance_plot.png" in done.output
    assert Path("variance_plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("ending", "start"), [(".md", "# overview/reward: 3 runs"), (".csv", "metric,summary,runs")]
)
def test_a_report_is_written_instead_of_the_figure(
    ending: str, start: str, variance: Program
) -> None:
    done = variance(*RUNS[:3], "--output", f"report{ending}")
    assert done.code == 0, done.errors
    assert f"report: report{ending}" in done.output
    assert Path(f"report{ending}").read_text("utf-8").startswith(start)
    assert not Path("variance_analysis.png").exists()


@pytest.mark.extras
def test_a_page_has_the_figure(variance: Program) -> None:
    variance(*RUNS[:3], "--output", "report.html")
    assert Path("report.html").read_text("utf-8").count("<svg") == 1


@pytest.mark.extras
def test_ellipsis_expands_to_the_runs_between_with_default_options(variance: Program) -> None:
    found = variance.json("run1", "run2", "run3", "...", "run15")
    assert [run["name"] for run in found["runs"]] == RUNS
    assert (found["metric"], found["threshold"]) == (METRIC, 0.05)
    assert found["figure"] == "variance_analysis.png"
    assert Path("variance_analysis.png").exists()
    auc = found["summaries"]["auc"]
    assert auc["relative_standard_error"]["low"] < auc["relative_standard_error"]["point"]
    for name in ("n_for_precision", "n_two_arms", "n_paired"):
        needed = auc[name]
        assert needed["low"] <= needed["n"] <= needed["high"]


@pytest.mark.extras
def test_runs_that_are_missing_or_crashed_are_named(variance: Program) -> None:
    done = variance("run1", "dead", "run2", "...", "run4", "nobody")
    assert done.code == 3
    assert "4 runs" in done.output
    assert "dead: it crashed" in done.output
    assert "nobody: unknown training run" in done.output


@pytest.mark.extras
def test_files_are_accepted_as_runs(variance: Program) -> None:
    files = [str(write_run(Path(f"seed{at}.csv"), level_of(at))) for at in range(3)]
    found = variance.json(*files, "--summary.percent", "0.5", "--database", "none.duckdb")
    assert [run["seed"] for run in found["runs"]] == [0, 1, 2]
    assert "last 0.5" in found["summaries"]["auc"]["summary"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give two or more runs"),
        (["run1"], "1 of 1 runs can be used"),
        (
            ["run1", "nobody"],
            "only 1 of 2 runs can be used, and a variance needs two; name more runs (nobody",
        ),
        (["run1", "run1"], "named twice"),
        (["run1", "run2", "--metric", "rewards"], "choose from: loss, overview/reward"),
        (["run1", "run2", "--threshold", "0"], "finite number above 0"),
        (["run1", "run2", "--output", "plot.pdf"], "neither a PNG file"),
        (["run1", "run2", "--summary.type", "final"], "uses the area and the slope"),
        (["run1", "run2", "--summary.percent", "0.5", "--summary.step_min", "5"], "percent"),
        (["run1", "run2", "--correlation", "1"], "correlation 1.0"),
        (["run1", "run2", "--power", "2"], "power 2.0"),
        (["run1", "run2", "--power", "0.01"], "between alpha (0.05) and 1"),
        (["run1", "run2", "--alpha", "0"], "alpha 0.0"),
        (["run1", "run2", "--output", "folder.png"], "is a folder"),
    ],
    ids=str,
)
def test_wrong_command_line_gets_a_clear_error(
    arguments: list[str], words: str, variance: Program
) -> None:
    Path("folder.png").mkdir()
    assert words in variance.error(*arguments)
    assert not Path("variance_analysis.png").exists()

"""`assay curves` from the command line."""

import json
import sys
from pathlib import Path

import pytest

from tests.support import Program
from tests.training.made import METRIC, write_csv, write_run


@pytest.fixture
def curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Program:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_DATABASE", "t.duckdb")
    return Program("curves")


def test_runs_are_imported_once_listed_and_shown(curves: Program) -> None:
    write_run(Path("base.seed1072.csv"), 1.0, subject="vit_reset")
    write_run(Path("base.seed2043.csv"), 1.1, subject="vit_reset")
    files = ["base.seed1072.csv", "base.seed2043.csv"]
    first = curves("import", *files, "--series", "baseline", "--task", "terrain_2")
    assert first.code == 0
    assert "base.seed1072: added, 1 metrics, 21 points, seed 1072, finished" in first.output
    assert "2 added in t.duckdb" in first.output
    again = curves.json("import", *files, "--series", "baseline", "--task", "terrain_2")
    assert [run["result"] for run in again["runs"]] == ["present", "present"]
    listed = curves("list").output
    assert "base.seed2043" in listed
    assert "vit_reset" in listed
    assert "100,000" in listed
    assert curves("list", "--quiet").output.split() == ["base.seed1072", "base.seed2043"]
    assert len(curves.json("list", "--series", "baseline")["runs"]) == 2
    assert "did you mean 'baseline'?" in curves.error("list", "--series", "basline")
    shown = curves("show", "base.seed1072").output
    assert "seed: 1072" in shown
    assert METRIC in shown
    assert "series: baseline" in shown


def test_runs_are_listed_in_natural_order(curves: Program) -> None:
    names = [f"run{at}.csv" for at in (10, 9, 1, 2)]
    for name in names:
        write_run(Path(name), 1.0)
    first = curves("import", *names).output.splitlines()
    assert [line.partition(":")[0] for line in first[:4]] == ["run1", "run2", "run9", "run10"]
    assert curves("list", "--quiet").output.split() == ["run1", "run2", "run9", "run10"]
    assert "choose from: run1, run2, run9, run10" in curves.error("show", "nobody")


@pytest.mark.extras
def test_runs_of_other_trackers_are_imported_from_their_folders(curves: Program) -> None:
    folder = Path(__file__).parents[1] / "golden" / "curves"
    done = curves("import", str(folder / "wandb"), str(folder / "tensorboard"))
    assert done.code == 0, done.errors
    assert "x7f3k2qa: added, 4 metrics, 22 points, seed 1072, finished" in done.output
    assert "killed00: added, 2 metrics, 170 points, seed 2043, crashed" in done.output
    assert "vit.seed1072/hparams: added" in done.output
    assert "killed00: its file ends within a record" in done.errors
    assert "x7f3k2qa: 2 points are NaN or infinite" in done.errors
    again = curves.json("import", str(folder / "wandb"))
    assert {run["result"] for run in again["runs"]} == {"present"}
    shown = curves("show", str(folder / "tensorboard" / "vit.seed1072")).output
    assert "note: it restarted at step 8,000" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("project", "environment", "words"),
    [
        ("crafter", {}, "give ENTITY/PROJECT"),
        ("team/crafter", {}, "export WANDB_API_KEY=…"),
        ("team/crafter", {"WANDB_API_KEY": "k" * 40}, "pip install wandb"),
    ],
)
def test_wandb_import_needs_a_project_a_key_and_its_package(
    project: str,
    environment: dict[str, str],
    words: str,
    curves: Program,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    # As on a machine without the package.
    monkeypatch.setitem(sys.modules, "wandb", None)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert words in curves.error("import", "x7f3k2qa", "--wandb", project)


def test_json_output_of_show_can_be_imported(curves: Program, tmp_path: Path) -> None:
    write_run(Path("a.seed5.csv"), 1.0, commit="abc", config='{"lr": 0.1}')
    curves("import", "a.seed5.csv")
    whole = curves.json("show", "a.seed5")
    Path("b.json").write_text(json.dumps({**whole, "id": "b"}), "utf-8")
    assert curves("import", "b.json").code == 0
    other = curves.json("show", "b")
    assert other["points"] == whole["points"]
    assert (other["seed"], other["configuration"]) == (5, {"lr": 0.1})
    assert other["provenance"]["commit"] == "abc"


def test_different_content_with_the_same_id_is_an_error_unless_replaced(
    curves: Program,
) -> None:
    write_run(Path("a.csv"), 1.0)
    curves("import", "a.csv")
    write_run(Path("a.csv"), 2.0)
    assert "different content (points of overview/reward)" in curves.error("import", "a.csv")
    assert curves("import", "a.csv", "--prefix", "second/").code == 0
    assert "replaced" in curves("import", "a.csv", "--replace").output
    values = [point[METRIC] for point in curves.json("show", "a")["points"]]
    assert max(values) > 1.5
    assert sorted(curves("list", "--quiet").output.split()) == ["a", "second/a"]


def test_import_of_several_files_is_atomic(curves: Program) -> None:
    write_run(Path("a.csv"), 1.0)
    write_csv(Path("bad.csv"), {"time": [1], "x": [2]})
    assert "no column 'step'" in curves.error("import", "a.csv", "bad.csv")
    assert not Path("t.duckdb").exists()


def test_excluded_points_are_reported(curves: Program) -> None:
    write_csv(Path("a.csv"), {"step": [1, 2, 3, 3], "m": [1, "nan", 3, 4]})
    done = curves("import", "a.csv", "--status", "crashed")
    assert "1 points are NaN or infinite" in done.errors
    assert "1 points were replaced by later points" in done.errors
    assert "crashed" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["import"], "give files"),
        (["import", "none.csv"], "No such file"),
        (["import", "a.csv", "x/a.csv"], "same id, 'a'"),
        (["import", "a.csv", "--status", "done"], "unknown status 'done'"),
        (["list"], "not found"),
        (["show", "none.csv"], "No such file"),
    ],
    ids=str,
)
def test_wrong_command_line_gets_a_clear_error(
    arguments: list[str], words: str, curves: Program
) -> None:
    write_run(Path("a.csv"), 1.0)
    write_run(Path("x/a.csv"), 1.0)
    assert words in curves.error(*arguments)


def test_an_unknown_run_gets_a_suggestion(curves: Program) -> None:
    write_run(Path("alpha.csv"), 1.0)
    curves("import", "alpha.csv")
    assert "did you mean 'alpha'?" in curves.error("show", "alfa")


def test_control_characters_in_names_from_files_are_escaped(curves: Program) -> None:
    write_csv(Path("a.csv"), {"step": [1, 2], "\x1b[2J[red]m": [1, 2], "id": ["\x1b]0;x"] * 2})
    for command in (["import", "a.csv"], ["list"], ["show", "a.csv"]):
        done = curves(*command)
        assert done.code == 0
        assert "\x1b" not in done.output + done.errors

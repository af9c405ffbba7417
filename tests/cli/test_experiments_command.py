"""`assay experiments` from the command line."""

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from assay.cli import app
from assay.store.experiments_file import read_experiments_file
from assay.types import TrialState
from tests.store.sessions import START, make_run, make_session, make_sessions
from tests.store.stores import fill
from tests.support import Program

NASTY = "\x1b[2J[bold red]red[/] \u202e =cmd()"
FIRST = make_run("run-1", baselines=["builtin/expert"])
SECOND = replace(
    make_run("run-2", ("builtin/forager",), fingerprint="f2", created_at=START + 3600),
    configuration={"episodes": 3, "difficulty": "easy", "seed": 42},
    provenance={"commit": "0123456789abcdef", "dirty": True},
)
THIRD = replace(
    make_run("run-4", ("own",), created_at=START + 9000),
    provenance={"commit": None, "project_commit": "fedcba9876543210", "project_dirty": True},
)
ODD = make_run("run-3", (NASTY,), created_at=START + 7200)
COMMANDS = ("export", "list", "log", "show", "tag")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "t.duckdb"
    fill(path, FIRST, make_sessions(FIRST))
    failed = make_session(SECOND, episode=3, state=TrialState.FAILURE)
    fill(path, SECOND, [*make_sessions(SECOND, 3), failed])
    fill(path, ODD, make_sessions(ODD, 1))
    return path


@pytest.fixture
def assay(
    stored: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Program:
    """Run the program in an empty directory; the environment names a store."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(stored, tmp_path / "t.duckdb")
    monkeypatch.setenv("ASSAY_DATABASE", "t.duckdb")
    return Program("experiments")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_that_parses(command: str, assay: Program) -> None:
    _, _, rest = assay(command, "--help").output.partition("For example:")
    example = next(line.strip() for line in rest.splitlines() if line.strip())
    program, *tokens = shlex.split(example)
    assert (program, tokens[:2]) == ("assay", ["experiments", command])
    app.parse_args(tokens, exit_on_error=False, print_error=False)


def test_list_shows_versions_episodes_and_means(assay: Program) -> None:
    assert "1 baseline not listed; --baselines shows them" in assay("list").output
    head, *lines = assay("list", "--baselines").output.splitlines()
    assert head.split() == [
        *("experiment", "series", "version", "model", "episodes", "mean", "created", "(UTC)"),
    ]
    assert [line.split()[1] for line in lines[:3]] == ["v1.0", "v1.0", "v1.1"]
    assert " 3/4 " in lines[2]
    assert "2025-10-09 09:53" in lines[2]
    assert (
        assay("list", "--series", "builtin/expert", "--quiet").output == "builtin/expert v1.0\n"
    )
    found = json.loads(assay("list", "--limit", "1", "--json").output)
    assert (found["total"], len(found["experiments"])) == (4, 1)
    assert "1 of 4 experiments" in assay("list", "--limit", "1", "--baselines").output


def test_control_characters_in_stored_text_are_escaped(assay: Program) -> None:
    for arguments in (("list",), ("show", ODD.experiments[0].id), ("log", NASTY[:8])):
        out = assay(*arguments).output
        assert "\\x1b[2J[bold red]red[/] \\u202e =cmd()" in out.replace("…", "")
        assert all(line.isprintable() for line in out.splitlines())


def test_log_and_show_print_the_commit_of_the_project(assay: Program) -> None:
    fill(Path("t.duckdb"), THIRD, make_sessions(THIRD, 1))
    said = "unknown commit, project at fedcba987654+"
    assert assay("log", "own").output.splitlines()[0].endswith(said)
    assert said in assay("show", "own v1.0").output
    (row,) = json.loads(assay("log", "own", "--json").output)["experiments"]
    assert row["project"] == "fedcba9876543210+"


def test_log_prints_version_commit_change_note_and_result(assay: Program) -> None:
    assert assay("tag", "builtin/forager v1.1", "--note", "[b]longer[/b]").code == 0
    lines = assay("log", "builtin/forager").output.splitlines()
    assert lines[0] == "v1.0  builtin/forager v1.0, 2025-10-09 08:53 UTC, unknown commit"
    assert lines[1] == "  change  first of its series"
    assert lines[3].endswith("2025-10-09 09:53 UTC, commit 0123456789ab+")
    assert lines[4:6] == ["  change  episodes: 2 -> 3", "  note    [b]longer[/b]"]
    ends = [session.end for session in make_sessions(SECOND, 3)]
    mean = sum(end.outcomes["achievements"] for end in ends if end) / 3
    assert lines[6].startswith(f"  result  achievements {mean:.2f} [")
    assert lines[6].endswith("(n 3); 4 trials, 1 without the metric")
    found = json.loads(assay("log", "builtin/forager", "--metric", "reward", "--json").output)
    assert [row["result"]["n"] for row in found["experiments"]] == [2, 3]
    assert found["experiments"][1]["changes"] == [
        {"what": "episodes", "before": "2", "after": "3"}
    ]
    assert "did you mean 'reward'?" in assay.error("log", "builtin/f", "--metric", "rewrd")


def test_tag_prints_the_change(assay: Program) -> None:
    name = "builtin/forager v1.1"
    done = assay("tag", name, "--version", "v2.0", "--note", "faster")
    assert done.output.splitlines() == [
        "version: v1.1 -> v2.0",
        "name: builtin/forager v1.1 -> builtin/forager v2.0",
        "note: none -> faster",
    ]
    assert "nothing changed" in assay("tag", "builtin/forager v2.0", "--note", "faster").output
    done = assay("tag", "builtin/forager v2.0", "--version", "v1.0", "--json")
    assert json.loads(done.output)["name"] == "builtin/forager v1.0 #2"
    assert "builtin/forager v1.0 also has version v1.0" in done.errors


def test_show_has_all_means(assay: Program) -> None:
    out = assay("show", "builtin/forager v1.1").output
    for words in ("run-2", "trials   3 result, 1 failure", "reward ", "unlocked, by number"):
        assert words in out
    found = json.loads(assay("show", "builtin/forager v1.1", "--json").output)
    assert found["states"] == {"result": 3, "failure": 1}
    turns = found["metrics"]["turns"]
    assert (turns["mean"], turns["n"]) == (4.0, 3)
    assert 0 <= turns["low"] < 4 < turns["high"]
    one = json.loads(assay("show", ODD.experiments[0].id, "--json").output)
    assert one["metrics"]["turns"] == {"mean": 4.0, "low": None, "high": None, "n": 1}
    assert "(n 1, no interval)" in assay("show", ODD.experiments[0].id).output


def test_export_writes_a_file_that_compare_reads(assay: Program, tmp_path: Path) -> None:
    done = assay("export", "run-1", "builtin/forager v1.1")
    assert done.output.splitlines() == [
        "3 experiments written to experiments.json",
        "1 trials have no result and were not written",
    ]
    subjects = read_experiments_file(tmp_path / "experiments.json")
    assert [subject.version for subject in subjects] == ["v1.0", "v1.0", "v1.1"]
    assert "--force" in assay.error("export", "latest")
    assert assay("export", "latest", "--force", "--quiet").output == ""
    assert len(read_experiments_file(tmp_path / "experiments.json")) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("log nobody", "unknown series 'nobody'"),
        ("show 'builtin/forager v1.7'", "did you mean 'builtin/forager v1.1'"),
        ("tag 'builtin/forager v1.1'", "nothing to change; give --version"),
        ("tag 'builtin/forager v1.1' --version two", "invalid version 'two'"),
        ("export", "give the experiments to write"),
        ("export builtin/forager", "ambiguous"),
        ("list --database nowhere.duckdb", "create one with 'assay run'"),
        ("tag x --version v1.0 --database nowhere.duckdb", "create one with 'assay run'"),
    ],
)
def test_wrong_command_gets_a_clear_error(line: str, words: str, assay: Program) -> None:
    assert words in assay.error(*shlex.split(line))
    assert not Path("nowhere.duckdb").exists()

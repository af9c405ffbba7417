"""`assay traces` from the command line."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from assay.cli import app
from assay.traces import SessionTracer
from assay.types import TrialState
from tests.store.sessions import START, make_run, make_session, make_sessions
from tests.store.stores import fill, ids, rows_of
from tests.support import Finished, Program, run_python

NASTY = "\x1b[2J[bold red]red[/] <script> \u202e =cmd() \nsecond line"
RUN = make_run("run-1", baselines=["builtin/expert"])
SESSIONS = [
    *make_sessions(RUN),
    make_session(RUN, episode=5, state=TrialState.FAILURE, text=NASTY),
]
COMMANDS = (
    "delete",
    "export",
    "import",
    "list",
    "merge",
    "replay",
    "show",
    "snapshot",
    "verify",
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "t.duckdb"
    fill(path, RUN, SESSIONS)
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
    return Program("traces")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_that_parses(command: str, assay: Program) -> None:
    text = assay(command, "--help").output
    _, _, rest = text.partition("For example:")
    example = next(line.strip() for line in rest.splitlines() if line.strip())
    program, *tokens = shlex.split(example)
    assert (program, tokens[:2]) == ("assay", ["traces", command])
    app.parse_args(tokens, exit_on_error=False, print_error=False)


def test_list_shows_runs_and_sessions(assay: Program) -> None:
    lines = assay("list", "--baselines").output.splitlines()
    assert lines[0].startswith("run run-1, finished, started 2025-10-09 08:53 UTC: assay run")
    assert [line[:10] for line in lines[2:7]] == [
        name[:10] for name in ids([*SESSIONS[:2], SESSIONS[4], *SESSIONS[2:4]])
    ]
    assert "failure: ModelUnavailable" in lines[4]


def test_list_hides_default_baselines_unless_requested(assay: Program) -> None:
    listed = assay("list").output
    assert "builtin/expert" not in listed.partition("\n")[2]
    assert "2 episodes of baselines not listed; --baselines shows them" in listed
    assert assay("list", "--quiet").output.split() == ids([*SESSIONS[:2], SESSIONS[4]])
    for asked in (["--baselines"], ["--model", "builtin/expert"]):
        shown = assay("list", *asked).output
        assert "builtin/expert v1.0" in shown
        assert "not listed" not in shown
    assert json.loads(assay("list", "--json").output)["total"] == 5


def test_list_has_filters_a_limit_and_json(assay: Program) -> None:
    found = json.loads(
        assay("list", "--model", "builtin/expert", "--limit", "1", "--json").output
    )
    assert found["total"] == 2
    assert [session["seed"] for session in found["runs"][0]["sessions"]] == [43]
    assert "1 of 3 episodes; --limit" in assay("list", "--limit", "1").output
    assert assay(
        "list", "--quiet", "--experiment", "builtin/expert v1.0"
    ).output.split() == ids(SESSIONS[2:4])
    assert assay("list", "--model", "nobody").output == "no episodes\n"


def test_list_shows_rewards_for_other_environments(assay: Program) -> None:
    for seed, score in ((1, 2.5), (2, None)):
        with SessionTracer("t.duckdb", name="loop", task="maze", seed=seed, run_id="r") as it:
            it.step("go")
            if score is not None:
                it.outcome("score", score)
                it.outcome("reward", 1.0)
    heads, *rows = assay("list", "--run", "r").output.splitlines()[1:4]
    assert heads.split()[-4:] == ["score", "reward", "steps", "turns"]
    assert [row.split()[-4] for row in rows] == ["2.5", "-"]
    found = json.loads(assay("list", "--run", "r", "--json").output)["runs"][0]["sessions"]
    assert [session["outcomes"] for session in found] == [{"reward": 1.0, "score": 2.5}, {}]
    assert "achievements" in assay("list", "--run", "run-1").output


def test_show_prints_an_episode_turn_by_turn(assay: Program) -> None:
    session = SESSIONS[0]
    out = assay("show", session.header.session_id[:8]).output
    assert f"episode {session.header.session_id}: builtin/forager on crafter/easy" in out
    assert "ended by max_turns after 4 turns and 9 steps" in out
    for words in ("saw      Step 3.", "unknown  fly", "wrong    the reply calls no tool"):
        assert words in out
    assert "without effect: no table nearby" in out
    assert "hook     E easy_achievement: step" in out


def test_show_accepts_words_and_turns(assay: Program) -> None:
    best = assay("show", "best", "--turns", "2").output
    assert "turn 2 " in best
    assert "turn 3 " not in best
    assert "turn 1 " in assay("show", "worst", "--turns", "1-2").output
    assert (
        "no turns to show; the episode has 4"
        in assay("show", "latest", "--turns", "50-60").output
    )


def test_show_prints_the_trace_as_json(assay: Program) -> None:
    name = SESSIONS[0].header.session_id
    found = json.loads(assay("show", name, "--turns", "2-3", "--json").output)
    assert found["format"] == "assay-trace/1"
    assert [call["turn"] for call in found["calls"]] == [2, 3]


@pytest.mark.parametrize("arguments", [(), ("--full",)])
def test_control_characters_in_model_text_are_escaped(
    arguments: tuple[str, ...], assay: Program
) -> None:
    done = assay("show", SESSIONS[4].header.session_id, *arguments)
    assert "\x1b" not in done.output
    assert "\u202e" not in done.output
    assert r"\x1b[2J[bold red]red[/] <script> \u202e" in done.output
    assert "error: ModelUnavailable: no answer" in done.output


def test_huge_reply_is_shortened_unless_full_is_set(assay: Program) -> None:
    run = make_run("huge", created_at=START + 1)
    long = make_session(run, turns=3, text="x" * 1_000_000)
    fill(Path("huge.duckdb"), run, [long])
    brief = assay("show", "latest", "--database", "huge.duckdb", "--turns", "3").output
    assert len(brief) < 5000
    full = assay("show", "latest", "--database", "huge.duckdb", "--turns", "3", "--full").output
    assert full.count("x") > 900_000


def test_exported_traces_can_be_imported(assay: Program) -> None:
    done = assay("export", "--format", "json", "--output", "out")
    assert done.output == "5 episodes in out/\n"
    done = assay("import", "out", "--database", "new.duckdb")
    assert done == Finished(0, "5 added to new.duckdb, 0 already present, 0 damaged\n", "")
    done = assay("import", "out", "--database", "new.duckdb", "--json")
    told = {"added": 0, "present": 5, "damaged": [], "unverifiable": [], "skipped": []}
    assert json.loads(done.output) == told
    old, new = (fill(Path(name), RUN, []) for name in ("t.duckdb", "new.duckdb"))
    assert rows_of(new) == rows_of(old)


def test_import_names_damaged_files_and_exits_with_1(assay: Program) -> None:
    assay("export", "--output", "out")
    first = sorted(Path("out").iterdir())[0]
    first.write_text("{")
    done = assay("import", "out", "--database", "new.duckdb")
    assert done.code == 1
    assert str(first) in done.errors
    assert done.output == "4 added to new.duckdb, 0 already present, 1 damaged\n"


@pytest.mark.parametrize("form", ["jsonl", "parquet", "atif"])
def test_export_writes_every_format(form: str, assay: Program) -> None:
    done = assay("export", "builtin/expert", "--format", form, "--json")
    found = json.loads(done.output)
    assert found["sessions"] == 2
    assert all(Path(name).stat().st_size for name in found["files"])


def test_merge_and_snapshot(assay: Program) -> None:
    other = make_run("other", created_at=START + 5)
    fill(Path("other.duckdb"), other, make_sessions(other, 1))
    done = assay("merge", "other.duckdb")
    assert done.output.splitlines()[0] == "2 added to t.duckdb, 0 already present"
    assert "builtin/expert v1.0 was renamed to builtin/expert v1.0 #2" in done.output
    assert assay("snapshot", "copy.duckdb").output == "7 episodes in copy.duckdb\n"
    assert json.loads(assay("snapshot", "copy.duckdb", "--force", "--json").output) == {
        "snapshot": "copy.duckdb",
        "sessions": 7,
        "open_journals": 0,
    }


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["show"], ["best", "worst", "latest", "traces list"]),
        (["show", "nope"], ["'nope'", "best"]),
        (["show", "best", "--turns", "x"], ["'x'", "3-9"]),
        (["show", "best", "--turns", "9-3"], ["'9-3'"]),
        (["list", "--run", "nope"], ["'nope'", "run-1"]),
        (["list", "--limit", "0"], ["0", "--limit"]),
        (["list", "--database", "gone.duckdb"], ["gone.duckdb", "assay run"]),
        (["export", "nope"], ["'nope'", "traces list"]),
        (["export", "--format", "csv"], ["csv", "parquet"]),
        (["export", "--output", "x.json"], ["x.json", "jsonl"]),
        (["import"], ["give files"]),
        (["import", "gone"], ["'gone'"]),
        (["merge"], ["give the databases"]),
        (["merge", "t.duckdb"], ["itself"]),
        (["snapshot", "t.duckdb"], ["the database itself"]),
        (["sho"], ["sho", "show"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_command_line_gets_one_helpful_line(
    arguments: list[str], parts: list[str], assay: Program
) -> None:
    line = assay.error(*arguments)
    assert [part for part in parts if part not in line] == []


@pytest.mark.extras
def test_commands_work_in_a_subprocess(assay: Program) -> None:
    done = run_python("-W", "error", "-m", "assay", "traces", "list", "--json")
    assert json.loads(done.output)["total"] == 5
    assert done.errors == ""


def test_delete_asks_for_confirmation_and_reports_deleted_sessions(assay: Program) -> None:
    refused = assay("delete", "worst")
    assert refused.code == 2
    assert "--yes" in refused.errors
    assert "would be deleted: 1 episode, 0 experiments" in refused.output
    dry = json.loads(assay("delete", "worst", "--dry-run", "--json").output)
    done = json.loads(assay("delete", "worst", "--yes", "--json").output)
    assert done == {**dry, "deleted": True}
    assert done["sessions"][0] not in assay("list", "--json").output
    assert "deleted: 4 episodes" in assay("delete", "run-1", "--yes").output


def test_sessions_are_sorted_by_any_number_in_descending_order(assay: Program) -> None:
    listed = json.loads(assay("list", "--sort", "reward", "--top", "3", "--json").output)
    rewards = [run["sessions"][0]["reward"] for run in listed["runs"]]
    assert len(rewards) == 3
    assert rewards == sorted(rewards, reverse=True)
    heads = assay("list", "--sort", "tokens").output.splitlines()[0].split()
    assert "tokens" in heads
    wrong = assay("list", "--sort", "rewad")
    assert (wrong.code, "did you mean 'reward'" in wrong.errors) == (2, True)


@pytest.mark.parametrize(
    ("turns", "shown"),
    [("3-", [3, 4]), ("-2", [3, 4]), ("last", [4]), ("2", [2]), ("2-3", [2, 3]), ("9-", [])],
)
def test_show_accepts_a_range_of_turns(assay: Program, turns: str, shown: list[int]) -> None:
    out = assay("show", "best", "--turns", turns).output
    assert [int(line.split()[1]) for line in out.splitlines() if line[:5] == "turn "] == shown


@pytest.mark.parametrize("turns", ["", "-", "-0", "x", "9-3", "1-2-3"])
def test_invalid_ranges_of_turns_are_rejected(assay: Program, turns: str) -> None:
    done = assay("show", "best", f"--turns={turns}")
    assert (done.code, "--turns" in done.errors) == (2, True)

"""`assay traces verify` and `assay traces replay` on a real store."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from assay.cli import main
from assay.store.ingest import ensure_run
from assay.store.records import ExperimentRecord, RunRecord, SessionRecord
from assay.store.store import Store
from tests.cli.test_live_view import UPPER_HALF, Terminal
from tests.episodes.episodes import play
from tests.store.sessions import ingest_session

pytestmark = pytest.mark.usefixtures("compiled_engine")

RUN = RunRecord(
    id="r1",
    command="assay run",
    configuration={},
    provenance={},
    created_at=0.0,
    experiments=(
        ExperimentRecord(
            id="e1", series="builtin/random", model="builtin/random", fingerprint="f"
        ),
    ),
)


def keep(path: Path, *sessions: SessionRecord) -> None:
    with Store(path).writing() as connection:
        ensure_run(connection, RUN)
        for session in sessions:
            ingest_session(connection, session)


TURNS = {"s0": (0, 6), "s1": (1, 7), "s2": (16, 8)}
"""Seed and turns of the stored episodes; only s2 unlocks an achievement."""


def episode(name: str) -> SessionRecord:
    seed, turns = TURNS[name]
    return play(seed, turns=turns, session_id=name)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "traces.duckdb"
    keep(path, *map(episode, TURNS))
    return path


@pytest.fixture
def database(made_once: Path, tmp_path: Path) -> Path:
    """A copy of a store of three episodes, for one test."""
    return Path(shutil.copy(made_once, tmp_path))


def damage(session: SessionRecord, at: int) -> SessionRecord:
    def change(step: Any) -> Any:
        return replace(step, digest="0" * 16) if step.index == at else step

    played = [replace(t, steps=tuple(map(change, t.steps))) for t in session.played]
    return replace(session, played=played)


def run(*arguments: str | Path) -> int:
    return main(["traces", *map(str, arguments)])


def test_all_stored_episodes_are_verified(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "--database", database) == 0
    assert capsys.readouterr().out == (
        "3 episodes, 105 steps: 3 identical, 0 different, 0 unverifiable\n"
    )


def test_a_damaged_episode_is_named_and_fails_the_command(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(database, damage(episode("s1"), 12))
    assert run("verify", "--database", database) == 1
    first, total = capsys.readouterr().out.splitlines()
    assert first.startswith("different     s1  step 12 (turn 3): digest was 0000000000000000")
    assert "2 identical, 1 different" in total


def test_verify_prints_all_findings_as_json(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unseeded = play(9, turns=2, session_id="s9")
    unseeded = replace(unseeded, header=replace(unseeded.header, seed=None))
    keep(database, damage(episode("s1"), 12), unseeded)
    assert run("verify", "--database", database, "--json") == 1
    printed = json.loads(capsys.readouterr().out)
    assert (printed["sessions"], printed["same"]) == (4, 2)
    assert list(printed["differences"]) == ["s1"]
    assert printed["reasons"] == {"s9": "it has no seed"}


@pytest.mark.parametrize(
    ("names", "count"),
    [
        pytest.param(["s2"], 1, id="a session"),
        pytest.param(["s0", "s2"], 2, id="two sessions"),
        pytest.param(["e1"], 3, id="an experiment"),
        pytest.param(["r1"], 3, id="a run"),
    ],
)
def test_episodes_can_be_named(
    names: list[str], count: int, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", *names, "--database", database, "--json") == 0
    assert json.loads(capsys.readouterr().out)["sessions"] == count


def test_unknown_episode_name_is_a_usage_error(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "nobody", "--database", database) == 2
    assert run("replay", "nobody", "--database", database) == 2
    assert capsys.readouterr().err.count("'nobody'") == 2


def test_a_missing_database_names_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("verify", "--database", tmp_path / "none.duckdb") == 2
    assert run("replay", "best", "--database", tmp_path / "none.duckdb") == 2
    assert capsys.readouterr().err.count("assay run") == 2


def test_a_replay_without_a_terminal_prints_a_line_for_each_achievement(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = episode("s2")
    assert session.end is not None
    unlocked = [(s.index, n) for t in session.played for s in t.steps for n in s.unlocked]
    assert unlocked
    assert run("replay", "s2", "--database", database) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == [f"step {index:5}  {name}" for index, name in unlocked]
    assert last.startswith("replayed 40 of 40 steps of episode s2: ")


def test_best_replays_the_best_episode(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("replay", "best", "--database", database, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["session"] == "s2"
    assert printed["finding"] == "same"


def test_gif_has_one_frame_per_step(database: Path, tmp_path: Path) -> None:
    picture = tmp_path / "new" / "s0.gif"
    arguments = ("--database", database, "--size", "36", "--from-step", "10")
    assert run("replay", "s0", "--gif", picture, *arguments) == 0
    with Image.open(picture) as image:
        assert image.size == (36, 36)
        assert getattr(image, "n_frames", 1) > 5


def test_frames_are_images_named_by_step(database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    arguments = ("--database", database, "--size", "36", "--from-step", "25", "--quiet")
    assert run("replay", "s0", "--frames", folder, *arguments) == 0
    names = [f"step_{step:05}.png" for step in range(25, 31)]
    assert sorted(path.name for path in folder.iterdir()) == names


def test_replay_stops_at_the_first_difference_from_the_trace(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(database, damage(episode("s1"), 12))
    assert run("replay", "s1", "--database", database) == 1
    printed = capsys.readouterr()
    assert "replayed 11 of 35 steps" in printed.out
    assert "step 12 (turn 3): digest was" in printed.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--from-step", "31"], "beyond the 30 steps", id="beyond the end"),
        pytest.param(["--gif", "a.gif", "--frames", "b"], "not both", id="two outputs"),
        pytest.param(["--fps", "0"], "fps", id="no speed"),
        pytest.param(["--size", "3", "--gif", "a.gif"], "size", id="no size"),
    ],
)
def test_invalid_replay_options_are_reported(
    arguments: list[str], words: str, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("replay", "s0", "--database", database, *arguments) == 2
    assert words in capsys.readouterr().err


def test_unwritable_frames_are_reported(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    assert run("replay", "s0", "--database", database, "--frames", taken) == 1
    assert "cannot write to" in capsys.readouterr().err


@pytest.mark.extras
def test_terminal_shows_the_world_and_the_model_text(database: Path) -> None:
    terminal = Terminal("traces", "replay", "s2", "--database", str(database), "--fps", "50")
    assert terminal.end() == 0
    assert UPPER_HALF in terminal.text
    assert "turn 8: I try" in terminal.text
    # The model's text has an escape sequence, which is shown and not executed.
    assert "\\x1b[31m" in terminal.text


@pytest.mark.extras
def test_a_replay_can_be_interrupted(database: Path) -> None:
    terminal = Terminal("traces", "replay", "s2", "--database", str(database), "--fps", "2")
    terminal.read_until("step 2, reward")
    terminal.program.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert "interrupted after" in terminal.text
    assert "Traceback" not in terminal.text

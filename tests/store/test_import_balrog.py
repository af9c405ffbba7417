"""Folders of BALROG: totals from the JSON file, steps from the CSV file."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.store.export import ExportFormat, export_sessions
from assay.store.imports import ImportReport, import_traces, trace_files
from assay.store.store import Store
from tests.store.stores import rows_of
from tests.support import query

RUN = "2025-02-01_10-00-00_naive_some_model"
ROWS = [
    ("Move West", "", "You see grass.", 0.0),
    ("Fly", "let me fly", 'You see "grass",\nand a tree.', 0.0),
    ("Do", "", "You see a tree.", 1.0),
    ("Do", "", "You died.", -0.1),
]
OLD = ("Step", "Observation", "Action", "Reasoning", "Reward", "Done")
NEW = ("Step", "Action", "Reasoning", "Observation", "Reward", "Done")


def totals(**changes: Any) -> dict[str, Any]:
    return {
        "task": "default",
        "action_frequency": {"Move West": 1, "Noop": 1, "Do": 2},
        "input_tokens": 2**31 - 10,
        "output_tokens": 12,
        "done": True,
        "episode_return": 0.9,
        "num_steps": 4,
        "failed_candidates": ["Fly"],
        "score": 1.0,
        "progression": 1 / 22,
        "achievements": {"collect_wood": 3, "eat_cow": 0},
        "process_num": "ForkProcess-1",
        "seed": 3688811942,
        "agent": {"type": "naive"},
        "client": {
            "client_name": "vllm",
            "model_id": "some/model",
            "base_url": "https://user:secret@example.org/v1",
            "generate_kwargs": {"temperature": 0.0},
        },
        **changes,
    }


def episode(
    folder: Path,
    number: int = 0,
    *,
    rows: Sequence[tuple[str, str, str, float]] | None = ROWS,
    columns: Sequence[str] = NEW,
    **changes: Any,
) -> Path:
    """The files of an episode, as BALROG leaves them."""
    place = folder / RUN / "crafter" / "default"
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"default_run_{number:02d}.json"
    path.write_text(json.dumps(totals(seed=number + 1, **changes), indent=4))
    if rows is not None:
        with path.with_suffix(".csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream, escapechar="˘")
            writer.writerow(columns)
            for step, (action, why, seen, reward) in enumerate(rows):
                cells = {"Step": step, "Action": action, "Reasoning": why}
                cells |= {"Observation": seen, "Reward": reward, "Done": step == len(rows) - 1}
                writer.writerow([cells[name] for name in columns])
    return path


def imported(folder: Path, *paths: Path) -> tuple[Store, ImportReport]:
    store = Store(folder / "store.duckdb")
    return store, import_traces(store, trace_files(paths))


@pytest.mark.parametrize("columns", [OLD, NEW], ids=["old", "new"])
def test_metrics_tokens_invalid_actions_and_seeds_are_imported(
    columns: Sequence[str], tmp_path: Path
) -> None:
    episode(tmp_path, columns=columns)
    store, report = imported(tmp_path, tmp_path / RUN)
    assert (report.added, report.damaged) == (1, ())
    row = query(
        store,
        "SELECT model, task, seed, episode, state, stop_reason, reward, num_achievements,"
        " steps, turns, actions_asked, unknown_actions, invalid_rate, prompt_tokens,"
        " completion_tokens, cost_usd, verifiable, source, strftime(created_at, '%Y-%m-%d')"
        " FROM episodes",
    )
    assert row == [
        (
            *("some/model", "balrog/crafter/default", 1, 0, "result", "done", 0.9, 1, 4),
            *(4, 4, 1, 0.25, 2**31 - 10, 12, None, False, "balrog", "2025-02-01"),
        )
    ]
    outcomes = dict(query(store, "SELECT metric, value FROM outcomes"))
    assert outcomes["achievements"] == outcomes["unlocked/collect_wood"] == 1.0
    assert outcomes["unlocked/eat_cow"] == 0.0
    assert outcomes["progression"] == pytest.approx(1 / 22)
    assert outcomes["invalid_rate"] == 0.25


def test_steps_and_messages_are_imported_by_turn(tmp_path: Path) -> None:
    episode(tmp_path)
    store, _ = imported(tmp_path, tmp_path)
    assert query(store, 'SELECT asked, "unknown", reward, ended FROM turns ORDER BY turn') == [
        (["Move West"], [], 0.0, False),
        (["Fly"], ["Fly"], 0.0, False),
        (["Do"], [], 1.0, False),
        (["Do"], [], -0.1, True),
    ]
    said = [row[0] for row in query(store, "SELECT text FROM messages ORDER BY position")]
    assert said[2:4] == ["let me fly\nFly", 'You see "grass",\nand a tree.']


def test_invalid_actions_are_counted_from_totals_if_steps_lack_them(tmp_path: Path) -> None:
    rows = [("Noop", "", "grass", reward) for _, _, _, reward in ROWS]
    episode(tmp_path, rows=rows)
    store, _ = imported(tmp_path, tmp_path)
    assert query(store, "SELECT unknown_actions FROM episodes") == [(1,)]
    assert query(store, 'SELECT sum(len("unknown")) FROM turns') == [(0,)]


def test_episode_with_totals_only_is_imported(tmp_path: Path) -> None:
    episode(tmp_path, rows=None)
    store, report = imported(tmp_path, tmp_path)
    assert report.added == 1
    assert query(store, "SELECT steps, turns, reward FROM episodes") == [(4, 4, 0.9)]
    assert query(store, "SELECT count(*) FROM session_timesteps") == [(0,)]


def test_episodes_that_cannot_be_replayed_are_counted_and_explained(tmp_path: Path) -> None:
    for number in range(3):
        episode(tmp_path, number)
    _, report = imported(tmp_path, tmp_path)
    ((sessions, reason),) = report.unverifiable
    assert sessions == 3
    assert "BALROG" in reason


def test_importing_a_moved_folder_again_adds_nothing(tmp_path: Path) -> None:
    for number in range(2):
        episode(tmp_path / "here", number)
    store, _ = imported(tmp_path, tmp_path / "here")
    before = rows_of(store)
    (tmp_path / "here").rename(tmp_path / "there")
    _, report = imported(tmp_path, tmp_path / "there" / RUN / "crafter")
    assert report == ImportReport(0, 2, ())
    assert rows_of(store) == before


def test_export_restores_the_same_rows(tmp_path: Path) -> None:
    episode(tmp_path, rows=None)
    episode(tmp_path, 1)
    store, _ = imported(tmp_path, tmp_path / RUN)
    names = [row[0] for row in query(store, "SELECT session_id FROM session_traces")]
    export_sessions(store, names, ExportFormat.JSON, tmp_path / "out")
    (tmp_path / "other").mkdir()
    other, report = imported(tmp_path / "other", tmp_path / "out")
    assert report.unverifiable[0].sessions == 2
    assert rows_of(other) == rows_of(store)


def test_damaged_episodes_are_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    episode(tmp_path, 0)
    torn = episode(tmp_path, 1)
    torn.write_text(torn.read_text()[:-40])
    short = episode(tmp_path, 2, rows=ROWS[:-1])
    other = episode(tmp_path, 3, episode_return=5.0)
    wrong = episode(tmp_path, 4, num_steps="many")
    bytes_ = episode(tmp_path, 5)
    bytes_.with_suffix(".csv").write_bytes(b"\xff\xfe\x00")
    long = episode(tmp_path, 6)
    with long.with_suffix(".csv").open("a") as stream:
        stream.write('4,"' + "x" * (10 << 20) + '",,,0.0,True\n')
    deep = episode(tmp_path, 7)
    deep.write_text(json.dumps(totals()).replace('"naive"', "[" * 100_000 + "]" * 100_000))
    (torn.parents[1] / "crafter_summary.json").write_text("{}")
    (tmp_path / RUN / "summary.json").write_text("{}")
    _, report = imported(tmp_path, tmp_path)
    assert report.added == 1
    assert [bad.where for bad in report.damaged] == [
        str(path) for path in (torn, short, other, wrong, bytes_, long, deep)
    ]


def test_address_with_a_key_is_not_stored(tmp_path: Path) -> None:
    episode(tmp_path)
    store, _ = imported(tmp_path, tmp_path)
    assert "secret" not in str(rows_of(store))


def test_import_command_lists_unverifiable_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episode(tmp_path)
    database = str(tmp_path / "store.duckdb")
    assert main(["traces", "import", str(tmp_path), "--database", database]) == 0
    said = capsys.readouterr().out
    assert "1 added" in said
    assert "1 of them cannot be verified: BALROG records neither" in said
    path = episode(tmp_path, 1, num_steps=9)
    assert main(["traces", "import", str(tmp_path), "--database", database, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["added"], told["present"], told["unverifiable"]) == (0, 1, [])
    assert told["damaged"][0]["where"] == str(path)

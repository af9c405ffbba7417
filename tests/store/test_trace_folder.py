"""Each run has a folder for its files; the parent has copies of the latest run."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.store.formats.trace_json import parse_trace
from assay.store.imports import import_traces, trace_files
from assay.store.store import Store
from assay.store.trace_folder import (
    check_trace_folder,
    publish_traces,
    read_index,
    write_trace_folder,
)
from tests.store.sessions import START, make_run, make_sessions
from tests.store.stores import fill, rows_of

FIRST = make_run("first", ("z", "a"))
SECOND = make_run("second", ("a",), created_at=START + 100)
RESULTS = "multi_model_results_20251009_085320.json"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    path = tmp_path / "t.duckdb"
    fill(path, FIRST, reversed(make_sessions(FIRST, turns=1)))
    return fill(path, SECOND, make_sessions(SECOND, 1, turns=1))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def written(folder: Path, store: Store, run: str, results: str | None = None) -> None:
    """Write the files of a run, as at its end."""
    write_trace_folder(folder, store, run, results=results)
    if results is not None:
        (folder / run / results).write_text(json.dumps(run))
    assert publish_traces(folder, run) == []


def run_of(path: Path) -> str:
    return parse_trace(path.read_bytes()).run.id


def test_files_are_numbered_in_the_order_of_models_and_episodes(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    index = write_trace_folder(folder, store, "first", results=RESULTS)
    own = folder / "first"
    assert names(own) == ["index.json", *(f"trace_episode_{n}.json" for n in range(4))]
    assert read_index(own) == index
    for number, item in enumerate(index.files):
        trace = parse_trace((own / item.file).read_bytes())
        assert trace.session == make_sessions(FIRST, turns=1)[number]
        assert (item.session_id, item.model, item.seed) == (
            trace.session.header.session_id,
            trace.session.header.subject,
            trace.session.header.seed,
        )
    assert [(item.model, item.episode) for item in index.files] == [
        *(("z", 0), ("z", 1), ("a", 0), ("a", 1))
    ]
    assert (own / index.database).resolve() == store.path.resolve()


@pytest.mark.extras
def test_run_folder_and_copies_can_be_imported(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    written(folder, store, "first")
    (folder / "mine.json").write_text("{}")
    for number, place in enumerate((folder, folder / "first")):
        target = Store(tmp_path / f"target{number}.duckdb")
        assert import_traces(target, trace_files([place])).added == 4
        sessions = rows_of(target)["session_traces"]
        assert sessions == [row for row in rows_of(store)["session_traces"] if row in sessions]


def test_run_keeps_files_of_other_runs_and_writes_its_copies_on_top(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    written(folder, store, "first", RESULTS)
    (folder / "mine.txt").write_text("mine")
    (folder / "trace_of_mine.json").write_text("mine")
    before = {path: path.read_bytes() for path in (folder / "first").iterdir()}
    written(folder, store, "second")
    assert {path: path.read_bytes() for path in (folder / "first").iterdir()} == before
    assert names(folder) == [
        *("first", "index.json", "mine.txt", "second"),
        *("trace_episode_0.json", "trace_of_mine.json"),
    ]
    assert run_of(folder / "trace_episode_0.json") == "second"
    index = read_index(folder)
    assert index is not None
    assert index.run_id == "second"
    assert (folder / index.database).resolve() == store.path.resolve()


def test_same_run_can_rewrite_its_files(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    written(folder, store, "first")
    before = (folder / "trace_episode_3.json").read_bytes()
    (folder / "first" / "trace_episode_3.json").unlink()
    written(folder, store, "first")
    for place in (folder, folder / "first"):
        assert (place / "trace_episode_3.json").read_bytes() == before


def test_files_of_an_earlier_version_move_into_their_run_folder(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    written(folder, store, "first", RESULTS)
    # Its runs had no folders.
    shutil.rmtree(folder / "first")
    before = {path.name: path.read_bytes() for path in folder.glob("[tm]*.json")}
    written(folder, store, "second")
    moved = {path.name: path.read_bytes() for path in (folder / "first").glob("[tm]*.json")}
    assert moved == before
    assert len(moved) == 5
    index = read_index(folder / "first")
    assert index is not None
    assert (folder / "first" / index.database).resolve() == store.path.resolve()


def test_unknown_files_are_left_unchanged(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "trace_episode_0.json").write_text("mine")
    check_trace_folder(folder, "first")
    write_trace_folder(folder, store, "first")
    assert publish_traces(folder, "first") == ["trace_episode_0.json"]
    assert (folder / "trace_episode_0.json").read_text() == "mine"
    assert run_of(folder / "trace_episode_1.json") == "first"
    (folder / "trace_episode_1.json").unlink()
    (folder / "trace_episode_1.json").write_text("edited")
    write_trace_folder(folder, store, "second")
    publish_traces(folder, "second")
    assert (folder / "trace_episode_1.json").read_text() == "edited"


def test_concurrent_runs_leave_copies_of_one_run(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    for run in ("first", "second"):
        write_trace_folder(folder, store, run)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda run: publish_traces(folder, run), ["first", "second"] * 10))
    index = read_index(folder)
    assert index is not None
    copies = sorted(folder.glob("trace_episode_*.json"))
    assert [path.name for path in copies] == [item.file for item in index.files]
    assert {run_of(path) for path in copies} == {index.run_id}


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"\xff",
        b'{"format": "other", "run": "r", "database": "d", "files": []}',
        json.dumps(
            {
                "format": "assay-traces/1",
                "run": "first",
                "database": "t.duckdb",
                "files": [{"file": "../t.duckdb", "session": "s", "model": "m"}],
            }
        ).encode(),
    ],
    ids=["empty", "no text", "other format", "a file outside"],
)
def test_foreign_index_file_is_rejected(content: bytes, store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "index.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"not an index of traces.*--traces-dir"):
        read_index(folder)
    write_trace_folder(folder, store, "first")
    assert publish_traces(folder, "first") == ["index.json"]
    assert (folder / "index.json").read_bytes() == content
    assert store.path.exists()


def test_file_at_the_folder_path_is_rejected(store: Store, tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("mine")
    with pytest.raises(UsageError, match="not a folder"):
        check_trace_folder(tmp_path / "traces", "first")


def test_trace_files_can_be_disabled(store: Store, tmp_path: Path) -> None:
    index = write_trace_folder(tmp_path / "t", store, "first", traces=False, results=RESULTS)
    assert (index.files, names(tmp_path / "t" / "first")) == ((), ["index.json"])


def test_incomplete_folder_is_completed(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "traces"

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_trace_folder(folder, store, "first", on_session=stop)
    assert names(folder / "first") == ["index.json", "trace_episode_0.json"]
    written(folder, store, "first")
    assert len(names(folder / "first")) == 5


def test_drafts_of_killed_processes_are_removed_and_live_ones_kept(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    written(folder, store, "first")
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    for place in (folder, folder / "first"):
        for pid in (gone.pid, os.getppid()):
            draft = place / f".trace_episode_0.json.{pid}-abcdefgh"
            draft.touch()
            os.utime(draft, (0, 0))
        (place / ".trace_of_mine-1").touch()
    written(folder, store, "first")
    for place in (folder, folder / "first"):
        assert [name for name in names(place) if name.startswith(".")] == [
            f".trace_episode_0.json.{os.getppid()}-abcdefgh",
            ".trace_of_mine-1",
        ]

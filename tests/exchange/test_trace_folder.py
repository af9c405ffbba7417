"""A folder of traces holds one run, and nothing is lost when another takes its place."""

import json
import os
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.exchange.formats import parse_trace
from assay.exchange.imports import import_traces
from assay.exchange.sources import trace_files
from assay.exchange.trace_folder import check_trace_folder, read_index, write_trace_folder
from assay.traces.store import Store
from tests.traces.sessions import START, make_run, make_sessions
from tests.traces.stores import fill, rows_of

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


def test_files_are_numbered_in_the_order_of_models_and_episodes(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    index = write_trace_folder(folder, store, "first", results=RESULTS)
    assert names(folder) == ["index.json", *(f"trace_episode_{n}.json" for n in range(4))]
    assert read_index(folder) == index
    for number, item in enumerate(index.files):
        trace = parse_trace((folder / item.file).read_bytes())
        assert trace.session == make_sessions(FIRST, turns=1)[number]
        assert (item.session_id, item.model, item.seed) == (
            trace.session.header.session_id,
            trace.session.header.subject,
            trace.session.header.seed,
        )
    assert [(item.model, item.episode) for item in index.files] == [
        *(("z", 0), ("z", 1), ("a", 0), ("a", 1))
    ]
    assert (folder / index.database).resolve() == store.path.resolve()


def test_an_index_can_be_imported_without_what_else_is_there(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    write_trace_folder(folder, store, "first")
    (folder / "mine.json").write_text("{}")
    target = Store(tmp_path / "target.duckdb")
    assert import_traces(target, trace_files([folder])).added == 4
    sessions = rows_of(target)["session_traces"]
    assert sessions == [row for row in rows_of(store)["session_traces"] if row in sessions]


def test_a_new_run_replaces_what_the_index_lists_and_nothing_else(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    write_trace_folder(folder, store, "first", results=RESULTS)
    (folder / RESULTS).write_text("{}")
    (folder / "mine.txt").write_text("mine")
    (folder / "trace_of_mine.json").write_text("mine")
    write_trace_folder(folder, store, "second")
    assert names(folder) == [
        *("index.json", "mine.txt", "trace_episode_0.json", "trace_of_mine.json")
    ]
    assert parse_trace((folder / "trace_episode_0.json").read_bytes()).run.id == "second"


def test_the_same_run_may_write_its_files_again(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    write_trace_folder(folder, store, "first")
    before = (folder / "trace_episode_3.json").read_bytes()
    (folder / "trace_episode_3.json").unlink()
    write_trace_folder(folder, store, "first")
    assert (folder / "trace_episode_3.json").read_bytes() == before


def test_a_run_that_is_in_another_database_may_be_replaced(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    write_trace_folder(folder, store, "first")
    other = fill(tmp_path / "other.duckdb", SECOND, make_sessions(SECOND))
    check_trace_folder(folder, other, "second")
    store.path.unlink()
    with pytest.raises(UsageError, match=r"4 sessions are in no database.*--traces-dir"):
        write_trace_folder(folder, other, "second")
    assert len(names(folder)) == 5


def test_files_that_no_index_lists_are_never_overwritten(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "trace_episode_0.json").write_text("mine")
    with pytest.raises(UsageError, match=r"trace_episode_0\.json.*--traces-dir"):
        check_trace_folder(folder, store, "first")
    with pytest.raises(UsageError, match="--traces-dir"):
        write_trace_folder(folder, store, "first")
    assert (folder / "trace_episode_0.json").read_text() == "mine"


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
def test_an_index_that_is_not_ours_is_refused(
    content: bytes, store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    (folder / "index.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"not an index of traces.*--traces-dir"):
        write_trace_folder(folder, store, "first")
    assert store.path.exists()
    assert (folder / "index.json").read_bytes() == content


def test_a_file_in_the_place_of_the_folder_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("mine")
    with pytest.raises(UsageError, match="not a folder"):
        check_trace_folder(tmp_path / "traces", store, "first")


def test_traces_may_be_left_out(store: Store, tmp_path: Path) -> None:
    index = write_trace_folder(tmp_path / "t", store, "first", traces=False, results=RESULTS)
    assert (index.files, names(tmp_path / "t")) == ((), ["index.json"])


def test_a_folder_left_half_way_is_taken_over(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "traces"

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_trace_folder(folder, store, "first", on_session=stop)
    assert names(folder) == ["index.json", "trace_episode_0.json"]
    write_trace_folder(folder, store, "second")
    assert names(folder) == ["index.json", "trace_episode_0.json"]

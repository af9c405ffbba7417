"""What was exported comes back as the same rows; what is damaged is named."""

import os
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.store.export import ExportFormat, export_sessions
from assay.store.imports import ImportReport, import_traces, trace_files
from assay.store.store import Store
from assay.types import TrialState
from tests.store.sessions import START, make_run, make_session, make_sessions
from tests.store.stores import fill, ids, rows_of

RUN = make_run(baselines=["builtin/expert"])
SESSIONS = [
    *make_sessions(RUN),
    make_session(RUN, episode=7, state=TrialState.FAILURE),
    make_session(RUN, episode=8, state=TrialState.INFRASTRUCTURE, digests=False),
]


def exported(folder: Path, form: ExportFormat = ExportFormat.JSON) -> Store:
    """A store beside `folder`, into which all of it was exported."""
    store = fill(folder.parent / "source.duckdb", RUN, SESSIONS)
    export_sessions(store, ids(SESSIONS), form, folder)
    return store


def imported(store: Store, *paths: Path) -> ImportReport:
    return import_traces(store, trace_files(paths))


@pytest.mark.parametrize("form", [ExportFormat.JSON, ExportFormat.JSONL])
def test_import_restores_the_same_rows(form: ExportFormat, tmp_path: Path) -> None:
    source = exported(tmp_path / "out", form)
    target = Store(tmp_path / "target.duckdb")
    assert imported(target, tmp_path / "out") == ImportReport(len(SESSIONS), 0, ())
    assert rows_of(target) == rows_of(source)


def test_importing_twice_adds_nothing(tmp_path: Path) -> None:
    exported(tmp_path / "out")
    target = Store(tmp_path / "target.duckdb")
    imported(target, tmp_path / "out", tmp_path / "out")
    before = rows_of(target)
    assert imported(target, tmp_path / "out") == ImportReport(0, len(SESSIONS), ())
    assert rows_of(target) == before


def test_import_does_not_change_stored_sessions(tmp_path: Path) -> None:
    exported(tmp_path / "out")
    longer = make_session(RUN, turns=9)
    target = fill(tmp_path / "target.duckdb", RUN, [longer])
    report = imported(target, tmp_path / "out")
    assert (report.added, report.present) == (len(SESSIONS) - 1, 1)
    turns = {row[0]: row[14] for row in rows_of(target)["session_traces"]}
    assert turns[longer.header.session_id] == 9


def test_damaged_files_are_reported_and_the_rest_is_imported(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    exported(folder)
    first, second, *_ = sorted(folder.iterdir())
    first.write_bytes(first.read_bytes()[:-50])
    second.write_bytes(second.read_bytes().replace(b'"subject":', b'"sabject":', 1))
    (folder / "notes.json").write_text("{}")
    (folder / "readme.txt").write_text("not looked at")
    report = imported(Store(tmp_path / "target.duckdb"), folder)
    assert report.added == len(SESSIONS) - 2
    assert {Path(bad.where) for bad in report.damaged} == {
        *(first, second),
        folder / "notes.json",
    }


def test_damaged_line_is_reported_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    exported(path, ExportFormat.JSONL)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"{broken\n\n" + b"".join(lines[1:-1]) + lines[-1][:-30])
    report = imported(Store(tmp_path / "target.duckdb"), path)
    assert report.added == len(SESSIONS) - 1
    assert [bad.where for bad in report.damaged] == [
        f"{path}, line 2",
        f"{path}, line {len(SESSIONS) + 2}",
    ]


def test_missing_files_pipes_and_empty_folders_are_reported(tmp_path: Path) -> None:
    store = Store(tmp_path / "target.duckdb")
    with pytest.raises(UsageError, match="nowhere"):
        trace_files([tmp_path / "nowhere"])
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "empty").mkdir()
    report = imported(store, tmp_path / "pipe.json", tmp_path / "empty")
    assert [bad.reason.split(":")[0] for bad in report.damaged] == [
        "is not a regular file",
        "contains no traces",
    ]
    assert not store.path.exists()


def test_duplicate_name_gets_a_number(tmp_path: Path) -> None:
    exported(tmp_path / "out")
    other = make_run("other", created_at=START + 1)
    target = fill(tmp_path / "target.duckdb", other, [])
    imported(target, tmp_path / "out")
    names = sorted(row[1] for row in rows_of(target)["experiments"])
    assert names == [
        *("builtin/expert v1.0", "builtin/expert v1.0 #2"),
        *("builtin/forager v1.0", "builtin/forager v1.0 #2"),
    ]


def test_experiment_of_another_run_is_not_reused(tmp_path: Path) -> None:
    exported(tmp_path / "out")
    path = sorted((tmp_path / "out").iterdir())[0]
    target = fill(tmp_path / "target.duckdb", RUN, [])
    path.write_bytes(path.read_bytes().replace(b'"id":"run-1"', b'"id":"run-2"', 1))
    report = imported(target, path)
    assert report.added == 0
    assert "belongs to run 'run-1'" in report.damaged[0].reason
    assert [row[0] for row in rows_of(target)["runs"]] == ["run-1"]

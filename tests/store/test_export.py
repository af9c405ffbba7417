"""Exports are complete, and their files are written atomically."""

import json
import os
from pathlib import Path

import pyarrow.parquet
import pytest

from assay.errors import UsageError
from assay.store.export import ExportFormat, export_sessions
from assay.store.formats.trace_json import parse_trace
from assay.store.schema import TABLES
from tests.store.sessions import make_run, make_session, make_sessions
from tests.store.stores import add_training, fill, ids, rows_of

RUN = make_run()
SESSIONS = make_sessions(RUN)


def test_json_has_a_file_per_session(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, SESSIONS)
    done = export_sessions(store, ids(SESSIONS), ExportFormat.JSON, tmp_path / "out")
    assert [path.stem for path in done.files] == ids(SESSIONS)
    traces = [parse_trace(path.read_bytes()) for path in done.files]
    assert [trace.session for trace in traces] == SESSIONS
    assert traces[0].run.status == "finished"
    assert traces[0].experiment.name == "builtin/forager v1.0"


def test_single_session_can_be_exported_to_one_file(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, SESSIONS)
    for form, name in ((ExportFormat.JSON, "one.json"), (ExportFormat.ATIF, "two.json")):
        done = export_sessions(store, ids(SESSIONS[:1]), form, tmp_path / name)
        assert done.files == (tmp_path / name,)
        assert json.loads((tmp_path / name).read_bytes())
    with pytest.raises(UsageError, match="one episode, not 4"):
        export_sessions(store, ids(SESSIONS), ExportFormat.JSON, tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()


def test_jsonl_has_a_line_per_session_in_a_file_or_a_folder(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, SESSIONS)
    for output in (tmp_path / "a.jsonl", tmp_path / "folder"):
        done = export_sessions(store, ids(SESSIONS), ExportFormat.JSONL, output)
        lines = done.files[0].read_bytes().splitlines()
        assert [parse_trace(line).session for line in lines] == SESSIONS


def test_parquet_has_only_rows_of_selected_sessions(tmp_path: Path) -> None:
    everything = fill(tmp_path / "all.duckdb", RUN, SESSIONS)
    part = fill(tmp_path / "part.duckdb", RUN, SESSIONS[:2])
    folder = tmp_path / "it's parquet"
    export_sessions(everything, ids(SESSIONS[:2]), ExportFormat.PARQUET, folder)
    assert sorted(os.listdir(folder)) == sorted(f"{table.name}.parquet" for table in TABLES)
    wanted = rows_of(part)
    wanted["experiments"] = [row for row in wanted["experiments"] if "forager" in row[1]]
    for table in TABLES:
        found = pyarrow.parquet.read_table(folder / f"{table.name}.parquet")
        assert tuple(found.column_names) == table.names
        assert found.num_rows == len(wanted[table.name]), table.name
        # Few readers know UUID and JSON, and `datasets` is not one of them.
        plain = [not isinstance(kind, pyarrow.BaseExtensionType) for kind in found.schema.types]
        assert all(plain), table.name


@pytest.mark.parametrize("chosen", [2, len(SESSIONS)])
def test_parquet_has_rows_without_a_session_only_in_a_full_export(
    chosen: int, tmp_path: Path
) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, SESSIONS)
    add_training(store, RUN)
    with store.writing() as connection:
        connection.execute(
            "INSERT INTO outcomes VALUES (?, ?, 'a', NULL, NULL, NULL, 'spread', 1.0)",
            2 * [RUN.experiments[0].id],
        )
    wanted = rows_of(store)
    export_sessions(store, ids(SESSIONS[:chosen]), ExportFormat.PARQUET, tmp_path / "out")
    counts = {
        table.name: pyarrow.parquet.read_table(
            tmp_path / "out" / f"{table.name}.parquet"
        ).num_rows
        for table in TABLES
    }
    if chosen == len(SESSIONS):
        assert counts == {name: len(rows) for name, rows in wanted.items()}
    else:
        assert [
            counts[name] for name in ("training_runs", "metric_points", "analysis_plans")
        ] == [
            *(0, 0, 0),
        ]
        # The look is at the other model, none of whose sessions is chosen.
        assert (counts["looks"], counts["provider_limits"]) == (0, 1)


def test_unusual_session_id_gets_a_safe_file_name(tmp_path: Path) -> None:
    session = make_session(RUN)
    odd = type(session.header)(
        **{
            name: getattr(session.header, name)
            for name in session.header.__slots__
            if name != "session_id"
        },
        session_id="../../etc/passwd",
    )
    odd_session = type(session)(
        odd, session.messages, session.calls, session.played, session.end
    )
    store = fill(tmp_path / "t.duckdb", RUN, [odd_session])
    done = export_sessions(store, ["../../etc/passwd"], ExportFormat.JSON, tmp_path / "out")
    assert done.files[0].parent == tmp_path / "out"
    assert "/" not in done.files[0].name
    assert parse_trace(done.files[0].read_bytes()).session.header == odd


def test_file_at_the_folder_path_is_named_in_the_error(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, SESSIONS)
    (tmp_path / "out").touch()
    for form in ExportFormat:
        with pytest.raises(UsageError, match="is a file"):
            export_sessions(store, ids(SESSIONS), form, tmp_path / "out")


def test_export_reports_progress(tmp_path: Path) -> None:
    store = fill(tmp_path / "t.duckdb", RUN, SESSIONS)
    told: list[int] = []
    export_sessions(
        store, ids(SESSIONS), ExportFormat.JSON, tmp_path / "out", on_session=told.append
    )
    assert told == [1, 2, 3, 4]

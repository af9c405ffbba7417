"""Exports can be loaded with Hugging Face `datasets`, for sessions of any shape."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from assay.store.export import ExportFormat, export_sessions
from tests.oracles.asking import ask, needs_oracles
from tests.store.sessions import make_run, make_session, make_sessions, rich_session
from tests.store.stores import fill, ids

RUN = make_run()


@pytest.mark.extras
@needs_oracles
def test_exports_can_be_loaded_with_datasets(tmp_path: Path) -> None:
    # The last has what the first ones lack: hooks, errors, tools, numbers of another kind.
    sessions = [
        *make_sessions(RUN),
        make_session(RUN, "builtin/forager", 5, text="ü"),
        rich_session(),
    ]
    store = fill(tmp_path / "t.duckdb", RUN, sessions)
    places = {}
    for form in (ExportFormat.JSON, ExportFormat.JSONL, ExportFormat.PARQUET):
        done = export_sessions(store, ids(sessions), form, tmp_path / form)
        places[form] = str(tmp_path / form / f"*{done.files[0].suffix}")
    for path in (tmp_path / "parquet").iterdir():
        if not pyarrow.parquet.read_metadata(path).num_rows:
            path.unlink()  # a split of no rows is an error there
    loaded = ask("datasets_side.py", places)
    written: dict[str, Any] = {
        path.stem: json.loads(path.read_bytes()) for path in (tmp_path / "json").iterdir()
    }
    for name in ("json", "jsonl"):
        assert {row["session"]["id"]: row for row in loaded[name]} == written
    assert loaded["parquet"]["session_traces"] == len(written)
    assert loaded["parquet"]["message_rows"] > 0

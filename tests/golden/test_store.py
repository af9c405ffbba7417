"""Databases and exports of commit 557b711 give the same output today."""

import json
from pathlib import Path
from typing import Any

import duckdb

from assay.store.schema import TABLES

from .commands import OUTPUTS, STORE
from .files import command, differences, file_differences, unpack

VERSION_THEN = 3
NEW = ("--database", "new.duckdb")
FIRST_LOOK = {
    **{"number": 1, "rule": "single", "planned": [], "earlier": [], "alpha": 0.05},
    **{"error_of_all_looks": 0.05, "recorded": True, "sentence": None},
}
ADDED = [
    *(
        f"parquet: there is {table.name}.parquet"
        for table in TABLES
        if table.since > VERSION_THEN
    ),
    f"analysis.json.look: (nothing) -> {FIRST_LOOK}",
]
"""Tables that came since have a file of their own, and an analysis says which look it is."""
GONE = "whatever the difference'] -> []"
"""The end of a note that the verdict says now."""


def test_the_old_database_exports_lists_and_compares_as_before(tmp_path: Path) -> None:
    folder = unpack("store", tmp_path)
    golden = (folder / "outputs").rename(folder / "golden")
    (folder / "outputs").mkdir()
    found = []
    for name, output in OUTPUTS.items():
        done = command(folder, *output.command)
        assert done.code == 0, (name, done.errors)
        if not output.files:
            (folder / "outputs" / f"{name}.json").write_text(done.output, "utf-8")
        for file in output.files or [f"{name}.json"]:
            found += file_differences(golden / file, folder / "outputs" / file)
    found = [each for each in found if each not in ADDED and not each.endswith(GONE)]
    assert found == []


def test_an_old_export_is_imported_and_exports_and_compares_as_before(
    tmp_path: Path,
) -> None:
    folder = unpack("store", tmp_path)
    golden = (folder / "outputs").rename(folder / "golden")
    (folder / "outputs").mkdir()
    assert command(folder, "traces", "import", "golden/all.jsonl", *NEW).code == 0
    for name in ("export-json", "export-jsonl", "export-atif"):
        output = OUTPUTS[name]
        done = command(folder, *in_new_store(output.command))
        assert done.code == 0, done.errors
        for file in output.files:
            assert file_differences(golden / file, folder / "outputs" / file) == []
    done = command(folder, *in_new_store(OUTPUTS["compare"].command))
    before = compared((golden / "compare.json").read_text("utf-8"))
    assert differences(before, compared(done.output), ".contrasts") == []
    assert sessions(folder / "new.duckdb") == sessions(folder / "golden.duckdb")


def test_the_folder_of_a_run_is_imported_as_the_same_sessions(tmp_path: Path) -> None:
    folder = unpack("store", tmp_path)
    for run_id in ("plain", "second", "decided"):
        assert command(folder, "traces", "import", f"traces/{run_id}", *NEW).code == 0
    done = command(folder, "traces", "import", "logs", *NEW)
    assert done.code == 0, done.errors
    assert sessions(folder / "new.duckdb") == sessions(folder / "golden.duckdb")


def test_sessions_of_a_model_behind_http_are_imported_with_every_number(tmp_path: Path) -> None:
    folder = unpack("killed", tmp_path)
    assert command(folder, "traces", "import", "whole/sessions.jsonl", *NEW).code == 0
    export = ("--format", "jsonl", "--output", "now.jsonl")
    assert command(folder, "traces", "export", *export, *NEW).code == 0
    assert file_differences(folder / "whole" / "sessions.jsonl", folder / "now.jsonl") == []


def in_new_store(arguments: tuple[str, ...]) -> tuple[str, ...]:
    assert arguments[-2:] == STORE
    return (*arguments[:-2], *NEW)


def sessions(database: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute("FROM session_traces ORDER BY session_id").fetchall()


def compared(text: str) -> Any:
    found = json.loads(text)
    return found["contrasts"]

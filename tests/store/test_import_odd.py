"""Any content of a foreign log is imported or reported; nothing is raised."""

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assay.store.formats.atif import dump_atif
from assay.store.imports import (
    DamagedSource,
    FoundSession,
    SkippedSource,
    TraceSource,
    read_sources,
)
from assay.store.records import imported_columns
from assay.store.rows import session_rows
from tests.store.sessions import make_run, make_session

from . import test_import_atif, test_import_balrog, test_import_inspect
from .test_trace_json import trace_of

ODD: list[Any] = [
    *(None, True, -1, 0, 2**31, 2**63, 10**400, 1e308, -0.5, "", "x" * 300, "\x1b[31m\0"),
    *("\ud800", [], [[]], [None, 3, {}], {}, {"a": [1]}, "2026-01-01", "attachment://"),
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Yield every path in a value whose content can be replaced."""
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            found += places(value[key])
    return found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("one.json", test_import_atif.trajectory(), id="atif"),
        pytest.param(
            "own.json", json.loads(dump_atif(trace_of(make_session(make_run())))), id="own atif"
        ),
        pytest.param(
            "log.json",
            test_import_inspect.header(samples=[test_import_inspect.sample()]),
            id="inspect",
        ),
        pytest.param("default_run_00.json", test_import_balrog.totals(), id="balrog"),
    ],
)
def test_import_survives_an_odd_value_in_any_field(
    name: str, value: Any, tmp_path: Path
) -> None:
    dice = Random(7)
    path = tmp_path / name
    outcomes = set()
    for _ in range(60):
        changed = copy.deepcopy(value)
        for _ in range(dice.choice([1, 1, 2, 5])):
            holder, key = dice.choice(places(changed))
            holder[key] = copy.deepcopy(dice.choice(ODD))
        path.write_text(json.dumps(changed))
        for found in read_sources([TraceSource(path)], lambda done: None):
            outcomes.add(type(found))
            if isinstance(found, FoundSession):
                session_rows(found.trace.session, source=found.trace.source)
    assert outcomes - {SkippedSource} == {FoundSession, DamagedSource}


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
def test_totals_beyond_column_bounds_are_omitted(odd: Any) -> None:
    names = ("num_turns", "prompt_tokens", "cost_usd", "session_id", "state")
    columns = imported_columns({"imported": {"totals": dict.fromkeys(names, odd)}})
    assert not {"session_id", "state"} & columns.keys()
    assert all(value is None or type(value) in (int, float) for value in columns.values())
    assert imported_columns({"imported": odd}) == {}
    assert imported_columns({"imported": {"totals": odd, "unverifiable": []}}) == {}


def test_file_with_millions_of_lists_is_rejected_before_parsing(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_bytes(b'{"steps": [' + b"[]," * 5_000_000 + b"[]]}")
    (found,) = read_sources([TraceSource(path)], lambda done: None)
    assert isinstance(found, DamagedSource)
    assert "has 5,000,003 lists and objects, but at most 5,000,000 are read" in found.reason

"""The results file has one value per episode and metric, or null."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import OutputError
from assay.store.load import load_outcomes, load_stored_run
from assay.store.queries import episodes
from assay.store.results_file import results_name, write_results
from assay.types import TrialState
from tests.store.sessions import START, make_run, make_session
from tests.store.stores import fill

RUN = make_run(models=("m", "ü/[bold]"), baselines=["ü/[bold]"])
SESSIONS = [
    make_session(RUN, "m", 0),
    make_session(RUN, "m", 1, state=TrialState.INFRASTRUCTURE),
    make_session(RUN, "m", 2, price=None),
    make_session(RUN, "ü/[bold]", 0, state=TrialState.FAILURE),
]


def results(tmp_path: Path, *, detailed: bool = True) -> dict[str, Any]:
    store = fill(tmp_path / "t.duckdb", RUN, SESSIONS)
    with store.reading() as connection:
        rows = episodes(connection, run_id=RUN.id)
        outcomes = load_outcomes(connection, [row.session_id for row in rows])
        run = load_stored_run(connection, RUN.id)
    write_results(tmp_path / "r.json", run, rows, outcomes, {}, detailed=detailed)
    found: dict[str, Any] = json.loads((tmp_path / "r.json").read_text("utf-8"))
    return found


def test_file_name_has_the_utc_time() -> None:
    assert results_name(START) == "multi_model_results_20251009_085320.json"


def test_results_have_one_value_per_seed_and_null_if_missing(tmp_path: Path) -> None:
    found = results(tmp_path)
    assert found["format"] == "assay-results/1"
    assert found["run"]["id"] == RUN.id
    assert found["config"] == RUN.configuration
    assert list(found["models"]) == ["m", "ü/[bold]"]
    model = found["models"]["m"]
    assert (model["name"], model["seeds"]) == ("m v1.0", [42, 43, 44])
    assert all(values[1] is None for values in model["metrics"].values())
    assert all(len(values) == 3 for values in model["metrics"].values())
    assert model["metrics"]["turns"] == [4, None, 4]
    assert model["metrics"]["cost_usd"] == [0.004, None, None]
    assert [item["seed"] for item in model["without_result"]] == [43]
    assert model["without_result"][0]["error_type"] == "ModelUnavailable"


def test_a_model_without_any_result_has_null_in_every_metric(tmp_path: Path) -> None:
    model = results(tmp_path)["models"]["ü/[bold]"]
    assert model["baseline"] is True
    assert set(model["metrics"]) >= {"achievements", "reward", "steps"}
    assert all(values == [None] for values in model["metrics"].values())
    assert model["without_result"][0]["state"] == "failure"


def test_episodes_are_left_out_on_request(tmp_path: Path) -> None:
    detailed = results(tmp_path)["models"]["m"]["episodes"]
    assert [episode["episode"] for episode in detailed] == [0, 1, 2]
    assert "episodes" not in results(tmp_path, detailed=False)["models"]["m"]


def test_non_numeric_outcome_keeps_the_old_file(tmp_path: Path) -> None:
    results(tmp_path)
    before = (tmp_path / "r.json").read_bytes()
    with fill(tmp_path / "t.duckdb", RUN, SESSIONS).reading() as connection:
        rows = episodes(connection, run_id=RUN.id)
        run = load_stored_run(connection, RUN.id)
    broken = {rows[0].session_id: {"reward": float("nan")}}
    with pytest.raises(OutputError, match="finite"):
        write_results(tmp_path / "r.json", run, rows, broken, {})
    assert (tmp_path / "r.json").read_bytes() == before

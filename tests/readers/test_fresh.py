"""What the real trackers write is read back to the last digit; W&B's package reads a server."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.store.training_runs import TrainingRun, TrainingStatus
from assay.training.readers.sources import read_all_runs, read_source
from tests.readers.packages import ROOT, log_runs, needs_readers
from tests.readers.wandb_server import serve_runs

pytestmark = [pytest.mark.extras, needs_readers]

METRIC = "overview/reward"
BLOCK = 32 * 1024
KEY = "k" * 40
STEPS = range(0, 1_500_000, 1_000)


def value(step: int) -> float:
    return step / 7_000_000


ROWS = [[step, {METRIC: value(step), "losses/policy": -value(step)}] for step in STEPS]


def points(run: TrainingRun, metric: str = METRIC) -> dict[int, float]:
    curve = run.curves[metric]
    return dict(zip(curve.steps_P.tolist(), curve.values_P.tolist(), strict=True))


def test_runs_that_wandb_wrote_offline_over_many_blocks(
    tmp_path: Path, record_property: Any
) -> None:
    asked = {"name": "vit.seed7", "group": "vit", "config": {"seed": 7}, "rows": ROWS}
    ends = {"whole": "finish", "killed": "kill"}
    runs = [{**asked, "id": name, "end": end} for name, end in ends.items()]
    version = log_runs("wandb_side.py", runs, tmp_path)
    found = {run.id: run for run in read_all_runs(str(tmp_path / "wandb"))}
    whole, killed = found["whole"], found["killed"]
    size = Path(whole.source).stat().st_size
    assert size > 4 * BLOCK
    assert (whole.status, whole.seed, whole.series) == (TrainingStatus.FINISHED, 7, "vit")
    assert points(whole) == {step: value(step) for step in STEPS}
    assert points(whole, "losses/policy") == {step: -value(step) for step in STEPS}
    assert whole.notes == ()
    assert killed.status is TrainingStatus.CRASHED
    kept = points(killed)
    assert [*kept.items()] == [*points(whole).items()][: len(kept)]
    assert any("it is unknown how it ended" in note for note in killed.notes)
    record_property(
        "note",
        f"wandb {version['wandb']}: {size:,} bytes; {len(kept)} rows left of a killed run",
    )


def test_scalars_and_tensors_that_tensorboard_wrote(tmp_path: Path) -> None:
    runs = [
        {"folder": f"a/{kind}", "kind": kind, "rows": ROWS} for kind in ("scalar", "tensor")
    ]
    log_runs("tensorboard_side.py", runs, tmp_path)
    scalar, tensor = read_all_runs(str(tmp_path / "a"))
    assert sum(file.stat().st_size for file in Path(scalar.source).iterdir()) > 2 * BLOCK
    for run in (scalar, tensor):
        # Floats of half the length.
        assert points(run) == pytest.approx({step: value(step) for step in STEPS}, rel=1e-6)
        assert (run.status, run.notes) == (TrainingStatus.FINISHED, ())
    assert points(tensor, "losses/policy") == {step: -value(step) for step in STEPS}, "doubles"


@pytest.mark.parametrize("store", ["sqlite", "files"])
def test_runs_that_mlflow_wrote(store: str, tmp_path: Path) -> None:
    about = {"experiment": "vit", "params": {"seed": 7, "lr": 0.1}, "rows": ROWS}
    runs = [
        {**about, "name": "vit.seed7", "status": "FINISHED"},
        {**about, "name": "other", "status": "KILLED"},
    ]
    ids = log_runs("mlflow_side.py", {"store": store, "runs": runs}, tmp_path)["ids"]
    place = tmp_path / ("mlflow.db" if store == "sqlite" else "mlruns")
    found = {run.id: run for run in read_all_runs(str(place))}
    assert set(found) == set(ids)
    first, second = (found[run_id] for run_id in ids)
    assert points(first) == {step: value(step) for step in STEPS}
    assert (first.seed, first.series, first.commit) == (7, "vit", "c0ffee")
    assert first.configuration == {"seed": 7, "lr": 0.1}
    assert (first.status, second.status) == (TrainingStatus.FINISHED, TrainingStatus.CRASHED)
    if store == "sqlite":
        assert read_source(f"{place}:vit.seed7").id == ids[0]


def test_a_run_at_wandb_is_read_by_its_id_through_its_package(tmp_path: Path) -> None:
    facts = {
        "name": "abc123",
        "displayName": "vit.seed7",
        "state": "finished",
        "group": "vit",
        "commit": "c0ffee",
        "config": json.dumps({"seed": {"value": 7}, "_wandb": {"value": {}}}),
    }
    rows: list[dict[str, Any]] = [
        {"_step": step, METRIC: value(step), "_runtime": 1.0} for step in STEPS
    ]
    rows[3][METRIC] = "NaN"
    runs = {
        "abc123": {"facts": facts, "rows": rows},
        "dead00": {"facts": {**facts, "name": "dead00", "state": "crashed"}, "rows": rows[:9]},
    }
    asked = {"project": "team/crafter", "ids": ["abc123", "dead00", "nobody"]}
    source = str(ROOT / "src")
    with serve_runs(runs, KEY) as address:
        settings = {"WANDB_BASE_URL": address, "PYTHONPATH": source, "HOME": str(tmp_path)}
        found = log_runs("wandb_api_side.py", asked, tmp_path, WANDB_API_KEY=KEY, **settings)
        wrong = log_runs(
            "wandb_api_side.py", asked, tmp_path, WANDB_API_KEY="w" * 40, **settings
        )
    whole, dead, nobody = found
    steps, values, dropped = whole["curves"][METRIC]
    assert dict(zip(steps, values, strict=True)) == {
        step: value(step) for step in STEPS if step != 3_000
    }
    assert (dropped, whole["notes"]) == (1, [])
    assert (whole["seed"], whole["series"], whole["commit"]) == (7, "vit", "c0ffee")
    assert whole["configuration"] == {"seed": 7}
    assert set(whole["curves"]) == {METRIC}
    assert (dead["status"], len(dead["curves"][METRIC][0])) == ("crashed", 8)
    assert nobody is None
    assert "check WANDB_API_KEY" in wrong[0]["error"]

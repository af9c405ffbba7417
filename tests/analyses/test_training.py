"""Progress of fine-tuning jobs, on curves made by hand."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import assay
from assay.analyses.episodes import analysis_document
from assay.analyses.training import analyse_training
from assay.cli import main
from assay.errors import UsageError
from assay.store.finetune_jobs import FinetuneEvent, FinetuneJob, add_events, add_job
from assay.store.store import Store

START = datetime(2026, 11, 17)


def job(name: str = "ftjob-a", **changes: object) -> FinetuneJob:
    fields: dict[str, object] = {
        "id": name,
        "address": "http://127.0.0.1:1/v1",
        "backend": "synth",
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "status": "succeeded",
        "hyperparameters": {"n_epochs": 3, "learning_rate": 5e-5},
        "trained_tokens": 8000,
        "created_at": START,
        "finished_at": START + timedelta(minutes=10),
    }
    return FinetuneJob(**{**fields, **changes})  # type: ignore[arg-type]


def curve(losses: Sequence[float], valid: Sequence[float] = ()) -> list[FinetuneEvent]:
    """Return one step per loss, two seconds apart."""
    return [
        FinetuneEvent(
            id=f"e{step}",
            created_at=START + timedelta(seconds=2 * step),
            level="info",
            message=f"step {step}",
            step=step,
            total_steps=len(losses),
            metrics={
                "train_loss": loss,
                "train_mean_token_accuracy": 1 - loss / 10,
                **({"valid_loss": valid[step - 1]} if valid else {}),
            },
        )
        for step, loss in enumerate(losses, start=1)
    ]


FALLING = [2.0 - 0.04 * step for step in range(40)]
TURNING = [1.5 + abs(step - 15) / 20 for step in range(40)]


def test_first_and_last_losses_and_speed_match_the_events() -> None:
    (found,) = analyse_training([(job(), curve(FALLING))], "here").jobs
    assert found.first_loss == pytest.approx(sum(FALLING[:4]) / 4)
    assert found.last_loss == pytest.approx(sum(FALLING[-4:]) / 4)
    assert found.last_accuracy == pytest.approx(1 - sum(FALLING[-4:]) / 40)
    assert found.steps_per_second == pytest.approx(0.5)
    assert found.tokens_per_second == pytest.approx(0.5 * 8000 / 40)
    assert (found.seconds, found.learning_rate) == (600.0, 5e-5)
    assert found.overfitting.verdict == "cannot tell"
    assert "--validation FILE" in found.overfitting.why


def test_events_of_one_step_are_merged_and_the_last_loss_is_kept() -> None:
    """The event of the last validation loss took the place of that of the training loss."""
    losses = [2.0, 1.5, 1.0, 0.5]
    last = curve(losses, [3.0, 2.5, 2.0, 1.5])[-1]
    events = [*curve(losses), replace(last, id="v", metrics={"full_valid_loss": 1.5})]
    (found,) = analyse_training([(job(), events)], "here").jobs
    assert (found.last_loss, found.valid_loss) == (0.5, 1.5)
    resumed = [*events, replace(last, id="again", metrics={"train_loss": 0.4})]
    (found,) = analyse_training([(job(), resumed)], "here").jobs
    assert (found.last_loss, found.valid_loss) == (0.4, 1.5)


def test_a_validation_loss_that_turns_is_overfitting() -> None:
    (found,) = analyse_training([(job(), curve(FALLING, TURNING))], "here").jobs
    check = found.overfitting
    assert check.verdict == "overfits"
    assert check.best_step == pytest.approx(16, abs=2)
    assert check.last is not None
    assert check.best is not None
    # The mean distance of the last ten from the turn, less that of the ten around it.
    assert check.last - check.best == pytest.approx((19.5 - 2.5) / 20, abs=0.01)


@pytest.mark.parametrize(
    "valid",
    [
        pytest.param([2.2 - 0.03 * step for step in range(40)], id="it falls"),
        pytest.param([1.5 + 0.2 * math.sin(2.1 * n) for n in range(40)], id="it is noise"),
        pytest.param([1.5] * 40, id="it stays"),
    ],
)
def test_a_validation_loss_that_does_not_rise_is_not_overfitting(
    valid: list[float],
) -> None:
    (found,) = analyse_training([(job(), curve(FALLING, valid))], "here").jobs
    assert found.overfitting.verdict == "no sign"


def test_few_validation_losses_give_no_overfitting_result() -> None:
    (found,) = analyse_training([(job(), curve([2, 1], [1, 3]))], "here").jobs
    assert found.overfitting.verdict == "cannot tell"
    assert "there are 2 validation losses" in found.overfitting.why


def test_jobs_without_steps_and_different_data_are_noted() -> None:
    jobs = [
        (job("ftjob-a", data_sha256="1"), curve(FALLING)),
        (job("ftjob-b", data_sha256="2", status="running", finished_at=None), []),
    ]
    found = analyse_training(jobs, "here")
    assert found.jobs[1].last_loss is None
    assert "ftjob-b has no steps" in found.notes[0]
    assert "different data" in found.notes[1]
    lines = analysis_document(found).summary
    assert lines[0].startswith("ftjob-a: the training loss went from 1.94 to 0.5;")
    assert lines[1] == "ftjob-b is running, and no loss was told."
    with pytest.raises(UsageError, match="no job is named"):
        analyse_training([], "here")


@pytest.mark.extras
def test_the_command_writes_json_a_figure_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "traces.duckdb"
    with Store(path).writing() as connection:
        for name, events in (
            ("ftjob-abc123", curve(FALLING)),
            ("ftjob-def456", curve(FALLING, TURNING)),
        ):
            add_events(connection, add_job(connection, job(name)), events)
    line = ["analyze", "training", "--database", str(path)]
    outputs = [tmp_path / f"training_analysis.{ending}" for ending in ("json", "png", "html")]
    named = [word for output in outputs for word in ("--output", str(output))]
    assert main([*line, "--job-ids", "ftjob-abc123,ftjob-def456", *named]) == 0
    assert "it overfits" in capsys.readouterr().out
    found = json.loads(outputs[0].read_text())
    assert [job["id"] for job in found["jobs"]] == ["ftjob-abc123", "ftjob-def456"]
    assert found["jobs"][1]["overfitting"]["verdict"] == "overfits"
    assert len(found["jobs"][0]["points"]) == 40
    assert outputs[1].read_bytes().startswith(b"\x89PNG")
    page = outputs[2].read_text()
    assert "validation loss" in page
    assert "<svg" in page
    assert main(line) == 0
    assert "ftjob-def456" in capsys.readouterr().out
    assert main([*line, "--job-ids", "ftjob-none"]) == 2
    assert "unknown job 'ftjob-none'" in capsys.readouterr().err


@pytest.mark.extras
def test_merging_databases_keeps_their_jobs(tmp_path: Path) -> None:
    first, second = tmp_path / "one.duckdb", tmp_path / "two.duckdb"
    for path, name in ((first, "ftjob-a"), (second, "ftjob-b")):
        with Store(path).writing() as connection:
            add_events(connection, add_job(connection, job(name)), curve(FALLING))
    for _ in range(2):  # a second time adds nothing
        assay.merge(second, database=first)
    assert sorted(job.id for job in assay.finetune_list(database=first)) == [
        *("ftjob-a", "ftjob-b"),
    ]
    assert len(assay.finetune_events("ftjob-b", database=first)) == 40

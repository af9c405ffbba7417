"""The budget of a loop covers all stages; the estimated cost is shown before it starts."""

import json
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.api.loop import estimate_loop, plan_loop
from assay.cli.program import main
from assay.errors import LoopStopped, ServiceError, UsageError
from tests.finetune.server import Service

KEY = "sk-test-2f8a6c4d9b1e"
SMALL: dict[str, Any] = {
    **{"teacher": "builtin/forager", "teacher_worlds": 3, "holdout": "34%"},
    **{"step_limit": 8, "max_turns": 8, "exam_worlds": 2, "beside": ["builtin/random"]},
    **{"student": "gpt-4o-mini", "backend": "openai", "epochs": 1, "price": "0.3/1.2"},
}


@pytest.fixture(autouse=True)
def place(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", service.url)


def test_training_is_not_started_if_the_budget_does_not_cover_it(service: Service) -> None:
    with pytest.raises(LoopStopped, match=r"training gpt-4o-mini would cost about \$0\.\d\d"):
        assay.run_loop(**SMALL, budget=0.01)
    assert not service.jobs
    assert not service.files


def test_the_cost_of_training_is_subtracted_from_the_budget_of_the_evaluation(
    service: Service,
) -> None:
    made = assay.run_loop(**SMALL, budget=50.0)
    spent = {name: done.result.get("cost_usd", 0.0) for name, done in made.stages.items()}
    assert spent["teach"] == 0
    # Its rows have about 1,000 tokens each, at 3 dollars a million.
    assert 0.01 < spent["finetune"] < 1
    values = json.loads(made.report.with_suffix(".json").read_bytes())["loop"]
    assert values["cost_usd"] == pytest.approx(sum(spent.values()))
    # The job is paid for: with a smaller budget only the evaluation is rejected.
    with pytest.raises(LoopStopped, match="the budget is spent"):
        assay.run_loop(**SMALL, budget=spent["finetune"], exam_seed=900_100)
    assert len(service.jobs) == 1


def test_a_budget_requires_the_price_of_training(service: Service) -> None:
    other = {**SMALL, "student": "gpt-4.1-mini"}
    with pytest.raises(UsageError, match="give it with --training-price"):
        assay.run_loop(**other, budget=50.0)
    assert not service.jobs
    assert assay.run_loop(**other, budget=50.0, training_price=5.0).student


def test_a_dry_run_shows_the_time_and_cost_of_every_stage(
    service: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    given = "--teacher gpt-4o-mini --student gpt-4o-mini --backend openai --max-turns 8"
    assert main(f"loop {given} --price 0.3/1.2 --budget 9 --dry-run --json".split()) == 0
    estimate = json.loads(capsys.readouterr().out)
    stages = {stage["name"]: stage for stage in estimate["stages"]}
    assert list(stages) == ["teach", "filter", "finetune", "exam"]
    assert all(stage["dollars"] is not None for stage in stages.values())
    assert stages["teach"]["seconds"] > 1
    assert stages["finetune"]["seconds"] is None
    assert estimate["seconds"] is None
    assert estimate["dollars"] == pytest.approx(
        sum(stage["dollars"] for stage in stages.values())
    )
    assert estimate["budget"] == 9
    assert main(f"loop {given} --dry-run".split()) == 0
    shown = capsys.readouterr().out
    assert "no earlier job in the database shows its speed" in shown
    assert "the price of the new model is unknown: --price IN/OUT" in shown
    assert not service.requests
    assert not Path("loop").exists()


def test_a_dry_run_shows_finished_stages_and_their_duration(service: Service) -> None:
    assay.run_loop(**SMALL)
    again = estimate_loop(plan_loop(**SMALL))
    assert all(stage.done for stage in again.stages)
    assert again.seconds == 0
    longer = plan_loop(**{**SMALL, "exam_worlds": 4})
    *before, exam = estimate_loop(longer).stages
    assert all(stage.done for stage in before)
    assert not exam.done
    assert exam.why == "time by this folder's last run"


def test_a_missing_training_service_is_reported_before_data_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ASSAY_FINETUNE_URL", "http://127.0.0.1:1/v1")
    with pytest.raises(ServiceError, match="no fine-tuning service is running at"):
        assay.run_loop(**{**SMALL, "backend": "local", "student": "local/tiny"})
    assert not Path("loop").exists()

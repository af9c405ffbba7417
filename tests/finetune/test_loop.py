"""The whole loop with a local model: data, training, evaluation and report, each done once."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.api.loop import LoopResult, LoopWatch
from assay.finetune.loop import StageEvent

pytestmark = pytest.mark.local

SMALL: dict[str, Any] = {
    **{"teacher": "builtin/forager", "teacher_worlds": 4, "holdout": "25%"},
    **{"step_limit": 15, "max_turns": 15, "exam_worlds": 2, "max_tokens": 24},
    **{"epochs": 1, "batch_size": 16},
}


def test_a_loop_reports_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looped(**more: Any) -> tuple[LoopResult, list[str]]:
        done: list[StageEvent] = []
        found = assay.run_loop(
            folder=tmp_path / "loop", watch=LoopWatch(stage=done.append), **{**SMALL, **more}
        )
        return found, [event.stage.name for event in done if event.done and not event.kept]

    with assay.serve_finetune(port=0, folder=tmp_path / "service") as service:
        monkeypatch.setenv("ASSAY_FINETUNE_URL", service.base_url)
        first, made = looped()
        assert made == ["teach", "filter", "finetune", "exam"]
        again, made = looped()
        assert made == []
        assert again.student == first.student
        other, made = looped(learning_rate=1e-3)
        assert made == ["finetune", "exam"]
        assert other.student != first.student
    assert other.student.startswith("ft:local/tiny:")
    names = {facts.subject.model for facts in other.comparison.subjects}
    assert names == {"local/tiny", other.student, "builtin/random"}
    page = other.report.read_text("utf-8")
    for words in (
        "Leaderboard",
        "Data",
        "Training",
        "Stages",
        other.student,
    ):
        assert words in page
    values = json.loads(other.report.with_suffix(".json").read_bytes())["loop"]
    assert [stage["name"] for stage in values["stages"]] == list(other.stages)
    losses = [point["train_loss"] for point in values["training"] if "train_loss" in point]
    assert losses[-1] < losses[0]
    assert any("full_valid_loss" in point for point in values["training"])


def test_the_expert_corrects_a_students_episodes_and_the_model_learns_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    practice = {"teacher": "builtin/expert", "relabel_rounds": 1, "relabel_worlds": 3}
    with assay.serve_finetune(port=0, folder=tmp_path / "service") as service:
        monkeypatch.setenv("ASSAY_FINETUNE_URL", service.base_url)
        found = assay.run_loop(
            folder=tmp_path / "loop", **{**SMALL, **practice, "min_achievements": 1}
        )
    assert list(found.stages) == [
        *("teach", "filter", "pupil-1", "practice-1", "relabel-1", "finetune", "exam")
    ]
    before, after = (found.stages[name].result for name in ("filter", "relabel-1"))
    assert after["rows"] + after["holdout_rows"] > before["rows"] + before["holdout_rows"]
    rows = [json.loads(line) for line in Path(after["data"]).read_text("utf-8").splitlines()]
    calls = [row["messages"][-1]["tool_calls"][0]["function"] for row in rows]
    assert all("My goal is to" in call["arguments"] for call in calls)
    assert found.student == found.stages["finetune"].result["model"]
    assert found.stages["pupil-1"].result["model"] != found.student
    assert "relabelled its actions" in found.report.read_text("utf-8")


def test_single_commands_give_the_same_result_as_the_loop(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "loop" / "pipeline.sh"
    small = {"WORLDS": "3", "EXAM": "2", "STEPS": "12", "MIN_ACHIEVEMENTS": "0"}
    with assay.serve_finetune(port=0, folder=tmp_path / "service") as service:
        done = subprocess.run(
            [script],
            cwd=tmp_path,
            env={
                **os.environ,
                **small,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "ASSAY_FINETUNE_URL": service.base_url,
            },
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    assert "ft:local/tiny" in done.stdout
    assert "Leaderboard" in (tmp_path / "pipeline.html").read_text("utf-8")

"""Stages of a loop run in order, once, and again if an earlier stage has changed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ServiceError, UsageError
from assay.finetune.loop import LoopConfig, Stage, StageEvent, StageLog, run_stages


class Work:
    """Stages that count their calls; one may fail."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.settings = folder, settings
        self.done: list[str] = []
        self.events: list[StageEvent] = []
        self.failing: str | None = None

    def stage(self, name: str) -> Stage:
        def work(key: str, before: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
            if self.failing == name:
                raise ServiceError("nobody answers")
            self.done.append(name)
            (self.folder / name).write_text(key)
            return {"file": str(self.folder / name), "after": list(before)}

        settings = {name: self.settings.get(name)}
        return Stage(
            name, f"does {name}", settings, work, lambda result: Path(result["file"]).exists()
        )

    def run(self) -> dict[str, Any]:
        self.done.clear()
        self.events.clear()
        stages = [self.stage(name) for name in ("teach", "learn", "exam")]
        found = run_stages(stages, StageLog(self.folder / "loop.json"), self.events.append)
        return {name: done.result for name, done in found.items()}


def test_each_stage_runs_once_and_receives_the_earlier_results(tmp_path: Path) -> None:
    work = Work(tmp_path)
    first = work.run()
    assert work.done == ["teach", "learn", "exam"]
    assert first["exam"]["after"] == ["teach", "learn"]
    assert [(e.number, e.of, e.done is None) for e in work.events[:3]] == [
        (1, 3, True),
        (1, 3, False),
        (2, 3, True),
    ]
    assert work.run() == first
    assert work.done == []
    assert [event.kept for event in work.events] == [True] * 3


def test_a_changed_stage_repeats_all_later_stages(tmp_path: Path) -> None:
    work = Work(tmp_path, learn=1)
    work.run()
    work.settings["learn"] = 2
    work.run()
    assert work.done == ["learn", "exam"]
    work.settings["learn"] = 1
    work.run()
    assert work.done == []


def test_a_stage_with_missing_files_is_repeated(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.run()
    (tmp_path / "learn").unlink()
    work.run()
    assert work.done == ["learn"]


def test_a_failed_stage_is_named_and_resumed_by_the_next_call(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.failing = "learn"
    with pytest.raises(ServiceError) as error:
        work.run()
    assert error.value.__notes__ == ["in stage 2 of 3, learn"]
    work.failing = None
    work.run()
    assert work.done == ["learn", "exam"]


@pytest.mark.parametrize("text", ["", "{}", '{"format": "assay-loop/9", "done": []}', "[1]"])
def test_an_unreadable_record_of_stages_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "loop.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not a valid stage log"):
        StageLog(path)
    assert path.read_text() == text


def test_evaluation_on_training_worlds_is_rejected() -> None:
    seeds = {"teacher_seed": 100, "teacher_worlds": 10}
    LoopConfig.of({**seeds, "exam_seed": 110})
    LoopConfig.of({**seeds, "exam_seed": 50, "exam_worlds": 50})
    for exam in (109, 100, 60):
        with pytest.raises(UsageError, match="overlap with the training worlds, 100 to 109"):
            LoopConfig.of({**seeds, "exam_seed": exam, "exam_worlds": 50})


def test_worlds_of_practice_episodes_are_training_worlds_too() -> None:
    seeds = {"teacher_seed": 100, "teacher_worlds": 10, "relabel_worlds": 5}
    LoopConfig.of({**seeds, "relabel_rounds": 2, "exam_seed": 120})
    with pytest.raises(UsageError, match="overlap with the training worlds, 100 to 119"):
        LoopConfig.of({**seeds, "relabel_rounds": 2, "exam_seed": 119})


@pytest.mark.parametrize("other", [{"teacher": "builtin/forager"}, {"actions_per_turn": 2}])
def test_relabelling_rejects_another_teacher_or_action_limit(other: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="change them, or set rounds = 0"):
        LoopConfig.of({"relabel_rounds": 1, **other})

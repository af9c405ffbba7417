"""Rollouts with known numbers, in the format of a run."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.bench.manifest import (
    LAUNCH_FAILED,
    LAUNCHED,
    ArmEntry,
    Manifest,
    RolloutFolder,
    TrialResult,
)
from assay.types import TrialState

STAMP = "20250824__12-34-56"


def trial(
    task: str, score: float | None = 1.0, arm: str = "oracle", **more: Any
) -> TrialResult:
    """Return a graded trial; `more` overrides its fields."""
    state = more.pop("state", TrialState.RESULT)
    outcome = "solved" if score == 1 else "unsolved" if score == 0 else "partly_solved"
    fields: dict[str, Any] = {
        "run_id": "",
        "run_dir": "",
        "task_dir": f"data/tasks/prepared/{task}",
        "task_id": task,
        "arm": arm,
        "agent": arm,
        "task_checksum": f"sum of {task}",
        "status": LAUNCHED,
        "launch_rc": 0,
        "state": state,
        "outcome": outcome,
        "score": score,
        "seconds": {"setup": 1.0, "agent": 10.0, "grading": 2.0},
        "tokens": {"prompt": 100, "completion": 10},
        "cost_usd": 0.25,
        "ended_at": 1.0,
    }
    return TrialResult(**{**fields, **more})


def failed(task: str, arm: str = "oracle", **more: Any) -> TrialResult:
    """Return a trial that the agent failed."""
    more = {"state": TrialState.FAILURE, "outcome": "agent_failed", **more}
    return trial(task, None, arm, **more)


def lost(task: str, arm: str = "oracle", **more: Any) -> TrialResult:
    """Return a trial that ended with an infrastructure error."""
    more = {"state": TrialState.INFRASTRUCTURE, "outcome": "ModelUnavailable", **more}
    return trial(task, None, arm, **more)


def pending(task: str, arm: str = "oracle") -> TrialResult:
    """Return a trial that has not started."""
    none = {"status": None, "launch_rc": None, "outcome": None, "cost_usd": None}
    return trial(task, None, arm, state=None, seconds={}, tokens={}, **none)


def scored(scores: Mapping[str, Sequence[float]], arm: str = "oracle") -> list[TrialResult]:
    """Return trials with these scores, by task."""
    return [trial(task, score, arm) for task, own in scores.items() for score in own]


def manifest(
    results: Iterable[TrialResult], name: str = "my_benchmark", stamp: str = STAMP, **more: Any
) -> Manifest:
    """Return a manifest of trials, each with its id, folder and number."""
    numbers: dict[tuple[str, str], int] = {}
    placed = []
    for place, result in enumerate(results):
        key = (result.arm, result.task_id)
        numbers[key] = numbers.get(key, -1) + 1
        run_id = f"{stamp}-{place}"
        session = f"{name}-{run_id}"
        placed.append(
            replace(
                result,
                run_id=run_id,
                run_dir=f"data/runs/{run_id}",
                rollout=numbers[key],
                session_id=session,
                # All trials have different durations, within a rollout and between rollouts.
                seconds={
                    phase: time + place / 1024 + sum(stamp.encode()) / 1e6
                    for phase, time in result.seconds.items()
                },
            )
        )
    arms = tuple(ArmEntry(label=arm, agent=arm) for arm in dict.fromkeys(r.arm for r in placed))
    fields: dict[str, Any] = {
        "config": "configs/my.toml",
        "finished": all(result.state is not None for result in placed),
        "arms": arms,
    }
    return Manifest(name=name, created_at=stamp, results=tuple(placed), **{**fields, **more})


def write(made: Manifest, data_dir: Path) -> Path:
    """Write a rollout with the folders of its runs; return its folder."""
    folder = RolloutFolder(data_dir, made.name, made.created_at)
    results = tuple(
        replace(result, run_dir=str(folder.get_run_dir(result.run_id)))
        for result in made.results
    )
    for result in results:
        if result.state is None or result.status == LAUNCH_FAILED:
            continue
        run = folder.get_run_dir(result.run_id)
        (run / "artifacts").mkdir(parents=True)
        (run / "artifacts" / "diff.patch").write_text("diff\n", "utf-8")
        if result.score is not None:
            (run / "evaluation_results.json").write_text(
                json.dumps({"total_score": result.score}), "utf-8"
            )
        folder.write_result(result)
    folder.write(replace(made, results=results))
    return folder.path

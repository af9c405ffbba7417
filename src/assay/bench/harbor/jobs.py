"""Jobs that Harbor has run, as rollouts: a folder for each trial, with its `result.json`.

Rewards become scores from 0 to 1. A trial without a result makes a job that is not whole.
"""

import re
import stat
import time
from collections import Counter
from pathlib import Path
from typing import Final

from assay._util.text import counted
from assay.bench.manifest import LAUNCHED, ArmEntry, Manifest, TrialResult
from assay.bench.tasks.tree import is_too_long, shown_path, walk
from assay.errors import UsageError
from assay.exchange.formats import Trace, harbor_session, is_trial
from assay.types import TrialState

from .rewards import outcome_of, score_of

__all__ = ["harbor_jobs", "harbor_rollout"]

_STAMP: Final = "%Y%m%d__%H-%M-%S"
_RATES: Final = ("turns", "tokens", "cost_usd", "duration_s")
"""Outcomes of an imported session that are no rewards."""
_TOKENS: Final = ("prompt", "completion", "cached")
_TASK: Final = "harbor/"


def harbor_jobs(source: Path) -> list[Path]:
    """The folders of jobs at a path, or in it; none if there is no trial of Harbor."""
    if not source.is_dir():
        return []
    if _trials(source):
        return [source]
    return [
        folder for folder in sorted(source.iterdir()) if folder.is_dir() and _trials(folder)
    ]


def _trials(job: Path) -> list[Path]:
    return [
        folder
        for folder in sorted(job.iterdir())
        if folder.is_dir() and is_trial(folder, {path.name for path in folder.iterdir()})
    ]


def harbor_rollout(job: Path) -> tuple[Manifest, dict[str, Path | None]]:
    """A job as the manifest of a rollout, and the folder of each of its trials.

    Raises:
        UsageError: A trial is damaged or has not ended, or there is a link in its folder.
    """
    found: list[tuple[Path, Trace]] = []
    for folder in _trials(job):
        try:
            trace = harbor_session(folder)
        except UsageError as error:
            raise UsageError(f"trial {folder.name} {error}") from error
        if trace is None or trace.session.end is None:
            raise UsageError(
                f"it is not whole: trial {folder.name} has no result.json; finish the job with "
                "Harbor first"
            )
        for path, status in walk(folder):
            if status is None or is_too_long(path):
                raise UsageError(f"trial {folder.name} has a path that is too long")
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                raise UsageError(
                    f"trial {folder.name} has a symbolic link or a special file, which is not "
                    f"followed: {shown_path(path)}"
                )
        found.append((folder, trace))
    began = min(trace.session.header.created_at for _, trace in found)
    stamp = time.strftime(_STAMP, time.gmtime(began))
    times: Counter[tuple[str, str]] = Counter()
    results, arms = [], dict[str, ArmEntry]()
    runs: dict[str, Path | None] = {}
    for number, (folder, trace) in enumerate(found):
        agent = trace.run.configuration["agent"]
        arm = trace.experiment.model
        task = trace.session.header.task.removeprefix(_TASK)
        run_id = f"{stamp}-{number}"
        results.append(_result(trace, run_id, folder, arm, task, times[arm, task]))
        times[arm, task] += 1
        runs[run_id] = folder
        arms[arm] = ArmEntry(label=arm, agent=agent["name"], model=agent["model"] or None)
    name = re.sub(r"[^\w.+-]", "-", job.resolve().name, flags=re.ASCII).lstrip(".+-") or "job"
    manifest = Manifest(
        config="",
        name=name[:200],
        created_at=stamp,
        results=tuple(results),
        arms=tuple(arms.values()),
        provenance={"program": "Harbor", "trials": counted(len(results), "trial")},
        finished=True,
    )
    return manifest, runs


def _result(
    trace: Trace, run_id: str, folder: Path, arm: str, task: str, rollout: int
) -> TrialResult:
    session, end = trace.session, trace.session.end
    assert end is not None, "a trial that has not ended is refused before"
    agent = trace.run.configuration["agent"]
    rewards = {name: value for name, value in end.outcomes.items() if name not in _RATES}
    whole = {name: value for name, value in rewards.items() if "/" not in name}
    score = min(1.0, max(0.0, score_of(whole))) if whole else None
    is_result = end.state is TrialState.RESULT
    totals = session.imported_totals
    tokens = {kind: totals.get(f"{kind}_tokens") or 0 for kind in _TOKENS}
    return TrialResult(
        run_id=run_id,
        run_dir=str(folder),
        task_dir=task,
        task_id=task.rpartition("/")[2],
        arm=arm,
        agent=agent["name"],
        model=agent["model"] or None,
        rollout=rollout,
        session_id=session.header.session_id,
        task_checksum=str(session.header.metadata.get("task_checksum", "")),
        status=LAUNCHED,
        launch_rc=0,
        state=end.state,
        outcome=outcome_of(score).value if is_result else end.stop_reason,
        score=(0.0 if score is None else score) if is_result else None,
        custom_metrics=rewards,
        error=None if end.error is None else end.error.message,
        seconds={"agent": round(end.duration_s, 3)},
        tokens=tokens,
        cost_usd=end.outcomes.get("cost_usd"),
        ended_at=end.at,
    )

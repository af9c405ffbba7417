"""Harbor jobs become rollouts, and their trials become sessions."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.api.bench import bench_import
from assay.bench.rollout_imports import import_rollouts
from assay.bench.rollouts import find_rollout
from assay.bench.summary import get_counted_score
from tests.store.test_import_atif import trajectory
from tests.store.test_import_harbor import TIMEOUT, result, trial
from tests.support import query


def rewarded(name: str, **changes: Any) -> dict[str, Any]:
    rewards = changes.pop("rewards", {"reward": 1.0})
    return result(name, verifier_result=rewards and {"rewards": rewards}, **changes)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    trial(tmp_path, "hello__a", rewarded("hello__a"), agent__trajectory=trajectory())
    trial(tmp_path, "hello__b", rewarded("hello__b", rewards={"accuracy": 0.5}))
    other = {"task_name": "mine/other", "rewards": {"reward": -3.0, "style": 2.0}}
    trial(tmp_path, "other__a", rewarded("other__a", **other))
    lost = {"task_name": "mine/other", "rewards": None, "exception_info": TIMEOUT}
    trial(tmp_path, "other__b", rewarded("other__b", **lost))
    return tmp_path / "job"


def test_job_becomes_a_rollout_with_rewards_as_scores(job: Path, tmp_path: Path) -> None:
    (done,) = import_rollouts([job], tmp_path / "data").imported
    assert done.rollout.label == "job@20260102__03-04-05"
    rows = [
        (trial.task_id, trial.arm, trial.rollout, trial.outcome, trial.score)
        for trial in done.rollout.manifest.results
    ]
    arm = "scripted/prov/model-a"
    assert rows == [
        ("hello", arm, 0, "solved", 1.0),
        ("hello", arm, 1, "partly_solved", 0.5),
        ("other", arm, 0, "unsolved", 0.0),
        ("other", arm, 1, "AgentTimeoutError", None),
    ]
    first, second, third, last = done.rollout.manifest.results
    assert dict(first.tokens) == {"prompt": 120, "completion": 30, "cached": 20}
    assert (first.cost_usd, first.seconds["agent"]) == (0.0125, 10.0)
    assert dict(third.custom_metrics) == {"reward": -3.0, "style": 2.0}
    assert second.session_id != first.session_id
    assert get_counted_score(last) is None, "an infrastructure error counts nowhere"
    kept = json.loads((Path(first.run_dir) / "result.json").read_text())
    assert kept["trial_name"] == "hello__a"


def test_the_trials_of_a_job_are_stored_once(job: Path, tmp_path: Path) -> None:
    where = {"data_dir": tmp_path / "data", "database": tmp_path / "store.duckdb"}
    first = bench_import(job.parent, **where)
    again = bench_import(job, **where)
    assert (first.sessions, again.sessions) == (4, 0)
    assert [done.added for done in (*first.imported, *again.imported)] == [True, False]
    from assay.store.store import Store

    rows = query(Store(tmp_path / "store.duckdb"), "SELECT count(*) FROM episodes")
    assert rows == [(4,)]
    found = find_rollout("job", tmp_path / "data")
    assert len(found.manifest.results) == 4


def test_incomplete_job_is_rejected_by_name(job: Path, tmp_path: Path) -> None:
    trial(tmp_path, "late__a")
    (refused,) = import_rollouts([job], tmp_path / "data").refused
    assert "trial late__a has no result.json" in refused.reason
    assert not (tmp_path / "data").exists()


def test_link_in_a_job_is_rejected(job: Path, tmp_path: Path) -> None:
    (job / "hello__a/agent/link").symlink_to("/etc/passwd")
    (refused,) = import_rollouts([job], tmp_path / "data").refused
    assert "symbolic link" in refused.reason

"""Folders of Harbor's trials, each one session: steps, continuations, totals and rewards."""

import json
from pathlib import Path
from typing import Any

from tests.store.test_import_atif import imported, trajectory
from tests.support import query

START, END = "2026-01-02T03:04:05.250000Z", "2026-01-02T03:05:05.250000Z"
SPENT = {"n_input_tokens": 120, "n_cache_tokens": 20, "n_output_tokens": 30, "cost_usd": 0.0125}
PASSED = {"rewards": {"reward": 1.0}}
TIMEOUT = {"exception_type": "AgentTimeoutError", "exception_message": "too slow"}
ID_AT_557B711 = "daaabf08dc161f02720d"
"""What that commit called the trajectory of these tests."""
SPAN = {"started_at": START, "finished_at": "2026-01-02T03:04:15.250000Z"}


def result(name: str, **changes: Any) -> dict[str, Any]:
    """What Harbor 0.24 says of a trial."""
    return {
        "id": f"id-of-{name}",
        "task_name": "mine/hello",
        "trial_name": name,
        "task_id": {"path": "tasks/hello"},
        "task_checksum": "5210",
        "config": {"job_id": "j-1", "trials_dir": "/jobs/one"},
        "agent_info": {
            "name": "scripted",
            "version": "0.3",
            "model_info": {"name": "model-a", "provider": "prov"},
        },
        "agent_result": SPENT,
        "verifier_result": PASSED,
        "exception_info": None,
        "started_at": START,
        "finished_at": END,
        "agent_execution": SPAN,
        "step_results": None,
        **changes,
    }


def trial(
    folder: Path,
    name: str,
    about: dict[str, Any] | str | None = None,
    **trajectories: dict[str, Any] | str,
) -> Path:
    """The files of a trial, as Harbor leaves them; `__` in a name stands for a folder."""
    path = folder / "job" / name
    path.mkdir(parents=True)
    (path / "trial.log").touch()
    (path / "config.json").write_text(json.dumps({"trial_name": name, "task": {"path": "t"}}))
    if about is not None:
        text = about if isinstance(about, str) else json.dumps(about)
        (path / "result.json").write_text(text)
    for place, value in trajectories.items():
        file = path / f"{place.replace('__', '/').replace('_', '.')}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value if isinstance(value, str) else json.dumps(value))
    for name in ("result.json", "config.json", "lock.json"):
        (folder / "job" / name).write_text("{}")
    return path


def test_imported_trial_has_entry_outcomes_and_cost(tmp_path: Path) -> None:
    trial(tmp_path, "a", result("a"), agent__trajectory=trajectory())
    # Equal trajectories of two trials are two sessions.
    trial(tmp_path, "b", result("b", exception_info=TIMEOUT), agent__trajectory=trajectory())
    failed: dict[str, Any] = {"verifier_result": None}
    trial(tmp_path, "c", result("c", **failed, exception_info=TIMEOUT))
    full = {"exception_type": "ContextLengthExceededError", "exception_message": ""}
    trial(tmp_path, "d", result("d", **failed, exception_info=full))
    store, report = imported(tmp_path / "store.duckdb", tmp_path / "job")
    assert (report.added, report.damaged, report.skipped) == (4, (), ())
    assert query(
        store,
        "SELECT state, stop_reason, reward, turns, prompt_tokens, completion_tokens, cost_usd,"
        " duration_s, task, model, source FROM episodes ORDER BY ALL",
    ) == [
        (
            state,
            reason,
            reward,
            turns,
            120,
            30,
            0.0125,
            10.0,
            "harbor/mine/hello",
            who,
            "harbor",
        )
        for who in ["scripted/prov/model-a"]
        for state, reason, reward, turns in [
            ("failure", "ContextLengthExceededError", 0.0, 0),
            ("infrastructure", "AgentTimeoutError", 0.0, 0),
            ("result", "AgentTimeoutError", 1.0, 2),
            ("result", "finished", 1.0, 2),
        ]
    ]
    assert query(store, "SELECT metric, value FROM outcomes GROUP BY ALL ORDER BY ALL") == [
        ("cost_usd", 0.0125),
        ("duration_s", 10.0),
        ("reward", 1.0),
        ("tokens", 150.0),
        ("turns", 2.0),
    ]
    assert query(
        store, "SELECT count(DISTINCT run_id), count(DISTINCT series) FROM episodes"
    ) == [(1, 1)]
    assert imported(store.path, tmp_path)[1].present == 4


def test_trial_without_a_trajectory_is_a_session_without_turns(tmp_path: Path) -> None:
    model: dict[str, Any] = {"name": "oracle", "version": "1.0.0", "model_info": None}
    trial(tmp_path, "a", result("a", agent_info=model, agent_result=None))
    store, report = imported(tmp_path / "store.duckdb", tmp_path)
    assert report.added == 1
    asked = "SELECT model, turns, reward, cost_usd FROM episodes"
    assert query(store, asked) == [("oracle", 0, 1.0, None)]
    assert dict(query(store, "SELECT metric, value FROM outcomes")) == {
        "reward": 1.0,
        "duration_s": 10.0,
    }


def test_steps_of_a_trial_are_one_session_with_its_reward(tmp_path: Path) -> None:
    steps = [
        {
            "step_name": name,
            "agent_result": SPENT,
            "verifier_result": {"rewards": {"reward": reward}},
            "agent_execution": SPAN,
        }
        for name, reward in (("first", 1.0), ("second", 0.0), ("../../out", 0.0))
    ]
    about = result(
        "a",
        agent_result=None,
        agent_execution=None,
        step_results=steps,
        verifier_result={"rewards": {"reward": 0.5}},
    )
    path = trial(
        tmp_path,
        "a",
        about,
        steps__first__agent__trajectory=trajectory(),
        steps__second__agent__trajectory=trajectory(),
    )
    # One of its files stands for the whole trial.
    one = path / "steps" / "first" / "agent" / "trajectory.json"
    store, report = imported(tmp_path / "store.duckdb", one, path)
    assert (report.added, report.present, report.damaged) == (1, 0, ())
    assert query(store, "SELECT turns, reward, prompt_tokens, duration_s FROM episodes") == [
        (4, 0.5, 360, 30.0)
    ]
    rewards = "SELECT metric, value FROM outcomes WHERE metric LIKE 'reward%' ORDER BY 1"
    assert query(store, rewards)[:2] == [("reward", 0.5), ("reward/../../out", 0.0)]


def test_continued_trajectories_are_joined_and_others_reported(tmp_path: Path) -> None:
    copied = trajectory(session_id="s-cont-1")
    copied["steps"][0] |= {"is_copied_context": True}
    copied["steps"][1] |= {"is_copied_context": True}
    path = trial(
        tmp_path,
        "a",
        result("a"),
        agent__trajectory=trajectory(continued_trajectory_ref="trajectory.cont-1.json"),
        **{
            "agent__trajectory_cont-1": {**copied, "continued_trajectory_ref": "../../x.json"},
            "agent__trajectory_summarization-1": trajectory(),
            "user-agent__trajectory": trajectory(),
        },
    )
    store, report = imported(tmp_path / "store.duckdb", tmp_path)
    assert query(store, "SELECT turns FROM episodes") == [(3,)]
    assert query(store, "SELECT text FROM messages ORDER BY position") == [
        ("Make it so.",),
        ("I look around.",),
        ("a b",),
        ("Done.",),
        ("Done.",),
    ]
    agent, user = path / "agent" / "trajectory.summarization-1.json", path / "user-agent"
    assert [(where, why.split(";")[0]) for where, why in report.skipped] == [
        (str(agent), "belongs to a subagent"),
        (str(user / "trajectory.json"), "belongs to a simulated user, not to the agent"),
    ]


def test_unfinished_trial_is_reported_and_completed_by_a_later_import(tmp_path: Path) -> None:
    path = trial(tmp_path, "a", agent__trajectory=trajectory())
    store, report = imported(tmp_path / "store.duckdb", tmp_path)
    assert report.added == 0
    assert [where for where, _ in report.skipped] == [str(path)]
    assert "import again" in report.skipped[0].reason
    (path / "result.json").write_text(json.dumps(result("a")))
    store, report = imported(store.path, tmp_path)
    assert (report.added, report.skipped) == (1, ())
    assert query(store, "SELECT reward, turns FROM episodes") == [(1.0, 2)]


def test_damaged_trial_is_reported_and_keeps_its_outcomes(tmp_path: Path) -> None:
    torn = trial(tmp_path, "a", "{", agent__trajectory=trajectory())
    half = trial(tmp_path, "b", result("b"), agent__trajectory="{")
    lost = trial(
        tmp_path,
        "c",
        result("c"),
        agent__trajectory=trajectory(continued_trajectory_ref="trajectory.cont-1.json"),
    )
    odd = trial(tmp_path, "d", {"trial_name": "d", "task_id": 1})
    store, report = imported(tmp_path / "store.duckdb", tmp_path)
    assert [where for where, _ in report.damaged] == [
        str(torn / "result.json"),
        str(half / "agent" / "trajectory.json"),
        str(lost / "agent" / "trajectory.cont-1.json"),
        str(odd / "result.json"),
    ]
    assert query(store, "SELECT turns, reward FROM episodes ORDER BY 1") == [(0, 1.0), (2, 1.0)]


def test_trial_imported_by_an_earlier_version_is_recognised(tmp_path: Path) -> None:
    # It made a session of every trajectory, named by its content alone.
    alone = tmp_path / "trajectory.json"
    alone.write_text(json.dumps(trajectory()))
    store, _ = imported(tmp_path / "store.duckdb", alone)
    assert query(store, "SELECT session_id FROM session_traces") == [(ID_AT_557B711,)]
    trial(tmp_path, "a", result("a"), agent__trajectory=trajectory())
    trial(tmp_path, "b", result("b"), agent__trajectory=trajectory())
    for added, present in ((1, 1), (0, 2)):
        _, report = imported(tmp_path / "store.duckdb", tmp_path / "job")
        assert (report.added, report.present, report.damaged) == (added, present, ())
        assert [
            (Path(item.where).name, ID_AT_557B711 in item.reason) for item in report.skipped
        ] == [("a", True)]
    assert query(store, "SELECT count(*) FROM session_traces") == [(2,)]

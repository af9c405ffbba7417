"""Metrics from a user's file, in `assay run` and `assay compare`."""

import json
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import UsageError

OWN = """
import assay

@assay.metric(higher_is_better=False)
def idle(episode):
    return sum(step.action == "noop" for step in episode.steps)

@assay.metric
def fragile(episode):
    return 1 / (episode.seed - 43)

@assay.metric
def range_of_reward(episodes):
    rewards = [episode.reward for episode in episodes]
    return max(rewards) - min(rewards)
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN, "utf-8")
    return path


@pytest.mark.extras
def test_run_stores_user_metrics_and_compare_gives_their_verdict(
    tmp_path: Path, own: Path
) -> None:
    notices: list[str] = []
    result = assay.run(
        models=["builtin/random", "builtin/noop"],
        episodes=3,
        max_turns=3,
        metrics_from=own,
        database=tmp_path / "t.duckdb",
        traces_dir=tmp_path / "traces",
        notice=notices.append,
    )
    assert result.results_file is not None
    written = json.loads(result.results_file.read_text("utf-8"))
    models = written["models"]
    analysis = written["analysis"]
    assert [model["model"] for model in analysis["models"]] == [*models]
    assert analysis["own"]["builtin/noop"]["idle"]["mean"] == 15.0
    assert {"rankings", "decisions", "human"} <= analysis.keys()
    assert models["builtin/noop"]["metrics"]["idle"] == [15.0, 15.0, 15.0]
    assert models["builtin/noop"]["metrics"]["fragile"] == [-1.0, None, 1.0]
    assert any("own.py:10" in line and "seed 43" in line for line in notices)
    found = assay.compare("latest", database=tmp_path / "t.duckdb", metrics=["idle"])
    [one] = found.decisive
    assert one.lower_is_better
    assert models["builtin/noop"]["declared"]["idle"] == {"better": "lower"}
    assert one.difference.point > 0
    assert [facts.whole["range_of_reward"] >= 0 for facts in found.subjects] == [True, True]


def test_a_file_without_metrics_stops_a_run_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("", "utf-8")
    with pytest.raises(UsageError, match="has no metrics; put"):
        assay.run(
            models=["builtin/noop"],
            metrics_from=tmp_path / "empty.py",
            database=tmp_path / "t.duckdb",
        )
    assert not (tmp_path / "t.duckdb").exists()


@pytest.mark.extras
def test_user_metrics_do_not_change_the_version(tmp_path: Path, own: Path) -> None:
    chosen: dict[str, Any] = {
        "models": ["builtin/noop"],
        "episodes": 1,
        "max_turns": 1,
        "baselines": False,
        "database": tmp_path / "t.duckdb",
        "traces_dir": tmp_path / "traces",
    }
    assay.run(**chosen)
    assay.run(**chosen, metrics_from=own)
    names = assay.open(tmp_path / "t.duckdb").experiments()["name"]
    assert list(names) == ["builtin/noop v1.0", "builtin/noop v1.0 #2"]


@pytest.mark.extras
def test_baseline_without_a_metric_is_excluded_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "import assay\n\n@assay.metric\ndef idle(episode):\n"
        "    return {} if episode.model == 'builtin/noop' else {'idle': 1.0}\n"
        "\n@assay.metric\ndef total(episodes):\n    return len(episodes)\n"
    )
    assay.run(
        models=["builtin/forager", "builtin/expert"],
        episodes=2,
        max_turns=2,
        metrics_from=path,
        database=tmp_path / "t.duckdb",
        traces_dir=tmp_path / "traces",
    )
    found = assay.compare("latest", database=tmp_path / "t.duckdb", metrics=["idle"])
    assert "builtin/noop v1.0" not in [facts.name for facts in found.subjects]
    assert any("builtin/noop v1.0 has no idle" in note for note in found.notes)
    with pytest.raises(UsageError, match="each experiment as a whole"):
        assay.compare("latest", database=tmp_path / "t.duckdb", metrics=["total"])

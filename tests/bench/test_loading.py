"""The Python snippets of the specification run unchanged."""

from pathlib import Path

import pytest

from assay.bench import benchmark_tasks, get_task_score, load_benchmark
from assay.errors import UsageError
from tests.bench.rollouts import failed, lost, manifest, scored, trial, write
from tests.support import run_python

CUSTOM_ANALYSIS = """
import json
from pathlib import Path

# Load benchmark results
rollout_dir = Path("data/rollouts/your_benchmark/20250824__12-34-56")
manifest = json.loads((rollout_dir / "manifest.json").read_text())

# Analyze results
for result in manifest["results"]:
    run_dir = Path(result["run_dir"])
    if (run_dir / "evaluation_results.json").exists():
        eval_data = json.loads((run_dir / "evaluation_results.json").read_text())
        print(f"Task: {result['task_dir']}")
        print(f"Score: {eval_data.get('total_score', 'N/A')}")
        print("---")
"""
RESULT_COMPARISON = """
# Load multiple benchmark results
benchmarks = {
    "gpt4_v1": load_benchmark("data/rollouts/model_v1/20250824"),
    "gpt4_v2": load_benchmark("data/rollouts/model_v2/20250824"),
    "claude_v1": load_benchmark("data/rollouts/claude_v1/20250824")
}

# Compare performance
for task_name in benchmark_tasks:
    scores = {}
    for model, results in benchmarks.items():
        scores[model] = get_task_score(results, task_name)

    print(f"Task: {task_name}")
    for model, score in scores.items():
        print(f"  {model}: {score}")
"""
IMPORT = "from assay.bench import load_benchmark, get_task_score, benchmark_tasks\n"


def printed(program: str, folder: Path) -> str:
    done = run_python("-c", program, folder=folder)
    return done.output


def test_custom_analysis_of_the_specification_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trials = [trial("task_1", 1.0), trial("task_2", 0.25), lost("task_3")]
    write(manifest(trials, "your_benchmark"), Path("data"))
    assert printed(CUSTOM_ANALYSIS, tmp_path) == (
        "Task: data/tasks/prepared/task_1\nScore: 1.0\n---\n"
        "Task: data/tasks/prepared/task_2\nScore: 0.25\n---\n"
    )


@pytest.mark.bench
def test_comparison_of_the_specification_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place, (name, scores) in enumerate(
        {
            "model_v1": {"a": [0.0, 0.5], "b": [1.0]},
            "model_v2": {"a": [1.0, 1.0], "b": [1.0]},
            "claude_v1": {"a": [0.5], "c": [0.0]},
        }.items()
    ):
        write(manifest(scored(scores), name, f"20250824__12-34-5{place}"), Path("data"))
    assert printed(IMPORT + RESULT_COMPARISON, tmp_path) == (
        "Task: a\n  gpt4_v1: 0.25\n  gpt4_v2: 1.0\n  claude_v1: 0.5\n"
        "Task: b\n  gpt4_v1: 1.0\n  gpt4_v2: 1.0\n  claude_v1: None\n"
        "Task: c\n  gpt4_v1: None\n  gpt4_v2: None\n  claude_v1: 0.0\n"
    )


def test_failures_score_zero_and_infrastructure_errors_do_not_count() -> None:
    results = manifest([trial("a", 1.0), failed("a"), lost("a"), lost("b")])
    assert get_task_score(results, "a") == 0.5
    assert get_task_score(results, "b") is None
    assert get_task_score(results, "c") is None


def test_scores_of_several_arms_have_no_common_mean() -> None:
    results = manifest([trial("a", 1.0, "x"), trial("a", 0.0, "y")])
    with pytest.raises(UsageError, match=r"2 arms ran 'a'.*arm=: x, y"):
        get_task_score(results, "a")
    assert get_task_score(results, "a", arm="y") == 0.0
    with pytest.raises(UsageError, match="no arm 'z' ran 'a'; choose from: x, y"):
        get_task_score(results, "a", arm="z")


def test_tasks_of_all_loaded_rollouts_are_listed(tmp_path: Path) -> None:
    write(manifest(scored({"only here": [1.0]}), "loaded"), tmp_path)
    load_benchmark("loaded", tmp_path)
    assert "only here" in [*benchmark_tasks]
    assert len(benchmark_tasks) == len({*benchmark_tasks})

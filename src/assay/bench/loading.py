"""Benchmarks that have run, for a few lines of Python.

from assay.bench import benchmark_tasks, get_task_score, load_benchmark

old = load_benchmark("data/rollouts/my_benchmark/20250824")
for task in benchmark_tasks:
    print(task, get_task_score(old, task))
"""

from collections.abc import Iterator
from pathlib import Path

from assay.bench.manifest import Manifest
from assay.bench.selecting import DATA_DIR, select_rollout
from assay.bench.summary import counted_score
from assay.errors import UsageError

__all__ = ["benchmark_tasks", "get_task_score", "load_benchmark"]


class _LoadedTasks:
    """The tasks of all benchmarks that were loaded so far, in the order they first came."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def add(self, manifest: Manifest) -> None:
        """Know the tasks of one more."""
        self._names |= dict.fromkeys(result.task_id for result in manifest.results)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._names])

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"benchmark_tasks({', '.join(self._names)})"


benchmark_tasks = _LoadedTasks()
"""What `for task in benchmark_tasks` goes through: all tasks of what was loaded so far."""


def load_benchmark(rollout: str | Path, data_dir: str | Path = DATA_DIR) -> Manifest:
    """A rollout of a benchmark.

    Args:
        rollout: Its folder, or the start of its name; or a name, `name@stamp` or a tag, as
            `assay bench summarize` takes them.
        data_dir: Where benchmarks are, for names and tags.

    Raises:
        UsageError: There is no such rollout, or it is damaged.
    """
    manifest = select_rollout(str(rollout), Path(data_dir)).manifest
    benchmark_tasks.add(manifest)
    return manifest


def get_task_score(results: Manifest, task_name: str, arm: str | None = None) -> float | None:
    """The mean score of a task over its trials that count; None if there is none.

    A trial that the agent failed counts as 0, one that ended by an infrastructure error does
    not count. Different arms are never averaged.

    Args:
        results: What `load_benchmark` gave.
        task_name: The task, by its id or the name of its folder.
        arm: Whose score; needed where several arms did the task.

    Raises:
        UsageError: Several arms did it, and none is named, or no arm has that label.
    """
    trials = [
        result
        for result in results.results
        if task_name in (result.task_id, Path(result.task_dir).name)
    ]
    arms = list(dict.fromkeys(result.arm for result in trials))
    if arm is not None and arm not in arms and trials:
        raise UsageError(f"no arm {arm!r} did {task_name!r}; choose from: {', '.join(arms)}")
    if arm is None and len(arms) > 1:
        raise UsageError(
            f"{len(arms)} arms did {task_name!r}, and their scores are not one mean; name one"
            f" with arm=, from: {', '.join(arms)}"
        )
    scores = [
        score
        for result in trials
        if arm in (None, result.arm) and (score := counted_score(result)) is not None
    ]
    return sum(scores) / len(scores) if scores else None

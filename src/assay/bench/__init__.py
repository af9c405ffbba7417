"""Coding benchmarks: tasks, coding agents, grading, and the coding trial of a run."""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.bench.rollouts import benchmark_tasks, get_task_score, load_benchmark

__all__ = [
    "benchmark_tasks",
    "get_task_score",
    "load_benchmark",
]

__getattr__, __dir__ = _lazy_names(__name__)

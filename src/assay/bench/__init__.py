"""Coding benchmarks: tasks, sandboxes, coding agents, grading; the coding trial of a run."""

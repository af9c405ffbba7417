"""Coding tasks: their folders read into values, the workspaces made of them, and patches."""

from assay.bench.tasks.checking import overrides_problems
from assay.bench.tasks.loading import load_task
from assay.bench.tasks.workspace import Workspace, apply_patch, capture, make_workspace

__all__ = [
    "Workspace",
    "apply_patch",
    "capture",
    "load_task",
    "make_workspace",
    "overrides_problems",
]

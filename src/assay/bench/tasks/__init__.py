"""Coding tasks: their folders read into values, the workspaces made of them, and patches."""

from assay.bench.tasks.capturing import new_task
from assay.bench.tasks.checking import exposed_files, overrides_problems
from assay.bench.tasks.loading import load_task
from assay.bench.tasks.preparing import prepare_task
from assay.bench.tasks.workspace import Workspace, apply_patch, capture, make_workspace

__all__ = [
    "Workspace",
    "apply_patch",
    "capture",
    "exposed_files",
    "load_task",
    "make_workspace",
    "new_task",
    "overrides_problems",
    "prepare_task",
]

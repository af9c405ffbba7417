"""Coding tasks: their folders, their workspaces, and patches."""

from typing import TYPE_CHECKING

from assay.core.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from assay.bench.task_checks import exposed_files, overrides_problems
    from assay.bench.tasks.creation import new_task, prepare_task
    from assay.bench.tasks.loading import load_task
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

__getattr__, __dir__ = _lazy_names(__name__)

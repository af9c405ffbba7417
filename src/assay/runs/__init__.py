"""A run of any kind of trial: arms, journals, resume, budget, looks, results, executors.

Knows no world and nobody who plays in it.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .arms import Arm
    from .execution import RunResult, execute, finished_result
    from .executors import InProcess, TrialExecutor
    from .kind import PlannedWhole, PreparedRun, RunChoices, TrialEnd, TrialKind
    from .prepare import prepare_run, run_record, stored_run
    from .processes import Processes
    from .ray_workers import RayWorkers

__all__ = [
    "Arm",
    "InProcess",
    "PlannedWhole",
    "PreparedRun",
    "Processes",
    "RayWorkers",
    "RunChoices",
    "RunResult",
    "TrialEnd",
    "TrialExecutor",
    "TrialKind",
    "execute",
    "finished_result",
    "prepare_run",
    "run_record",
    "stored_run",
]

__getattr__, __dir__ = _lazy_names(__name__)

"""Tasks in the layout of Harbor, run as they are."""

from .attempt import HarborAttempt
from .checking import check_harbor_task
from .grading import grade_steps
from .jobs import harbor_jobs, harbor_rollout
from .loading import load_any_task
from .task import HarborTask, is_harbor_task, load_harbor_task, problems_of
from .trial import BaseImages, HarborPhases, check_images

__all__ = [
    "BaseImages",
    "HarborAttempt",
    "HarborPhases",
    "HarborTask",
    "check_harbor_task",
    "check_images",
    "grade_steps",
    "harbor_jobs",
    "harbor_rollout",
    "is_harbor_task",
    "load_any_task",
    "load_harbor_task",
    "problems_of",
]

"""Fine-tuning: jobs at a service that speaks OpenAI's files and fine_tuning.jobs protocol.

    from assay.finetune import FinetuneClient

    client = FinetuneClient("http://127.0.0.1:8904/v1", key=None)
    client.job("ftjob-1").status

A backend says where such a service is, which models it trains and what it wants to hear; the
client uploads, creates and asks; `watch` follows jobs until they end. Nothing here writes to a
store or prints. Names are loaded when first used.
"""

from typing import TYPE_CHECKING

from assay._util.lazy import lazy_names as _lazy_names

if TYPE_CHECKING:
    from .backends import BACKENDS, Backend, TunableModel, backend_of_model, find_backend
    from .client import FinetuneClient
    from .plan import PlannedJob, plan_jobs
    from .subsets import write_subset
    from .values import JobEvent, RemoteFile, RemoteJob
    from .watching import JobUpdate, WatchedJob, watch

__all__ = [
    "BACKENDS",
    "Backend",
    "FinetuneClient",
    "JobEvent",
    "JobUpdate",
    "PlannedJob",
    "RemoteFile",
    "RemoteJob",
    "TunableModel",
    "WatchedJob",
    "backend_of_model",
    "find_backend",
    "plan_jobs",
    "watch",
    "write_subset",
]

__getattr__, __dir__ = _lazy_names(__name__)

"""Choice of the executor from the settings of a run."""

from assay.models.registry_file import load_registry
from assay.runs.executors import InProcess, TrialExecutor
from assay.runs.kind import RunSettings
from assay.runs.workers.pool import MANY, Processes
from assay.runs.workers.ray import RayWorkers


def make_executor(settings: RunSettings, hang_s: float, *, each: int = MANY) -> TrialExecutor:
    """Make the executor of a run; its workers do not receive provider keys.

    Args:
        settings: Settings of the run.
        hang_s: Seconds without a running thread after which a worker counts as hung.
        each: Maximum number of open trials per worker.
    """
    if settings.executor == "asyncio":
        return InProcess()
    withheld = load_registry().key_variables
    if settings.executor == "ray":
        address = settings.ray_address
        return RayWorkers(
            address, settings.workers, withheld=withheld, hang_s=hang_s, each=each
        )
    return Processes(settings.workers, withheld=withheld, hang_s=hang_s, each=each)

"""The executor that the settings of a run name."""

from assay.models.registry_file import load_registry
from assay.runs.executors import InProcess, TrialExecutor
from assay.runs.kind import RunSettings
from assay.runs.workers.pool import MANY, Processes
from assay.runs.workers.ray import RayWorkers


def make_executor(settings: RunSettings, hang_s: float, *, each: int = MANY) -> TrialExecutor:
    """Return the executor of a run; its workers do not get the keys of providers.

    Args:
        settings: The settings of the run.
        hang_s: Seconds without a running thread after which a worker counts as hung.
        each: Trials that one worker has open at once, at most.
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

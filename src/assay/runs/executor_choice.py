"""Choice of the executor from the settings of a run."""

from assay.models.registry_file import load_registry
from assay.runs.executors import InProcessExecutor, TrialExecutor
from assay.runs.kind import RunSettings
from assay.runs.workers.pool import UNLIMITED, ProcessExecutor
from assay.runs.workers.ray import RayExecutor


def make_executor(
    settings: RunSettings, hang_s: float, *, max_trials: int = UNLIMITED
) -> TrialExecutor:
    """Make the executor of a run; its workers do not receive provider keys.

    Args:
        settings: Settings of the run.
        hang_s: Seconds without a running thread after which a worker counts as hung.
        max_trials: Maximum number of open trials per worker.
    """
    if settings.executor == "asyncio":
        return InProcessExecutor()
    withheld = load_registry().key_variables
    if settings.executor == "ray":
        address = settings.ray_address
        return RayExecutor(
            address, settings.workers, withheld=withheld, hang_s=hang_s, max_trials=max_trials
        )
    return ProcessExecutor(
        settings.workers, withheld=withheld, hang_s=hang_s, max_trials=max_trials
    )

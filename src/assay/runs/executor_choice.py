"""The executor that a configuration names."""

from collections.abc import Collection
from typing import Protocol

from assay.runs.executors import InProcess, TrialExecutor
from assay.runs.workers.pool import MANY, Processes
from assay.runs.workers.ray import RayWorkers


class ExecutorChoices(Protocol):
    """What a configuration says of where its trials run."""

    @property
    def executor(self) -> str:
        """asyncio, processes or ray."""
        ...

    @property
    def workers(self) -> int | None:
        """The most workers."""
        ...

    @property
    def ray_address(self) -> str:
        """The head of a cluster."""
        ...


def executor_of(
    config: ExecutorChoices,
    hang_s: float,
    *,
    withheld: Collection[str],
    each: int = MANY,
) -> TrialExecutor:
    """Where trials run, as a configuration says.

    Args:
        config: What was chosen.
        hang_s: Seconds in which no thread of a worker runs, after which it has hung.
        withheld: Environment variables that workers do not get, such as those of keys.
        each: Trials that one worker has open at once, at most.
    """
    if config.executor == "asyncio":
        return InProcess()
    if config.executor == "ray":
        return RayWorkers(
            config.ray_address,
            config.workers,
            withheld=withheld,
            hang_s=hang_s,
            each=each,
        )
    return Processes(config.workers, withheld=withheld, hang_s=hang_s, each=each)

"""Models that fine-tuning jobs of a store have made, beside those of the registry."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from assay._util.names import unknown_name
from assay.errors import StoreError, UsageError
from assay.models import Registry, load_registry
from assay.models.registry import FINE_TUNING
from assay.traces.opening import Where, store_at

if TYPE_CHECKING:
    from assay.experiments.finetune_jobs import FinetuneJob

__all__ = ["at_provider", "is_tuned", "jobs_of", "registry_for", "with_jobs"]

_PREFIX = "ft:"


def is_tuned(name: str) -> bool:
    """Whether a name is that of a fine-tuned model, of any provider or of none."""
    return name.casefold().startswith(_PREFIX) or f"/{_PREFIX}" in name.casefold()


def at_provider(name: str, provider: str) -> str:
    """A fine-tuned model's name that says who answers for it; others stay as they are.

    Raises:
        UsageError: There is no such provider.
    """
    providers = load_registry().providers
    if provider not in providers:
        raise UsageError(unknown_name("provider", provider, providers))
    return f"{provider}/{name}" if name.casefold().startswith(_PREFIX) else name


def registry_for(database: Where, names: Iterable[str] | None = None) -> Registry:
    """The registry, with the models that jobs of a store have made.

    Args:
        database: The store; one that is not there or is taken has no models.
        names: The store is asked only if one of these is a fine-tuned model; None: always.
    """
    registry = load_registry()
    if names is not None and not any(map(is_tuned, names)):
        return registry
    return with_jobs(registry, jobs_of(database))


def with_jobs(registry: Registry, jobs: "Iterable[FinetuneJob]") -> Registry:
    """The registry with a row for each model that a job has made."""
    for job in jobs:
        if job.result_model is None or job.backend not in FINE_TUNING:
            continue
        there = registry.providers[job.backend]
        if not FINE_TUNING[job.backend]:
            # Asked where it was made, wherever the variable points by now.
            there = replace(there, base_url=job.address, base_url_variable=None)
        registry = registry.with_tuned(job.result_model, job.model, there)
    return registry


def jobs_of(database: Where) -> "list[FinetuneJob]":
    """The jobs of a store, the oldest first; one that is not there or is taken has none."""
    from assay.experiments.finetune_jobs import list_jobs
    from assay.traces.store import Store

    path = store_at(database).path
    if not path.exists():
        return []
    try:
        # Somebody who writes to the store is not waited for long.
        with Store(path, patience=5.0).reading() as connection:
            return list_jobs(connection)[::-1]
    except (StoreError, UsageError):
        return []

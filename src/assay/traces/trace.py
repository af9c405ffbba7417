"""One session with all that explains it: what an export holds and an import gives back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.traces.records import SessionRecord

__all__ = ["StoredExperiment", "StoredRun", "Trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A row of `runs`."""

    id: str
    command: str
    configuration: Mapping[str, Any]
    provenance: Mapping[str, Any]
    status: str
    """running, finished or incomplete."""
    created_at: float
    """Seconds since 1970, as all times here."""
    finished_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExperiment:
    """A row of `experiments`, with the name the store gave it."""

    id: str
    name: str
    series: str
    version: str
    position: int
    """Its place among the experiments of its run."""
    model: str
    fingerprint: str
    description: str | None
    created_at: float
    updated_at: float
    tags: Mapping[str, Any]
    note: str | None = None
    """What the user said of this version."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A session, its run and its experiment."""

    run: StoredRun
    experiment: StoredExperiment
    session: SessionRecord
    source: str = "assay"
    """`assay`, or the format it once came from."""

"""One session with all that explains it: what an export holds and an import gives back."""

from dataclasses import dataclass, field
from typing import Literal

from assay._util.bounds import Count, Moment, Name
from assay.traces.records import Object, Record, SessionRecord

__all__ = ["StoredExperiment", "StoredRun", "Trace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun(Record):
    """A row of `runs`."""

    id: Name
    command: str
    configuration: Object
    provenance: Object
    status: Literal["running", "finished", "incomplete"]
    created_at: Moment
    finished_at: Moment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExperiment(Record):
    """A row of `experiments`, with the name the store gave it."""

    id: Name
    name: Name
    series: Name
    version: Name
    position: Count = 0
    """Its place among the experiments of its run."""
    model: Name
    fingerprint: Name
    description: str | None = None
    created_at: Moment
    updated_at: Moment
    tags: Object = field(default_factory=dict)
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

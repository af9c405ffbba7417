"""What the commands of `assay finetune` say of jobs."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from assay.cli.output import program
from assay.traces.location import default_database

if TYPE_CHECKING:
    from assay.experiments.finetune_jobs import FinetuneEvent, FinetuneJob

__all__ = [
    "Address",
    "Backend",
    "as_json",
    "event_json",
    "in_database",
    "outcome",
    "short_time",
    "sparkline",
    "usage",
]

Backend: TypeAlias = Annotated[str | None, Parameter(show_default=False)]
"""The service that trains."""
Address: TypeAlias = Annotated[str | None, Parameter(name="--base-url", show_default=False)]
"""Where the service is."""
_BARS = "▁▂▃▄▅▆▇█"


def as_json(job: "FinetuneJob") -> dict[str, Any]:
    """A job for a program to read."""
    values = asdict(job)
    for name in ("created_at", "finished_at"):
        values[name] = None if values[name] is None else f"{values[name].isoformat()}Z"
    values["history"] = [{"status": status, "at": f"{at}Z"} for status, at in job.history]
    return values


def event_json(event: "FinetuneEvent") -> dict[str, Any]:
    """An event for a program to read."""
    at = event.created_at
    return {**asdict(event), "created_at": None if at is None else f"{at.isoformat()}Z"}


def in_database(database: Path) -> str:
    """The option that names a store, where it is not the usual one."""
    return "" if database == default_database() else f" --database {shlex.quote(str(database))}"


def outcome(job: "FinetuneJob") -> str:
    """How a job ended, in one line."""
    took = "" if job.seconds is None else f" after {short_time(job.seconds)}"
    if job.succeeded:
        tokens = f", {job.trained_tokens:,} tokens trained" if job.trained_tokens else ""
        return f"{job.id} succeeded{took}{tokens}: {job.result_model}"
    if job.status == "failed":
        return f"{job.id} failed{took}: {job.error or 'the service gives no reason'}"
    return f"{job.id} is {job.status}{took if job.ended else ''}"


def usage(job: "FinetuneJob", database: Path) -> list[str]:
    """The commands that use a new model."""
    assay, where = program(), in_database(database)
    name = shlex.quote(str(job.result_model))
    against = shlex.quote(job.model)
    return [
        f"Ask it once:      {assay} models test {name}{where}",
        f"Let it play:      {assay} run --models {name} {against} --episodes 20"
        f" --seed {_fresh_seed(job)}{where}",
        f"Compare it:       {assay} compare latest{where}",
        f"See its training: {assay} analyze training --job-ids {job.id} --output"
        f" training_analysis.html{where}",
    ]


def _fresh_seed(job: "FinetuneJob") -> int:
    """The first seed beyond those of the worlds that its data was made of."""
    worlds = job.lineage.get("worlds", {})
    seeds = [seed for split in worlds.values() for _, seed in split if isinstance(seed, int)]
    return max(seeds, default=999) + 1


def short_time(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """A curve in one line of text: means of as many pieces as there are letters."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    count = min(width, len(finite))
    edges = [round(place * len(finite) / count) for place in range(count + 1)]
    means = [sum(finite[first:last]) / (last - first) for first, last in pairwise(edges)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in means)

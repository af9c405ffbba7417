"""What can be chosen about a launch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay._util.canonical import canonical_json
from assay._util.settings import Configuration, Counts, Setting
from assay._util.values import ValueType, choice, label, path, text, value_type, whole
from assay.errors import UsageError
from assay.runs import PlannedWhole
from assay.traces.location import DATABASE_VARIABLE, DEFAULT_DATABASE

from .seeds import DEFAULT_SEEDS, SEEDS, chosen_seeds

__all__ = ["LaunchConfig", "run_name"]

NOTHING, RUN, SAMPLE, VERSION = Counts
_ROOM: Final = 1 << 30
"""Bytes of memory that a run is given on this machine."""


@value_type("a table of settings")
def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError
    canonical_json(value)
    return dict(value)


@value_type("one or more whole numbers, each once", option=int, words="+")
def _seeds(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(seed) is int for seed in value):
        raise ValueError
    return chosen_seeds([*value]) if len(value) != 1 else tuple(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig(PlannedWhole, Configuration):
    """The same training, once for each seed."""

    base_run_name: str = Setting("", ValueType(str, "a name"), NOTHING, in_files=True).about(
        "What the names of its runs begin with"
    )
    architecture: str = Setting("vit_reset", label).about("What is trained")
    curriculum: str = Setting("terrain_2", label).about("The kinds of worlds it is trained on")
    environment: str = Setting("crafter", label).about("Where it plays")
    training: Mapping[str, Any] | None = Setting(None, _table, in_files=True).about(
        "All settings of our trainer but the seed; none where a command trains"
    )
    command: str | None = Setting(None, text(100_000)).about(
        "The command of another trainer, with {seed} and {folder} in it"
    )
    seeds: tuple[int, ...] = Setting(SEEDS[:DEFAULT_SEEDS], _seeds, SAMPLE).about(
        "Seeds, or how many of the fixed list"
    )
    parallel: int | None = Setting(
        None, whole(1, 1024), NOTHING, without="what the machine holds"
    ).about("The most runs at the same time")
    retries: int = Setting(2, ValueType(int, "a whole number of at least 0"), NOTHING).about(
        "How often a run that ends before its time is tried again"
    )
    executor: str = Setting("processes", choice("processes", "ray"), NOTHING).about(
        "Where runs are: in worker processes, or on the nodes of a Ray cluster"
    )
    ray_address: str = Setting("auto", label, NOTHING).about("The head of that cluster")
    folder: Path = Setting("training", path, NOTHING).about("Where runs are kept")
    database: Path = Setting(DEFAULT_DATABASE, path, NOTHING, variable=DATABASE_VARIABLE).about(
        "The DuckDB file for curves"
    )
    extended_from: int = Setting(
        0, ValueType(int, "a whole number"), SAMPLE, in_files=True
    ).about("How many runs the set had before it was extended")

    def complete(self) -> None:
        """Check what would name a file."""
        name = f"{self.base_run_name or 'x'}.{self.architecture}"
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or (
            not name.isascii() or len(name) > 76 or not name[0].isalnum()
        ):
            raise UsageError(
                f"{name!r} is not allowed as the name of runs; give at most 76 letters, "
                "digits, '-', '_' and '.', starting with a letter or digit"
            )

    @property
    def place(self) -> Path:
        """Where the files of this launch are."""
        return self.folder / self.base_run_name

    @property
    def threads(self) -> int:
        """CPUs that a run uses."""
        return int((self.training or {}).get("threads", 1))

    @property
    def at_once(self) -> int:
        """How many runs there are at the same time."""
        if self.parallel is not None:
            return self.parallel
        if self.executor == "ray":
            return len(self.seeds)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        held = min(_usable_cpus() // self.threads, memory // _ROOM)
        return max(1, min(held, len(self.seeds)))

    @property
    def workers(self) -> int | None:
        """Processes that train; on a cluster one for each CPU, unless it is said."""
        return self.parallel if self.executor == "ray" else self.at_once

    # What every run has, with the names that `runs` knows.

    @property
    def max_concurrent_episodes(self) -> int:
        """Runs that are open at once."""
        return self.at_once

    @property
    def arms_at_once(self) -> int:
        """There is one."""
        return 1


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_name(base: str, architecture: str, seed: int) -> str:
    """What a training run is called, in the store and as a folder."""
    return f"{base}.{architecture}.seed{seed}"

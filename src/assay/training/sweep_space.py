"""The plan of a sweep, and its search space, which is read from a TOML file.

    [fixed]
    architecture = "trxl"

    [space]
    learning_rate = {low = 1e-5, high = 1e-2, log = true}
    epochs = {low = 1, high = 4}
    width = [64, 128, 256]

If both bounds are integers, only integers are drawn. A list is a set of choices.
"""

import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from assay.core.options import Option
from assay.core.text import printable, shown, unknown_name
from assay.errors import UsageError

_DOMAIN_FORMAT = "{low = 1e-5, high = 1e-2, log = true}, or a list of values"


class Range(NamedTuple):
    """A number between two bounds, both included."""

    low: float
    high: float
    log: bool = False
    """Whether to draw on a logarithmic scale."""

    @property
    def whole(self) -> bool:
        """Whether only integers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Choices(NamedTuple):
    """One of several values."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SweepSpace:
    """Options of a trainer: fixed ones, and those that are searched."""

    fixed: Mapping[str, Any]
    space: Mapping[str, Range | Choices]

    def get_first_values(self) -> dict[str, Any]:
        """Return the first value or the lower bound of each option."""
        return {
            name: domain.values[0] if isinstance(domain, Choices) else domain.low
            for name, domain in self.space.items()
        }

    def list_combinations(self) -> list[dict[str, Any]]:
        """Return every combination.

        Raises:
            UsageError: An option is a range of real numbers.
        """
        names, columns = list(self.space), []
        for name, domain in self.space.items():
            if isinstance(domain, Choices):
                columns.append(domain.values)
            elif domain.whole:
                columns.append(tuple(range(int(domain.low), int(domain.high) + 1)))
            else:
                raise UsageError(
                    f"space.{name} is a range, but a grid needs single values; give a list, "
                    "such as [0.001, 0.01], or --sampler tpe"
                )
        return [dict(zip(names, row, strict=True)) for row in itertools.product(*columns)]

    def as_dict(self) -> dict[str, Any]:
        """Return the space as plain values."""
        space = {
            name: list(domain.values) if isinstance(domain, Choices) else domain._asdict()
            for name, domain in self.space.items()
        }
        return {"fixed": dict(self.fixed), "space": space}


def read_space(path: Path) -> SweepSpace:
    """Read a space from a file.

    Raises:
        UsageError: The file cannot be read, or is not a valid space.
    """
    name = repr(printable(str(path)))
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{name} is not valid TOML: {error}") from error
    try:
        return _parse_space(content)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error


def _parse_space(content: Mapping[str, Any]) -> SweepSpace:
    for table in content:
        if table not in ("fixed", "space"):
            raise UsageError(unknown_name("table", table, ("fixed", "space")))
        if not isinstance(content[table], dict):
            raise UsageError(f"{table} must be a table; write [{table}] above its options")
    space = {
        name: _parse_domain(name, value) for name, value in content.get("space", {}).items()
    }
    if not space:
        raise UsageError(f"[space] is empty; give each option {_DOMAIN_FORMAT}")
    fixed = content.get("fixed", {})
    for name, value in fixed.items():
        if name in space:
            raise UsageError(f"{name} is in both [fixed] and [space]; remove one of them")
        _check_value(f"fixed.{name}", value)
    return SweepSpace(fixed, space)


def _parse_domain(name: str, value: Any) -> Range | Choices:
    if isinstance(value, list) and value:
        for choice in value:
            _check_value(f"space.{name}", choice)
        return Choices(tuple(value))
    if not isinstance(value, dict) or not {"low", "high"} <= value.keys() <= {*Range._fields}:
        raise UsageError(f"space.{name} is {shown(value)}; give {_DOMAIN_FORMAT}")
    bounds = Range(**value)
    finite_bounds = [b for b in bounds[:2] if type(b) in (int, float) and math.isfinite(b)]
    if len(finite_bounds) < 2 or not bounds.low < bounds.high or type(bounds.log) is not bool:
        raise UsageError(f"space.{name} is {shown(value)}; low must be a number below high")
    if bounds.log and bounds.low <= 0:
        raise UsageError(
            f"space.{name}: low {bounds.low} has no logarithm; give a bound above 0"
        )
    return bounds


def _check_value(where: str, value: Any) -> None:
    if not isinstance(value, str | int | float | bool):
        raise UsageError(f"{where} is {shown(value)}; give numbers, texts, true or false")


DEFAULT_COMMAND = (
    "assay train --seed {seed} --total-steps {total_steps} --folder {folder}"
    " --database {folder}.duckdb {options}"
)


class Sampler(StrEnum):
    """Method that chooses option values."""

    TPE = "tpe"
    """By the results so far: tree-structured Parzen estimators."""
    RANDOM = "random"
    GRID = "grid"
    """Every combination, in order."""


class Pruner(StrEnum):
    """Rule that ends a trial early."""

    MEDIAN = "median"
    """Ends trials below the median of earlier ones at a step, after a quarter of the steps."""
    HALVING = "halving"
    """Successive halving: ends trials outside the best quarter, at steps that grow fourfold."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Budget and objective of a sweep."""

    sampler: Sampler = Sampler.TPE
    """How values are chosen."""
    pruner: Pruner = Pruner.MEDIAN
    """When a trial ends early."""
    trials: int = 20
    """The number of trials."""
    total_steps: int = 100_000
    """The steps of each run."""
    metric: str = "overview/reward"
    """The metric to improve."""
    minimize: bool = False
    """Less of the metric is better."""
    seed: int = 1
    """The seed of every trial, and of the search."""
    fresh_seeds: int = 5
    """The number of seeds that the winner is run on."""
    command: Annotated[str, Option(without="assay train")] = DEFAULT_COMMAND
    """Another trainer, which logs metrics.jsonl into {folder}; {seed}, {total_steps}, {options}
    and the name of each option are filled in."""

    def __post_init__(self) -> None:
        bounds = {"trials": 2, "total_steps": 1, "seed": 0, "fresh_seeds": 2}
        for name, least in bounds.items():
            if getattr(self, name) < least:
                option = name.replace("_", "-")
                raise UsageError(
                    f"--{option} {getattr(self, name)} is too small; give {least} or more"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan(SweepOptions):
    """Settings that determine the result of a sweep."""

    space: SweepSpace

    @property
    def planned_trials(self) -> int:
        """Number of trials; a grid may have fewer combinations than `trials`."""
        if self.sampler is Sampler.GRID:
            return min(self.trials, len(self.space.list_combinations()))
        return self.trials

    @property
    def budget(self) -> int:
        """Maximum training steps of the search; pruning saves some."""
        return self.planned_trials * self.total_steps

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the winner's runs."""
        return tuple(range(self.seed + 1, self.seed + 1 + self.fresh_seeds))

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        space = {"space": self.space.as_dict()}
        return {**space, **asdict(self), **space}

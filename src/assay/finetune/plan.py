"""Planned fine-tuning jobs: one for each combination of the given values.

No service is called. Token counts come from the validation of the data, and everything derived
from them is an estimate.

A subset of a data file is drawn by a seed. The rank of a row depends only on the seed and the
row's number. A subset is therefore the same in every process, and each subset contains all
smaller ones.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import IO, Any, Final

from assay.core.canonical_json import content_hash
from assay.errors import UsageError
from assay.finetune.backends import Backend, TunableModel
from assay.finetune.options import TuningOptions

_SUFFIX_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A fine-tuning job before it is requested."""

    backend: Backend
    model: TunableModel
    rows: int
    """Number of training rows."""
    subset: int | None
    """Number of rows to draw from the file; None for all."""
    tokens: int
    """Estimated tokens per epoch."""
    epochs: int
    batch_size: int
    learning_rate: float | None
    """None if the service chooses the rate."""
    multiplier: float | None
    """Factor on the learning rate that the service chooses."""
    suffix: str | None
    seed: int

    @property
    def trained_tokens(self) -> int:
        """Estimated tokens over all epochs."""
        return self.tokens * self.epochs

    @property
    def steps(self) -> int:
        """Number of batches over all epochs."""
        return -(-self.rows // self.batch_size) * self.epochs

    def estimate_cost(self, price: float | None = None) -> float | None:
        """Estimate the cost in dollars; None if the price per million tokens is unknown."""
        rate = self.model.price if price is None else price
        return None if rate is None else self.trained_tokens / 1e6 * rate

    def estimate_seconds(self, per_token: float | None) -> float | None:
        """Estimate the duration; None if the speed of the service is unknown."""
        speed = self.backend.seconds_per_token if per_token is None else per_token
        return None if speed is None else self.trained_tokens * speed

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Hyperparameters in the form the service expects."""
        values: dict[str, Any] = {"n_epochs": self.epochs, "batch_size": self.batch_size}
        if self.learning_rate is not None:
            values["learning_rate"] = self.learning_rate
        if self.multiplier is not None:
            values["learning_rate_multiplier"] = self.multiplier
        return {**values, **self.backend.hyperparameters}

    def request(self, training_file: str, validation_file: str | None) -> dict[str, Any]:
        """Build the body of the request that creates the job."""
        hyperparameters = self.hyperparameters
        method: Mapping[str, Any] = {"hyperparameters": hyperparameters}
        if self.backend.nests_hyperparameters:
            supervised = {"hyperparameters": hyperparameters}
            method = {"method": {"type": "supervised", "supervised": supervised}}
        body = {
            "model": self.model.name,
            "training_file": training_file,
            "seed": self.seed,
            **method,
            **self.backend.body,
        }
        if validation_file is not None:
            body["validation_file"] = validation_file
        if self.suffix is not None:
            body["suffix"] = self.suffix
        return body


def plan_jobs(
    backend: Backend,
    models: Sequence[TunableModel],
    tuning: TuningOptions,
    *,
    rows: int,
    tokens: int,
) -> tuple[PlannedJob, ...]:
    """Plan one job for each combination of models, subsets and hyperparameters.

    Args:
        backend: The service that trains.
        models: The models to fine-tune.
        tuning: The subsets and hyperparameters; a missing one gets the default of the model.
        rows: Number of rows in the data.
        tokens: Estimated number of tokens in the data.

    Raises:
        UsageError: A value is not allowed.
    """
    _check_options(backend, rows, tuning)
    combined = product(
        dict.fromkeys(models),
        dict.fromkeys(tuning.subsets or (None,)),
        dict.fromkeys(tuning.epochs or (None,)),
        dict.fromkeys(tuning.batch_sizes or (None,)),
        dict.fromkeys(tuning.learning_rates or (None,)),
        dict.fromkeys(tuning.multipliers or (None,)),
    )
    return tuple(
        PlannedJob(
            backend=backend,
            model=model,
            rows=rows if subset is None else subset,
            subset=None if subset == rows else subset,
            # On average, rows of a subset are as long as the rows of the whole file.
            tokens=tokens if subset is None else round(tokens * subset / rows),
            epochs=epoch or model.epochs,
            batch_size=batch or model.batch_size,
            learning_rate=rate or (None if backend.uses_multiplier else model.learning_rate),
            multiplier=multiplier,
            suffix=tuning.suffix,
            seed=tuning.seed,
        )
        for model, subset, epoch, batch, rate, multiplier in combined
    )


def _check_options(backend: Backend, rows: int, tuning: TuningOptions) -> None:
    for number in tuning.subsets:
        if not 1 <= number <= rows:
            raise UsageError(
                f"--subset {number} is not allowed; the data has {rows:,} rows, so give 1 to "
                f"{rows}"
            )
    fewest = min(tuning.subsets, default=rows)
    if fewest < backend.min_rows:
        raise UsageError(
            f"{fewest} rows are too few for backend {backend.name!r}; the minimum is"
            f" {backend.min_rows}"
        )
    if tuning.learning_rates and backend.uses_multiplier:
        raise UsageError(
            f"backend {backend.name!r} chooses the learning rate itself; scale it with"
            " --learning-rate-multiplier instead of --learning-rate"
        )
    if tuning.multipliers and not backend.uses_multiplier:
        raise UsageError(
            f"backend {backend.name!r} does not support --learning-rate-multiplier;"
            " give --learning-rate"
        )
    for name, values in (
        ("--learning-rate", tuning.learning_rates),
        ("--learning-rate-multiplier", tuning.multipliers),
    ):
        for value in values:
            if not 0 < value < float("inf"):
                raise UsageError(f"{name} {value:g} is not allowed; give a number above 0")
    suffix = tuning.suffix
    if suffix is not None and not _SUFFIX_PATTERN.fullmatch(suffix):
        raise UsageError(
            f"--suffix {suffix!r} is not allowed; give up to 64 letters, digits, '-', '_', '.'"
        )


def write_subset(data: Path, rows: int, seed: int, out: IO[bytes]) -> None:
    """Write a subset of a JSON Lines file, `rows` rows in their original order.

    Raises:
        UsageError: The file has fewer rows.
    """
    numbers = [number for number, _ in _read_rows(data)]
    if rows > len(numbers):
        raise UsageError(
            f"--subset {rows} is not allowed; {str(data)!r} has {len(numbers):,} rows"
        )
    chosen = frozenset(
        sorted(numbers, key=lambda number: content_hash(f"{seed} {number}".encode()))[:rows]
    )
    for number, line in _read_rows(data):
        if number in chosen:
            out.write(line if line.endswith(b"\n") else line + b"\n")


def _read_rows(data: Path) -> Iterator[tuple[int, bytes]]:
    with data.open("rb") as stream:
        yield from ((number, line) for number, line in enumerate(stream) if line.strip())

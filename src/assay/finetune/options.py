"""Options of `assay finetune`: model, hyperparameters and service."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from assay.core.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningOptions:
    """Models to fine-tune and hyperparameters; several values start one job each."""

    models: Annotated[tuple[str, ...], Option("model")] = ()
    """Model to fine-tune; several models start one job each."""
    epochs: Annotated[tuple[int, ...], Option(least=1, without="3; local models differ")] = ()
    """Number of epochs."""
    batch_sizes: Annotated[
        tuple[int, ...],
        Option("batch_size", least=1, without="4; local models differ"),
    ] = ()
    """Batch size in rows."""
    learning_rates: Annotated[
        tuple[float, ...],
        Option("learning_rate", without="5e-5; OpenAI and local models differ"),
    ] = ()
    """Learning rate."""
    multipliers: Annotated[tuple[float, ...], Option("learning_rate_multiplier")] = ()
    """With openai: multiplier of the learning rate that the service chooses."""
    subsets: Annotated[tuple[int, ...], Option("subset", without="all rows")] = ()
    """Number of rows to use, drawn by the seed; larger subsets contain smaller ones."""
    validation: Annotated[
        Path | str | bool | None, Option(without="the .holdout file next to the data")
    ] = None
    """Validation data, used only to compute the loss."""
    no_validation: bool = False
    """Use no validation data, even if there is a .holdout file next to the data."""
    suffix: str | None = None
    """Suffix for the name of the new model."""
    seed: int = 42
    """Seed for subsets and for the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Fine-tuning service."""

    backend: Annotated[str | None, Option(without="the service that offers the model")] = None
    """Fine-tuning service. [choices: openai, synth, local]"""
    base_url: str | None = None
    """URL of the service; overrides its environment variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidServiceOptions(ServiceOptions):
    """Fine-tuning service and its price."""

    price: float | None = None
    """Price in dollars per million trained tokens, from the price list of your provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobServiceOptions:
    """Service of a job that is not in the database."""

    backend: str | None = None
    """Service to query for a job that is not in the database."""
    base_url: str | None = None
    """URL of that service."""

"""Options of `assay finetune`: model, hyperparameters and service."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from assay.core.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningOptions:
    """The models to train and their hyperparameters; several values make one job each."""

    models: Annotated[tuple[str, ...], Option("model")] = ()
    """The model to train further; several make one job each."""
    epochs: Annotated[
        tuple[int, ...], Option(least=1, without="3; local models have their own")
    ] = ()
    """How often the data is gone through."""
    batch_sizes: Annotated[
        tuple[int, ...],
        Option("batch_size", least=1, without="4; local models have their own"),
    ] = ()
    """Rows of a training step."""
    learning_rates: Annotated[
        tuple[float, ...],
        Option("learning_rate", without="5e-5; OpenAI and local models have their own"),
    ] = ()
    """How far a step goes."""
    multipliers: Annotated[tuple[float, ...], Option("learning_rate_multiplier")] = ()
    """For openai: of the rate that it picks."""
    subsets: Annotated[tuple[int, ...], Option("subset", without="all rows")] = ()
    """Rows to take, chosen by the seed; a smaller subset is inside a larger one."""
    validation: Annotated[
        Path | str | bool | None, Option(without="the .holdout file beside the data")
    ] = None
    """Data that is not trained on, to compute the loss on."""
    no_validation: bool = False
    """Upload no validation data, even if there is some beside the data."""
    suffix: str | None = None
    """A part of the new model's name."""
    seed: int = 42
    """Of the subsets, and for the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The service that trains."""

    backend: Annotated[str | None, Option(without="whoever has the model")] = None
    """Who trains it. [choices: openai, synth, local]"""
    base_url: str | None = None
    """Where that service is, if not where its variable says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidServiceOptions(ServiceOptions):
    """The service that trains, and its price."""

    price: float | None = None
    """Dollars for a million trained tokens, as your provider lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobServiceOptions:
    """The service of a job that the store does not know."""

    backend: str | None = None
    """Where to look for a job that the store does not know."""
    base_url: str | None = None
    """Where that backend is."""

"""Fine-tuning services: their models, prices and request formats.

The address of a service and the variable with its key belong to the provider in `models`.
Prices are dollars per million trained tokens on the date given; unknown values are None.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from difflib import get_close_matches
from typing import Any, Final

from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.finetune.local.bases import BASES
from assay.models.registry import FINE_TUNING

_SNAPSHOT: Final = re.compile(r"-\d{4}-\d{2}-\d{2}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TunableModel:
    """A model that can be fine-tuned."""

    name: str
    context: int | None = None
    """Maximum tokens of one training example."""
    price: float | None = None
    """Dollars per million trained tokens."""
    priced: date | None = None
    """Date on which the price was looked up."""
    tools: bool = True
    """Whether examples may have tools and tool calls."""
    epochs: int = 3
    """Default number of epochs; the next two fields are defaults as well."""
    batch_size: int = 4
    learning_rate: float = 5e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A fine-tuning service, and the details in which its requests differ from others."""

    name: str
    """Name of the service and of its provider, which has the address and the key variable."""
    models: tuple[TunableModel, ...]
    min_rows: int = 1
    max_bytes: int = 512_000_000
    """Maximum size of a file."""
    uses_multiplier: bool = False
    """Whether it accepts only a factor on its own learning rate, not a rate."""
    nests_hyperparameters: bool = False
    """Whether hyperparameters are sent inside `method`, OpenAI's current format."""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """Hyperparameters sent in addition to the user's."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Additional fields of the request that creates a job."""
    purpose_in_query: bool = False
    """Whether it reads the purpose of a file from the query string."""
    seconds_per_token: float | None = None
    """Estimate from the service's own scripts; measured times of earlier jobs take precedence.
    """

    @property
    def loopback(self) -> bool:
        """Whether the service runs only on this machine."""
        return FINE_TUNING[self.name]

    def find_model(self, name: str) -> TunableModel | None:
        """Find a model by name, ignoring case; a dated snapshot matches its base model."""
        by_name = {model.name.casefold(): model for model in self.models}
        known = by_name.get(name.casefold())
        if known is not None:
            return known
        base = by_name.get(_SNAPSHOT.sub("", name.casefold()))
        if base is None or base.name.casefold() == name.casefold():
            return None
        return TunableModel(
            name=name.lower(),
            context=base.context,
            price=base.price,
            priced=base.priced,
            tools=base.tools,
        )

    def make_unknown_model_error(self, name: str) -> UsageError:
        """Build the error for a model name that is not in the list."""
        names = [model.name for model in self.models]
        lower = {model_name.casefold(): model_name for model_name in names}
        matches = get_close_matches(name.casefold(), lower, n=1, cutoff=0.5)
        hint = f"did you mean {lower[matches[0]]!r}? " if matches else ""
        return UsageError(
            f"backend {self.name!r} does not train a model {name!r}; {hint}"
            f"choose from: {', '.join(names)}"
        )


_QWEN: Final = ("0.5B", "7B", "14B", "32B")

BACKENDS: Final[Mapping[str, Backend]] = {
    backend.name: backend
    for backend in (
        Backend(
            name="openai",
            models=(
                TunableModel(
                    name="gpt-4o-mini", context=65_536, price=3.00, priced=date(2026, 4, 7)
                ),
                TunableModel(
                    name="gpt-4o", context=65_536, price=25.00, priced=date(2026, 4, 7)
                ),
                TunableModel(name="gpt-4.1", context=65_536),
                TunableModel(name="gpt-4.1-mini", context=65_536),
                TunableModel(name="gpt-4.1-nano", context=65_536),
            ),
            min_rows=10,
            uses_multiplier=True,
            nests_hyperparameters=True,
        ),
        Backend(
            name="synth",
            models=tuple(
                TunableModel(name=f"Qwen/Qwen2.5-{size}-Instruct", context=32_768)
                for size in _QWEN
            ),
            hyperparameters={
                "use_qlora": True,
                "lora_r": 16,
                "lora_alpha": 32,
                "lora_dropout": 0.1,
            },
            body={"training_type": "sft"},
            purpose_in_query=True,
            # Half an hour per million tokens.
            seconds_per_token=1800 / 1e6,
        ),
        Backend(
            name="local",
            models=tuple(
                TunableModel(name=name, price=0.0, **asdict(base.defaults))
                for name, base in BASES.items()
            ),
        ),
    )
}
"""All backends, by name."""


def find_backend(name: str) -> Backend:
    """Return the backend with this name.

    Raises:
        UsageError: There is no such backend.
    """
    found = BACKENDS.get(name.lower())
    if found is None:
        raise UsageError(unknown_name("backend", name, BACKENDS))
    return found


def find_backend_for_model(name: str) -> Backend:
    """Return the backend that trains a model.

    Raises:
        UsageError: No backend lists the model.
    """
    for backend in BACKENDS.values():
        if backend.find_model(name) is not None:
            return backend
    known = {
        model.name: model.name for service in BACKENDS.values() for model in service.models
    }
    raise UsageError(
        f"{unknown_name('model to fine-tune', name, known)}; name the service of another model "
        "with --backend"
    )

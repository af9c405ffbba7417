"""List of known models, and a test request to a model."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from assay.core.aio import run_in_own_loop
from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.store.opening import Where

if TYPE_CHECKING:
    from assay.models.registry import ModelEntry, Registry
    from assay.types import ChatModel, ChatReply

BUILTIN_PROVIDER = "builtin"
"""Provider name of models that need no network."""


class ModelCatalogue(NamedTuple):
    """Known models."""

    registry: "Registry"
    builtin: tuple[str, ...]
    """Names of models that run in this process."""
    entries: "tuple[ModelEntry, ...]"
    """Models of providers."""


def list_models(provider: str | None = None, *, database: Where = None) -> ModelCatalogue:
    """Return the known models, or those of one provider; makes no requests.

    Args:
        provider: Only models of this provider.
        database: Database; models made by its fine-tuning jobs are included.
    """
    from assay.agents.builtin import BUILTIN_MODELS
    from assay.agents.chat_models import load_registry_with_jobs

    registry = load_registry_with_jobs(database)
    known = [BUILTIN_PROVIDER, *registry.providers]
    if provider is not None and provider not in known:
        raise UsageError(unknown_name("provider", provider, known))
    return ModelCatalogue(
        registry,
        tuple(BUILTIN_MODELS) if provider in (None, BUILTIN_PROVIDER) else (),
        tuple(
            entry
            for entry in registry.entries.values()
            if provider in (None, entry.provider.name)
        ),
    )


def try_model(
    name: str,
    *,
    provider: str | None = None,
    database: Where = None,
    notice: Callable[[str], None] = lambda _: None,
) -> "tuple[ChatModel, ChatReply]":
    """Send one short request to a model; costs far less than a cent with most models.

    Args:
        name: The model.
        provider: Provider of a fine-tuned model with an ambiguous name.
        database: Database whose fine-tuning jobs may have made the model.
        notice: Callback for messages, such as a local service that was started.
    """
    from assay.agents.chat_models import chat_model, send_test_request

    model = chat_model(name, provider=provider, database=database, notice=notice)
    return model, run_in_own_loop(lambda: send_test_request(model))

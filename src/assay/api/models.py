"""Models that can be named, and one question to one of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from assay.core.aio import run_apart
from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.store.opening import Where

if TYPE_CHECKING:
    from assay.models.registry import ModelEntry, Registry
    from assay.types import ChatModel, ChatReply

BUILTIN_PROVIDER = "builtin"
"""Who provides the models that need no network."""


class ModelCatalogue(NamedTuple):
    """The models that are known."""

    registry: "Registry"
    builtin: tuple[str, ...]
    """Names of models that play in this process."""
    entries: "tuple[ModelEntry, ...]"
    """Models of providers."""


def list_models(provider: str | None = None, *, database: Where = None) -> ModelCatalogue:
    """The models that are known, or those of one provider; asks nobody.

    Args:
        provider: Only its models.
        database: The store; models that its fine-tuning jobs have made are known too.
    """
    from assay.agents.builtin import BUILTIN_MODELS
    from assay.agents.chat_models import registry_for

    registry = registry_for(database)
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
    """Ask a model one short question; it costs far less than a cent with most models.

    Args:
        name: The model.
        provider: Who answers for it, if it is a fine-tuned one that its name does not tell.
        database: The store whose jobs may have made it.
        notice: Told of a service that was started for it.
    """
    from assay.agents.chat_models import ask_once, chat_model

    model = chat_model(name, provider=provider, database=database, notice=notice)
    return model, run_apart(lambda: ask_once(model))

"""Chat models by name: built-in, of a provider, fine-tuned or local.

Models that fine-tuning jobs of a store have made, beside those of the registry.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.agents.builtin import BUILTIN_MODELS, make_builtin
from assay.core.aio import connections_allowed, run_apart
from assay.core.text import unknown_name
from assay.errors import StoreError, UsageError
from assay.models.budget import Budget
from assay.models.connections import REFUSED_KEY, SILENT, find_unreachable
from assay.models.faults import CallRetries
from assay.models.local_service import ensure_local
from assay.models.pool import ModelPool
from assay.models.registry import FINE_TUNING, Price, Registry
from assay.models.registry_file import load_registry
from assay.store.opening import Where, store_at
from assay.types import ChatModel, ChatReply, ChatRequest, Encoded, Message

if TYPE_CHECKING:
    from assay.core.secrets import Secret
    from assay.store.finetune_jobs import FinetuneJob

_PREFIX = "ft:"


def is_tuned(name: str) -> bool:
    """Whether a name is that of a fine-tuned model, of any provider or of none."""
    return name.casefold().startswith(_PREFIX) or f"/{_PREFIX}" in name.casefold()


def at_provider(name: str, provider: str) -> str:
    """A fine-tuned model's name that says who answers for it; others stay as they are.

    Raises:
        UsageError: There is no such provider.
    """
    providers = load_registry().providers
    if provider not in providers:
        raise UsageError(unknown_name("provider", provider, providers))
    return f"{provider}/{name}" if name.casefold().startswith(_PREFIX) else name


def registry_for(database: Where, names: Iterable[str] | None = None) -> Registry:
    """The registry, with the models that jobs of a store have made.

    Args:
        database: The store; one that is not there or is taken has no models.
        names: The store is asked only if one of these is a fine-tuned model; None: always.
    """
    registry = load_registry()
    if names is not None and not any(map(is_tuned, names)):
        return registry
    return with_jobs(registry, jobs_of(database))


def with_jobs(registry: Registry, jobs: "Iterable[FinetuneJob]") -> Registry:
    """The registry with a row for each model that a job has made."""
    for job in jobs:
        if job.result_model is None or job.backend not in FINE_TUNING:
            continue
        there = registry.providers[job.backend]
        if not FINE_TUNING[job.backend]:
            # Asked where it was made, wherever the variable points by now.
            there = replace(there, base_url=job.address, base_url_variable=None)
        registry = registry.with_fine_tuned(job.result_model, job.model, there)
    return registry


def jobs_of(database: Where) -> "list[FinetuneJob]":
    """The jobs of a store, the oldest first; one that is not there or is taken has none."""
    from assay.store.finetune_jobs import list_jobs
    from assay.store.store import Store

    path = store_at(database).path
    if not path.exists():
        return []
    try:
        # Somebody who writes to the store is not waited for long.
        with Store(path, patience=5.0).reading() as connection:
            return list_jobs(connection)[::-1]
    except (StoreError, UsageError):
        return []


_OPENAI = "https://api.openai.com/v1"
_MOST_CONNECTIONS = 10_000
_QUESTION = "Reply with the single word: ok"
_REPLY_TOKENS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How models are called, as a configuration has it."""

    models: tuple[str, ...]
    database: Path
    """The database whose fine-tuning jobs may have made some of them."""
    openai_base_url: str | None = None
    """The user's own address for models of OpenAI and unknown names."""
    openai_api_key: "Secret | None" = None
    """The key of that address."""
    price: str | None = None
    """The price of models without a known one, as IN/OUT."""
    max_connections: int | None = None
    """Calls at the same time per provider, at most."""
    call_patience: float = 120.0
    """Seconds after which a failing call is given up."""
    cache: Path | None = None
    """The file that keeps replies."""
    seed: int = 42
    """The seed of waiting times."""
    baselines_beside: tuple[str, ...] = ()
    """Built-in models that play beside those that were named."""


def check_reachable(
    pool: ModelPool, settings: ModelSettings, notice: Callable[[str], None] = lambda _: None
) -> None:
    """Find out before the first episode which models cannot be asked; no call is made."""
    places = pool.addresses
    if settings.cache is not None or not places:
        return  # what a file of replies has needs nobody
    for address, _ in places.values():
        ensure_local(address, notice)
    keys = dict(places.values())
    reasons = run_apart(lambda: find_unreachable(keys, keys=keys))
    dead: dict[str, list[str]] = {}
    for name, (address, _) in places.items():
        reason = reasons.get(address, SILENT)
        if not reason.startswith(SILENT):
            dead.setdefault(f"{reason[0].lower()}{reason[1:]} at {address}", []).append(name)
    if dead:
        steps = [
            "check the key ('assay doctor' says which variable holds it)"
            if any(reason.startswith(REFUSED_KEY) for reason in dead)
            else "start the server",
            "correct the address (--openai-base-url, or the row of its provider)",
        ]
        said = "; ".join(f"{reason} (for {', '.join(names)})" for reason, names in dead.items())
        raise UsageError(f"{said}; {', or '.join(steps)}")


def make_model(name: str, settings: ModelSettings, pool: ModelPool) -> ChatModel:
    """The model of a name: a built-in one, or one of the pool."""
    return make_builtin(name) if is_builtin(name, settings) else pool.make(name)


def is_builtin(name: str, settings: ModelSettings) -> bool:
    """Whether a name means a built-in model, which answers in this process."""
    # An address of the user's own answers under any name; that of OpenAI is nobody's own.
    elsewhere = settings.openai_base_url not in (None, _OPENAI)
    return name in BUILTIN_MODELS and (not elsewhere or name in settings.baselines_beside)


def make_pool(
    settings: ModelSettings,
    budget: Budget | None = None,
    on_fault: Callable[[str, str, int, float], None] = lambda *_: None,
) -> ModelPool:
    """Return the models of providers.

    Args:
        settings: How they are called.
        budget: What may be spent.
        on_fault: Called for each call that is made again: model, reason, attempt, wait.
    """
    return ModelPool(
        registry_for(settings.database, settings.models),
        also=BUILTIN_MODELS,
        base_url=settings.openai_base_url,
        key=settings.openai_api_key,
        budget=budget,
        price=price_of(settings.price),
        max_connections=settings.max_connections,
        connections=min(_MOST_CONNECTIONS, connections_allowed()),
        cache=settings.cache,
        retries=CallRetries(patience=settings.call_patience),
        seed=settings.seed,
        on_fault=on_fault,
    )


def price_of(text: str | None) -> Price | None:
    """A price in words, such as 0.3/1.2: dollars per million tokens in and out."""
    if text is None:
        return None
    numbers = [float(part) for part in text.split("/")]
    return Price(
        input=numbers[0],
        cached=numbers[1] if len(numbers) == 3 else None,
        output=numbers[-1],
    )


def chat_model(
    name: str,
    *,
    provider: str | None = None,
    database: Where = None,
    notice: Callable[[str], None] = lambda _: None,
) -> ChatModel:
    """A model by its name, built in, of a provider or fine-tuned; close it after use.

    Args:
        name: The model.
        provider: Who answers for it, if it is a fine-tuned one that its name does not tell.
        database: The store whose jobs may have made it.
        notice: Told of a service that was started for it.

    Raises:
        UsageError: Nobody answers at its address.
    """
    if provider is not None:
        name = at_provider(name, provider)
    settings = ModelSettings(models=(name,), database=store_at(database).path)
    pool = make_pool(settings)
    model = make_model(name, settings, pool)
    check_reachable(pool, settings, notice)
    return model


async def ask_once(model: ChatModel) -> ChatReply:
    """Ask one short question, and close the model."""
    request = ChatRequest(
        model=model.name,
        messages=[Message({"role": "user", "content": _QUESTION})],
        tools=Encoded([]),
        temperature=0.0,
        max_tokens=_REPLY_TOKENS,
    )
    try:
        return await model.reply(request)
    finally:
        await model.close()

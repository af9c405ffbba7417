"""Chat models by name: built-in, of a provider, fine-tuned or local.

Models made by fine-tuning jobs of a database are added to the registry.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from assay.agents.builtin import BUILTIN_MODELS, make_builtin
from assay.core.aio import raise_connection_limit, run_in_own_loop
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

_TUNED_PREFIX = "ft:"


def is_tuned(name: str) -> bool:
    """Return whether a name is a fine-tuned model, with or without a provider."""
    return name.casefold().startswith(_TUNED_PREFIX) or f"/{_TUNED_PREFIX}" in name.casefold()


def qualify_name(name: str, provider: str) -> str:
    """Add the provider to the name of a fine-tuned model; other names are unchanged.

    Raises:
        UsageError: The provider is unknown.
    """
    providers = load_registry().providers
    if provider not in providers:
        raise UsageError(unknown_name("provider", provider, providers))
    return f"{provider}/{name}" if name.casefold().startswith(_TUNED_PREFIX) else name


def load_registry_with_jobs(database: Where, names: Iterable[str] | None = None) -> Registry:
    """Return the registry, with the models made by fine-tuning jobs of a database.

    Args:
        database: The database; one that is missing or locked has no models.
        names: Read the database only if one of these is a fine-tuned model; None: always.
    """
    registry = load_registry()
    if names is not None and not any(map(is_tuned, names)):
        return registry
    return add_jobs(registry, load_jobs(database))


def add_jobs(registry: Registry, jobs: "Iterable[FinetuneJob]") -> Registry:
    """Return the registry with a row for each model that a job made."""
    for job in jobs:
        if job.result_model is None or job.backend not in FINE_TUNING:
            continue
        provider = registry.providers[job.backend]
        if not FINE_TUNING[job.backend]:
            # Call the server that made it, even if the variable has another address now.
            provider = replace(provider, base_url=job.address, base_url_variable=None)
        registry = registry.with_fine_tuned(job.result_model, job.model, provider)
    return registry


def load_jobs(database: Where) -> "list[FinetuneJob]":
    """Return the jobs of a database, the oldest first; none if it is missing or locked."""
    from assay.store.finetune_jobs import list_jobs
    from assay.store.store import Store

    path = store_at(database).path
    if not path.exists():
        return []
    try:
        # Do not wait long for a process that writes to the database.
        with Store(path, patience=5.0).reading() as connection:
            return list_jobs(connection)[::-1]
    except (StoreError, UsageError):
        return []


_OPENAI = "https://api.openai.com/v1"
_MAX_CONNECTIONS = 10_000
_QUESTION = "Reply with the single word: ok"
_REPLY_TOKENS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings for calling models, from a configuration."""

    models: tuple[str, ...]
    database: Path
    """The database whose fine-tuning jobs may have made some of them."""
    openai_base_url: str | None = None
    """The user's address for OpenAI models and unknown names."""
    openai_api_key: "Secret | None" = None
    """API key for that address."""
    price: str | None = None
    """Price of models without a known one, as IN/OUT."""
    max_connections: int | None = None
    """Maximum concurrent calls per provider."""
    call_patience: float = 120.0
    """Seconds after which a failing call is given up."""
    cache: Path | None = None
    """File of cached replies."""
    seed: int = 42
    """Seed of the jitter of waits."""
    added_baselines: tuple[str, ...] = ()
    """Built-in models that run in addition to the given ones."""

    @classmethod
    def from_config(
        cls, config: Any, *, seed: int, added_baselines: tuple[str, ...] = ()
    ) -> Self:
        """Take the settings from a configuration that has fields with these names."""
        shared = [name for name in cls.__slots__ if name not in ("seed", "added_baselines")]
        values = {name: getattr(config, name) for name in shared}
        return cls(**values, seed=seed, added_baselines=added_baselines)


def check_reachable(
    pool: ModelPool, settings: ModelSettings, notice: Callable[[str], None] = lambda _: None
) -> None:
    """Raise UsageError if a model's server is unreachable; sends no model call."""
    addresses = pool.addresses
    if settings.cache is not None or not addresses:
        return  # cached replies need no server
    for address, _ in addresses.values():
        ensure_local(address, notice)
    keys = dict(addresses.values())
    reasons = run_in_own_loop(lambda: find_unreachable(keys, keys=keys))
    unreachable: dict[str, list[str]] = {}
    for name, (address, _) in addresses.items():
        reason = reasons.get(address, SILENT)
        if not reason.startswith(SILENT):
            unreachable.setdefault(f"{reason[0].lower()}{reason[1:]} at {address}", []).append(
                name
            )
    if unreachable:
        steps = [
            "check the key ('assay doctor' shows which variable sets it)"
            if any(reason.startswith(REFUSED_KEY) for reason in unreachable)
            else "start the server",
            "correct the address (--openai-base-url, or the provider's entry in models.toml)",
        ]
        problems = "; ".join(
            f"{reason} (for {', '.join(names)})" for reason, names in unreachable.items()
        )
        raise UsageError(f"{problems}; {', or '.join(steps)}")


def make_model(name: str, settings: ModelSettings, pool: ModelPool) -> ChatModel:
    """Create a built-in model, or one of the pool."""
    return make_builtin(name) if is_builtin(name, settings) else pool.make(name)


def is_builtin(name: str, settings: ModelSettings) -> bool:
    """Return whether a name means a built-in model, which runs in this process."""
    # A user's own address serves any name; OpenAI's address does not count as one.
    has_own_address = settings.openai_base_url not in (None, _OPENAI)
    return name in BUILTIN_MODELS and (not has_own_address or name in settings.added_baselines)


def make_pool(
    settings: ModelSettings,
    budget: Budget | None = None,
    on_fault: Callable[[str, str, int, float], None] = lambda *_: None,
) -> ModelPool:
    """Create the pool of provider models.

    Args:
        settings: Settings for calling models.
        budget: Spending limit.
        on_fault: Called before each retry: model, reason, attempt, wait.
    """
    return ModelPool(
        load_registry_with_jobs(settings.database, settings.models),
        also=BUILTIN_MODELS,
        base_url=settings.openai_base_url,
        key=settings.openai_api_key,
        budget=budget,
        price=parse_price(settings.price),
        max_connections=settings.max_connections,
        connections=min(_MAX_CONNECTIONS, raise_connection_limit()),
        cache=settings.cache,
        retries=CallRetries(patience=settings.call_patience),
        seed=settings.seed,
        on_fault=on_fault,
    )


def parse_price(text: str | None) -> Price | None:
    """Parse a price such as 0.3/1.2: dollars per million input and output tokens."""
    if text is None:
        return None
    numbers = [float(part) for part in text.split("/")]
    return Price(
        input=numbers[0], cached=numbers[1] if len(numbers) == 3 else None, output=numbers[-1]
    )


def chat_model(
    name: str,
    *,
    provider: str | None = None,
    database: Where = None,
    notice: Callable[[str], None] = lambda _: None,
) -> ChatModel:
    """Create a model by name: built-in, of a provider or fine-tuned; close it after use.

    Args:
        name: The model.
        provider: Provider of a fine-tuned model whose name has none.
        database: The database whose jobs may have made it.
        notice: Called with messages, for example if a service was started for it.

    Raises:
        UsageError: Its server is unreachable.
    """
    if provider is not None:
        name = qualify_name(name, provider)
    settings = ModelSettings(models=(name,), database=store_at(database).path)
    pool = make_pool(settings)
    model = make_model(name, settings, pool)
    check_reachable(pool, settings, notice)
    return model


async def send_test_request(model: ChatModel) -> ChatReply:
    """Send one short request, and close the model."""
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

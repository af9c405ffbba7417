"""Creation of the models of a run, which share connections, rate limits and a budget."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from assay.core.secrets import Secret
from assay.errors import ModelRejected
from assay.models.budget import Budget
from assay.models.cache import CachedModel, ReplyCache
from assay.models.client import RemoteModel
from assay.models.connections import Connections
from assay.models.faults import CallRetries
from assay.models.registry import ModelEntry, Price, Provider, Registry, find_base_url, find_key
from assay.models.throttle import LimitChange, Pace
from assay.types import ChatModel

CUSTOM_PROVIDER = Provider(name="custom", key_variable="OPENAI_API_KEY", key_optional=True)
"""Provider of models at a user-supplied address."""


class ModelPool:
    """Factory of the models of a run.

    Args:
        registry: The known models.
        also: Other valid names, to suggest for an unknown one.
        base_url: Address used instead for models of OpenAI and for models without a row.
        key: The key for that address.
        budget: Spending limit of all models together.
        price: Price of models without a known price.
        max_connections: Maximum number of open calls per provider.
        connections: Maximum number of open connections to all providers.
        cache: File with cached replies.
        retries: Retry settings.
        seed: Seed of the jitter of waits.
        on_fault: Called before a retry with the model and the arguments of `on_fault` of
            `RemoteModel`.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        also: Sequence[str] = (),
        base_url: str | None = None,
        key: Secret | None = None,
        budget: Budget | None = None,
        price: Price | None = None,
        max_connections: int | None = None,
        connections: int = 10_000,
        cache: Path | None = None,
        retries: CallRetries | None = None,
        seed: int = 0,
        on_fault: Callable[[str, str, int, float], None] = lambda *_: None,
    ) -> None:
        self._on_fault = on_fault
        self._addresses: dict[str, tuple[str, Secret | None]] = {}
        self._registry, self._also = registry, also
        self._base_url, self._key = base_url, key
        self.budget, self._price = budget, price
        self._max_connections = min(max_connections or connections, connections)
        self._cache = None if cache is None else ReplyCache(cache)
        self._retries, self._seed = retries, seed
        self._connections = Connections(connections)
        self._paces: dict[str, Pace] = {}
        self._model_paces: dict[str, Pace] = {}

    def entry(self, name: str, *, retired: bool = False) -> ModelEntry:
        """Return the registry entry of a model; needs no key.

        Args:
            name: Name as given by the user.
            retired: Whether to accept a retired model; `missing` then reports it.

        Raises:
            ModelRejected: The model is unknown or retired.
        """
        if self._base_url is not None:
            known = self._registry.entries.get(name)
            if known is None or known.provider.name == "openai":
                provider = known.provider if known else CUSTOM_PROVIDER
                return known or ModelEntry(name=name, provider=provider, remote_name=name)
        entry = self._registry.resolve(name, also=self._also)
        if not retired:
            entry.check_callable()
        return entry

    def price(self, entry: ModelEntry) -> Price | None:
        """Return the price of a model; None if unknown."""
        return entry.price or self._price

    def missing(self, entry: ModelEntry) -> tuple[str, ...]:
        """Return the problems, in sentences, that prevent calls to a model."""
        own = self._uses_base_url(entry)
        needed: list[Callable[[Provider], object]] = []
        if not (own and self._key is not None):
            needed.append(find_key)
        if not own:
            needed.append(find_base_url)
        problems = []
        if not own:
            try:
                entry.check_callable()
            except ModelRejected as error:
                problems.append(str(error))
        for find in needed:
            try:
                find(entry.provider)
            except ModelRejected as error:
                problems.append(str(error))
        return tuple(problems)

    def make(self, name: str) -> ChatModel:
        """Create a model; the caller closes it.

        Raises:
            ModelRejected: It is unknown, retired, or without a key or a price.
        """
        entry = self.entry(name)
        own = self._uses_base_url(entry)
        pace = self._paces.setdefault(
            entry.provider.name,
            Pace(self._max_connections, per_minute=entry.requests_per_minute),
        )
        key = (self._key if own else None) or find_key(entry.provider)
        model = RemoteModel(
            entry,
            key=key,
            base_url=self._base_url if own else None,
            pace=pace,
            budget=self.budget,
            price=self.price(entry),
            retries=self._retries,
            http=self._connections,
            seed=self._seed,
            on_fault=partial(self._on_fault, name),
        )
        self._addresses[name] = model.address, key
        self._model_paces[name] = pace
        return model if self._cache is None else CachedModel(model, self._cache)

    def _uses_base_url(self, entry: ModelEntry) -> bool:
        """Return whether the model is called at the user-supplied address."""
        return self._base_url is not None and entry.provider.name in (
            "openai",
            CUSTOM_PROVIDER.name,
        )

    def history(self) -> Iterator[tuple[str, LimitChange]]:
        """Yield the changes of each provider's limits, the latest last."""
        for provider, pace in self._paces.items():
            for change in pace.history:
                yield provider, change

    @property
    def addresses(self) -> dict[str, tuple[str, Secret | None]]:
        """Address and key of each created model, by name."""
        return dict(self._addresses)

    def calls_allowed(self, name: str) -> int:
        """Return the current limit of open calls to the provider of a created model."""
        return self._model_paces[name].limit

    def leave(self) -> None:
        """End all waits for a slot or a retry, because the run is to stop."""
        for pace in self._paces.values():
            pace.leave()

    def close(self) -> None:
        """Close the cache; models are closed by the caller of `make`."""
        if self._cache is not None:
            self._cache.close()

"""The models of a run, which share what there is once: connections, turns and a budget."""

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
from assay.models.throttle import Pace, PaceChange
from assay.types import ChatModel

ELSEWHERE = Provider(name="custom", key_variable="OPENAI_API_KEY", key_optional=True)
"""Whoever answers at an address of the user's own."""


class ModelPool:
    """Makes models of providers.

    Args:
        registry: Which models there are.
        also: Names that others know; an unknown name may be meant for one of them.
        base_url: Where models of OpenAI, and models that no row knows, are asked instead.
        key: The key for that address.
        budget: What all of them may spend together.
        price: What a model without a known price costs.
        max_connections: Calls open at once for each provider, at most.
        connections: Connections open at once to all providers, at most.
        cache: A file with replies to requests that were asked before.
        retries: How patient calls are.
        seed: For the random part of waits.
        on_fault: Who hears that a call will be tried again: the model, and what `RemoteModel`
            says of it.
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
        self._pace_of: dict[str, Pace] = {}

    def entry(self, name: str, *, retired: bool = False) -> ModelEntry:
        """The row of a name; needs no key.

        Args:
            name: What the user wrote.
            retired: Whether one that is gone will do; `missing` then says so.

        Raises:
            ModelRejected: There is no such model, or it is gone.
        """
        if self._base_url is not None:
            known = self._registry.entries.get(name)
            if known is None or known.provider.name == "openai":
                provider = known.provider if known else ELSEWHERE
                return known or ModelEntry(name=name, provider=provider, remote_name=name)
        entry = self._registry.resolve(name, also=self._also)
        if not retired:
            entry.check_callable()
        return entry

    def price(self, entry: ModelEntry) -> Price | None:
        """What a model costs; None if nobody knows."""
        return entry.price or self._price

    def missing(self, entry: ModelEntry) -> tuple[str, ...]:
        """What has to be set before a model can be asked, in sentences."""
        own = self._is_own(entry)
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
        """A model by its name; close it when the run is over.

        Raises:
            ModelRejected: It cannot be asked: unknown, gone, or without a key or a price.
        """
        entry = self.entry(name)
        own = self._is_own(entry)
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
        self._pace_of[name] = pace
        return model if self._cache is None else CachedModel(model, self._cache)

    def _is_own(self, entry: ModelEntry) -> bool:
        """Whether the user's own address answers for it."""
        return self._base_url is not None and entry.provider.name in ("openai", ELSEWHERE.name)

    def history(self) -> Iterator[tuple[str, PaceChange]]:
        """How the limits of each provider changed, the latest last."""
        for provider, pace in self._paces.items():
            for change in pace.history:
                yield provider, change

    @property
    def addresses(self) -> dict[str, tuple[str, Secret | None]]:
        """Where the models that were made are asked and with which key, by name."""
        return dict(self._addresses)

    def calls_allowed(self, name: str) -> int:
        """How many calls to the provider of a model that was made may be in flight now."""
        return self._pace_of[name].limit

    def leave(self) -> None:
        """The run is to stop: whoever waits to be asked, or asked again, waits no longer."""
        for pace in self._paces.values():
            pace.leave()

    def close(self) -> None:
        """Close the cache; models are closed by who made them."""
        if self._cache is not None:
            self._cache.close()

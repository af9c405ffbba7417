"""The models of a run: made by name, with their providers' addresses, prices and pace."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from assay._util.descriptors import connections_allowed
from assay._util.loops import run_apart
from assay.agents import BUILTIN_MODELS, make_builtin
from assay.api._run_parts import OwnObjects
from assay.api._tuned import at_provider, registry_for
from assay.errors import UsageError
from assay.models import (
    Budget,
    CallRetries,
    ModelPool,
    PaceChange,
    Price,
)
from assay.models.local_service import ensure_local
from assay.models.reach import REFUSED_KEY, SILENT, why_unreachable
from assay.rollouts import RunConfig
from assay.rollouts.config import SETTINGS
from assay.rollouts.environments import RANDOM
from assay.traces.opening import Where, store_at
from assay.traces.records import LimitRecord
from assay.trials import CallRetried, Event
from assay.types import ChatModel

if TYPE_CHECKING:
    from assay._util.secret import Secret
    from assay.runs import PreparedRun
    from assay.runs.room import Answerer

__all__ = [
    "ModelChoices",
    "Troubles",
    "answerers_of",
    "chat_model",
    "check_reachable",
    "is_played_here",
    "limit_record",
    "pool_of",
    "price_of",
    "run_models",
]

_OPENAI = "https://api.openai.com/v1"
_MOST_CONNECTIONS = 10_000
_WORKERS_OF_A_CLUSTER = 1024
"""How many there may be: nobody knows before the cluster is joined."""


class ModelChoices(Protocol):
    """What the configuration of any run says of its models."""

    # Read-only, so that frozen configurations fit.
    @property
    def models(self) -> tuple[str, ...]: ...
    @property
    def database(self) -> Path: ...
    @property
    def openai_base_url(self) -> str | None: ...
    @property
    def openai_api_key(self) -> "Secret | None": ...
    @property
    def price(self) -> str | None: ...
    @property
    def max_connections(self) -> int | None: ...
    @property
    def call_patience(self) -> float: ...
    @property
    def cache(self) -> Path | None: ...
    @property
    def seed(self) -> int: ...
    @property
    def baselines_beside(self) -> tuple[str, ...]: ...


class Troubles:
    """Tells of calls that are made again, and keeps the last reason."""

    def __init__(self, listen: Callable[[Event], None]) -> None:
        self.last: str | None = None
        self._listen = listen

    def __call__(self, model: str, reason: str, attempt: int, wait: float) -> None:
        self.last = reason
        self._listen(CallRetried(model, reason, attempt, wait))


def check_reachable(
    pool: ModelPool, config: ModelChoices, notice: Callable[[str], None] = lambda _: None
) -> None:
    """Find out before the first episode which models cannot be asked; no call is made."""
    places = pool.addresses
    if config.cache is not None or not places:
        return  # what a file of replies has needs nobody
    for address, _ in places.values():
        ensure_local(address, notice)
    keys = dict(places.values())
    reasons = run_apart(lambda: why_unreachable(keys, keys=keys))
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


def run_models(
    prepared: "PreparedRun[RunConfig]", pool: ModelPool, own: OwnObjects
) -> dict[str, ChatModel]:
    names = dict.fromkeys(arm.model for arm in prepared.arms if arm.model is not None)
    return {
        name: own.models.get(name) or model_of(name, prepared.config, pool) for name in names
    }


def answerers_of(prepared: "PreparedRun[RunConfig]", pool: ModelPool) -> "dict[str, Answerer]":
    """Who answers each arm, by its label; agents and models of users are left out.

    Nobody is named where the user says how many episodes are to be open.
    """
    from assay.runs.room import Answerer

    config = prepared.config
    usual = config.max_concurrent_episodes == SETTINGS["max_concurrent_episodes"].default
    if not usual or prepared.sources["max_concurrent_episodes"] not in ("default", "the run"):
        return {}
    here = 1 if config.executor == "asyncio" else config.workers or os.cpu_count() or 1
    if config.executor == "ray" and config.workers is None:
        here = _WORKERS_OF_A_CLUSTER
    found = {}
    for arm in prepared.arms:
        name = arm.model
        if arm.agent == RANDOM or (
            name is not None and arm.agent is None and is_played_here(name, config)
        ):
            found[arm.label] = Answerer("builtin", lambda: here)
        elif name is not None and name in pool.addresses:
            provider = pool.entry(name).provider.name
            found[arm.label] = Answerer(provider, partial(pool.calls_allowed, name))
    return found


def model_of(name: str, config: ModelChoices, pool: ModelPool) -> ChatModel:
    return make_builtin(name) if is_played_here(name, config) else pool.make(name)


def is_played_here(name: str, config: ModelChoices) -> bool:
    # An address of the user's own answers under any name; that of OpenAI is nobody's own.
    elsewhere = config.openai_base_url not in (None, _OPENAI)
    return name in BUILTIN_MODELS and (not elsewhere or name in config.baselines_beside)


def pool_of(
    config: ModelChoices,
    budget: Budget | None = None,
    on_fault: Callable[[str, str, int, float], None] = lambda *_: None,
) -> ModelPool:
    return ModelPool(
        registry_for(config.database, config.models),
        also=BUILTIN_MODELS,
        base_url=config.openai_base_url,
        key=config.openai_api_key,
        budget=budget,
        price=price_of(config.price),
        max_connections=config.max_connections,
        connections=min(_MOST_CONNECTIONS, connections_allowed()),
        cache=config.cache,
        retries=CallRetries(patience=config.call_patience),
        seed=config.seed,
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


def limit_record(line: tuple[str, PaceChange]) -> LimitRecord:
    provider, change = line
    return LimitRecord(
        provider=provider,
        at=change.at,
        connections=change.limit,
        per_second=change.rate,
        pause_s=change.pause_s,
        reason=change.reason,
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
    config = RunConfig(models=(name,), database=store_at(database).path)
    pool = pool_of(config)
    model = model_of(name, config, pool)
    check_reachable(pool, config, notice)
    return model

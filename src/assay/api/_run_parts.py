"""What the episodes of a run are made of: agents, an environment, hooks, metrics and worlds."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay._util.loops import run_apart
from assay.agents.chat_models import is_played_here, model_of
from assay.agents.own import OwnAgent
from assay.errors import ServiceError, UsageError
from assay.metrics import DEFAULT_HOOKS, Hook, MetricSet, gather_hooks, load_metrics
from assay.models import ModelPool
from assay.rollouts import RunConfig
from assay.rollouts.config import SETTINGS
from assay.rollouts.environments import RANDOM, OwnEnvironment, load_environment
from assay.types import ChatModel

if TYPE_CHECKING:
    from assay.rollouts import EpisodeParts
    from assay.runs import PreparedRun
    from assay.runs.room import Answerer
    from assay.service.client import HttpClient, WorldClient
    from assay.traces.records import SessionRecord

__all__ = [
    "NOTHING_OWN",
    "AgentLoader",
    "OwnObjects",
    "agents_of",
    "answerers_of",
    "check_service_answers",
    "environment_of",
    "episode_parts",
    "hooks_of",
    "metrics_of",
    "run_models",
]

_FOR_EVER = 1e9
"""Seconds."""
_PROBE_S = 3.0
"""Seconds in which a service has to say that it is one."""
_TOKEN_VARIABLE = "ASSAY_SERVICE_TOKEN"
_WORKERS_OF_A_CLUSTER = 1024
"""How many there may be: nobody knows before the cluster is joined."""


AgentLoader = Callable[[RunConfig, str], OwnAgent]
"""Makes the agent that a configuration names; workers get it by pickle."""


class OwnObjects(NamedTuple):
    """What a program hands over that has no name in a file: agents and models of its own."""

    agents: Mapping[str, OwnAgent] = {}
    """By the words that stand for them in the configuration."""
    models: Mapping[str, ChatModel] = {}
    """By their names."""
    environment: OwnEnvironment | None = None


NOTHING_OWN = OwnObjects()


def episode_parts(
    config: RunConfig, *, own: OwnObjects, load_agent: AgentLoader
) -> "EpisodeParts":
    from assay.rollouts import EpisodeParts

    # A worker may start hours after the run did.
    now = replace(config)
    if any(
        getattr(now, name) != getattr(config, name)
        for name in ("agent_hashes", "environment_hash", "hook_hashes")
    ):
        raise UsageError(
            "a file with agents, hooks or the environment was changed after the run began; put "
            "it back and resume, or start anew with --fresh"
        )
    return EpisodeParts(
        open_worlds=partial(_worlds, config),
        hooks=hooks_of(config),
        agents=agents_of(config, own.agents, load_agent),
        environment=environment_of(config, own.environment),
        parent=_parents(config.database.absolute()),
    )


def _parents(database: Path) -> "Callable[[str], SessionRecord]":
    """Reads stored sessions; those that are forked several times in a row are read once."""

    @lru_cache(maxsize=4)
    def parent(session_id: str) -> "SessionRecord":
        from assay.traces.load import load_sessions
        from assay.traces.store import Store

        with Store(database).reading() as connection:
            return next(load_sessions(connection, [session_id]))

    return parent


def environment_of(config: RunConfig, given: OwnEnvironment | None) -> OwnEnvironment | None:
    if config.environment is None or given is not None:
        return given
    return load_environment(config.environment)


def agents_of(
    config: RunConfig, given: Mapping[str, OwnAgent], load_agent: AgentLoader
) -> dict[str, OwnAgent]:
    specs = (*config.agents, *(arm.agent for arm in config.arms if arm.agent))
    return {spec: given.get(spec) or load_agent(config, spec) for spec in dict.fromkeys(specs)}


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


def hooks_of(config: RunConfig) -> tuple[type[Hook], ...]:
    found: dict[type[Hook], None] = {}
    places: tuple[Path | None, ...] = config.hooks
    if config.environment is None:
        # Those that come with assay and with packages know Crafter.
        found, places = dict.fromkeys(DEFAULT_HOOKS), (None, *config.hooks)
    for path in places:
        found |= dict.fromkeys(gather_hooks(path).classes)
    return tuple(found)


def metrics_of(config: RunConfig) -> MetricSet | None:
    return None if config.metrics_from is None else load_metrics(config.metrics_from)


def _worlds(config: RunConfig) -> "WorldClient":
    from assay.service.client import LocalClient
    from assay.service.worlds import Worlds

    if config.service_url is not None:
        return _service(config, timeout=config.service_timeout)
    # Ours alone: as many as may be open, and none is ever forgotten.
    worlds = Worlds(
        seed=config.seed,
        max_instances=config.max_concurrent_episodes,
        idle_timeout=_FOR_EVER,
    )
    return LocalClient(worlds)


def check_service_answers(config: RunConfig) -> None:
    """Find out before anything is loaded that nobody has worlds there, or somebody else is."""
    if config.service_url is None:
        return
    from assay.service.client.http import RequestRetries

    once = RequestRetries(attempts=1)
    seconds = min(config.service_timeout, _PROBE_S)

    async def ask() -> None:
        async with _service(config, timeout=seconds, retries=once) as client:
            await client.health()

    try:
        run_apart(ask)
    except ServiceError as error:
        raise UsageError(str(error)) from error


def _service(config: RunConfig, **choices: Any) -> "HttpClient":
    from assay.service.client import HttpClient

    token = os.environ.get(_TOKEN_VARIABLE) or None
    return HttpClient(config.service_url or "", token=token, **choices)

"""Preparation of a run of episodes: settings are resolved and checked before it starts.

Nothing heavy is imported for that. The module also loads the parts of episodes (agents,
environment, hooks, metrics, worlds), and gives fine-tuned models the agent options of their
training episodes.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from assay.agents.builtin import BUILTIN_MODELS
from assay.agents.chat_models import (
    at_provider,
    check_reachable,
    is_tuned,
    jobs_of,
    make_model,
    make_pool,
    registry_for,
)
from assay.agents.user_agents import OwnAgent
from assay.core.aio import run_apart
from assay.core.options import takes_options
from assay.core.text import unknown_name
from assay.crafter.rules import TASK
from assay.episodes.arms import arm_options, arms_of
from assay.episodes.config import RunConfig
from assay.episodes.environments import OwnEnvironment, load_environment
from assay.episodes.hook_runner import gather_hooks
from assay.episodes.hooks import DEFAULT_HOOKS, Hook
from assay.episodes.metrics import MetricSet, load_metrics
from assay.errors import ServiceError, StoreError, UsageError
from assay.models.budget import Budget
from assay.models.pool import ModelPool
from assay.runs.kind import PreparedRun
from assay.runs.options import WhichRun
from assay.runs.prepare import prepare_run
from assay.runs.resume import with_addresses, without_secrets
from assay.types import ChatModel

if TYPE_CHECKING:
    from assay.crafter.service.http_client import HttpClient
    from assay.episodes.kind import EpisodeParts
    from assay.store.records import SessionRecord

_PROBE_S = 3.0
"""Timeout of the health check of a service, in seconds."""
_TOKEN_VARIABLE = "ASSAY_SERVICE_TOKEN"

AgentLoader = Callable[[RunConfig, str], OwnAgent]
"""Makes the agent that a configuration names; pickled to workers."""


class OwnObjects(NamedTuple):
    """Objects that a program passes directly: agents, models and an environment."""

    agents: Mapping[str, OwnAgent] = {}
    """Agents by their name in the configuration."""
    models: Mapping[str, ChatModel] = {}
    """Models by name."""
    environment: OwnEnvironment | None = None


NOTHING_OWN = OwnObjects()


def episode_parts(
    config: RunConfig, *, own: OwnObjects, load_agent: AgentLoader
) -> "EpisodeParts":
    """Load the parts that a process needs to play the episodes of a run."""
    from assay.episodes.kind import EpisodeParts

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
        open_worlds=None
        if config.service_url is None
        else partial(_service, config, timeout=config.service_timeout),
        hooks=hooks_of(config),
        agents=agents_of(config, own.agents, load_agent),
        environment=environment_of(config, own.environment),
        parent=_parents(config.database.absolute()),
    )


def _parents(database: Path) -> "Callable[[str], SessionRecord]":
    """Return a cached reader of stored sessions; forks of one session read it once."""

    @lru_cache(maxsize=4)
    def parent(session_id: str) -> "SessionRecord":
        from assay.store.load import load_sessions
        from assay.store.store import Store

        with Store(database).reading() as connection:
            return next(load_sessions(connection, [session_id]))

    return parent


def environment_of(config: RunConfig, given: OwnEnvironment | None) -> OwnEnvironment | None:
    """Return the environment of a run: the given one, or the configured one."""
    if config.environment is None or given is not None:
        return given
    return load_environment(config.environment)


def agents_of(
    config: RunConfig, given: Mapping[str, OwnAgent], load_agent: AgentLoader
) -> dict[str, OwnAgent]:
    """Return the agents of a run and its arms, by their name in the configuration."""
    specs = (*config.agents, *(arm.agent for arm in config.arms if arm.agent))
    return {spec: given.get(spec) or load_agent(config, spec) for spec in dict.fromkeys(specs)}


def run_models(
    prepared: "PreparedRun[RunConfig]", pool: ModelPool, own: OwnObjects
) -> dict[str, ChatModel]:
    """Return the chat models of a run's arms, by name."""
    names = dict.fromkeys(arm.model for arm in prepared.arms if arm.model is not None)
    settings = prepared.config.model_settings()
    return {name: own.models.get(name) or make_model(name, settings, pool) for name in names}


def hooks_of(config: RunConfig) -> tuple[type[Hook], ...]:
    """Return the hook classes of a run: built-in, installed, and from its files."""
    found: dict[type[Hook], None] = {}
    places: tuple[Path | None, ...] = config.hooks
    if config.environment is None:
        # Built-in and installed hooks are made for Crafter.
        found, places = dict.fromkeys(DEFAULT_HOOKS), (None, *config.hooks)
    for path in places:
        found |= dict.fromkeys(gather_hooks(path).classes)
    return tuple(found)


def metrics_of(config: RunConfig) -> MetricSet | None:
    """Return the metrics of the configured file, or None."""
    return None if config.metrics_from is None else load_metrics(config.metrics_from)


def check_service_answers(config: RunConfig) -> None:
    """Raise UsageError if the configured service is unreachable or not a Crafter service."""
    if config.service_url is None:
        return
    from assay.crafter.service.http_client import RequestRetries

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
    from assay.crafter.service.http_client import HttpClient

    token = os.environ.get(_TOKEN_VARIABLE) or None
    return HttpClient(config.service_url or "", token=token, **choices)


_DEFAULT: Final = "default"
_OPTIONS: Final = {
    "view": "--view",
    "history": "--history",
    "actions_per_turn": "--actions-per-turn",
}

Taught = Mapping[str, Mapping[str, Any]]
"""Agent options of the training episodes, by model."""


def as_taught(
    prepared: PreparedRun[RunConfig],
    again: Callable[[Mapping[str, Any]], PreparedRun[RunConfig]],
) -> PreparedRun[RunConfig]:
    """Return the run with the agent options of its fine-tuned models' training episodes.

    Options chosen by the user are kept.

    Args:
        prepared: The run without these options.
        again: Prepares the run with other settings.
    """
    taught = _taught(prepared)
    if not taught:
        return prepared
    brought = {
        name: value
        for name, value in next(iter(taught.values())).items()
        if prepared.sources[name] == _DEFAULT
        and all(each.get(name) == value for each in taught.values())
        and getattr(prepared.config.agent, name) != value
    }
    words = []
    if brought:
        models = ", ".join(taught)
        prepared = again(brought)
        sources = {**prepared.sources, **dict.fromkeys(brought, f"the teaching of {models}")}
        prepared = replace(prepared, sources=sources)
        chosen = " and ".join(_OPTIONS[name] for name in brought)
        words.append(
            f"{models} was taught with {_listed(brought)}, so this run is played with it;"
            f" {chosen} would say otherwise"
        )
    words += _mismatches(prepared, taught)
    return replace(prepared, warnings=(*prepared.warnings, *words))


def _taught(prepared: PreparedRun[RunConfig]) -> Taught:
    asked = dict.fromkeys(
        arm.model for arm in prepared.arms if arm.model is not None and arm.agent is None
    )
    tuned = [name for name in asked if is_tuned(name)]
    if not tuned:
        return {}
    from assay.store.finetune_jobs import PLAYED

    known = {
        job.result_model.casefold(): job.lineage.get(PLAYED) or {}
        for job in jobs_of(prepared.config.database)
        if job.result_model is not None
    }
    found = {}
    for model in tuned:
        played = known.get(model[model.casefold().index("ft:") :].casefold(), {})
        kept = {name: played[name] for name in _OPTIONS if played.get(name) is not None}
        if kept:
            found[model] = kept
    return found


def _mismatches(prepared: PreparedRun[RunConfig], taught: Taught) -> Iterator[str]:
    for arm in prepared.arms:
        options = arm_options(prepared.config, arm)
        wanted = taught.get(arm.model or "", {})
        other = {name: v for name, v in wanted.items() if getattr(options, name) != v}
        if other:
            played = {name: getattr(options, name) for name in other}
            yield (
                f"{arm.label} was taught with {_listed(other)}, and this run plays with"
                f" {_listed(played)}: what it learned may not show"
            )


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in values.items())


@takes_options
def prepare(
    settings: Mapping[str, Any],
    config: Path | None = None,
    *,
    which: WhichRun,
    command: str = "",
    dry: bool = False,
    model_map: Mapping[str, str] | None = None,
    provider: str | None = None,
    source: str = "command line",
    own: OwnObjects = NOTHING_OWN,
    base: Mapping[str, Any] | None = None,
    load_agent: AgentLoader,
) -> PreparedRun[RunConfig]:
    """Resolve the settings of a run, and check everything possible; nothing is started.

    Args:
        settings: Values by the names of `RunConfig`.
        config: Configuration file; `settings` override it.
        which: Options that choose between a new run and an unfinished one.
        command: Command line, for the record.
        dry: Skip checks that only a real run needs: keys, addresses and the reply cache.
        model_map: Replacements of model names, by old name.
        provider: Provider of fine-tuned models whose names are ambiguous.
        source: Source of the settings, for errors and the record.
        own: Agents, models and environment of a program.
        base: Stored settings of another run that replace the defaults of a new run.
        load_agent: Makes the agents that the settings name.
    """

    def prepared_with(given: Mapping[str, Any]) -> PreparedRun[RunConfig]:
        return prepare_run(
            RunConfig,
            lambda chosen: arms_of(
                chosen,
                agents_of(chosen, own.agents, load_agent),
                environment_of(chosen, own.environment),
            ),
            given,
            config,
            which=which,
            command=command,
            source=source,
            base=base,
        )

    prepared = prepared_with(settings)
    if which.resume is None and (
        renamed := _renamed(prepared.config, model_map or {}, provider, own)
    ):
        settings = {**settings, "models": renamed}
        prepared = prepared_with(settings)
    if which.resume is None:
        prepared = as_taught(prepared, lambda taught: prepared_with({**settings, **taught}))
    chosen = prepared.config
    # An unusable user file is reported before anything is played.
    hooks_of(chosen)
    metrics_of(chosen)
    if chosen.forks:
        _check_forks(prepared, load_agent)
    if dry:
        return prepared
    check_service_answers(chosen)
    settled = chosen.model_settings()
    pool = make_pool(settled, None if chosen.budget is None else Budget(chosen.budget))
    started: list[str] = []
    try:
        run_models(prepared, pool, own)
        prepared = with_addresses(prepared, _asked_at(prepared, pool))
        check_reachable(pool, settled, started.append)
    finally:
        pool.close()
    words = (*prepared.warnings, *started, *_known_worlds(chosen, own))
    return replace(prepared, warnings=words)


def _check_forks(prepared: PreparedRun[RunConfig], load_agent: AgentLoader) -> None:
    """Raise UsageError before any model call if a fork point cannot be reproduced exactly."""
    from assay.agents.builtin import make_builtin
    from assay.core.aio import run_apart
    from assay.episodes.forks import check_replays
    from assay.episodes.kind import EpisodeKind
    from assay.store.records import SessionRecord

    config = prepared.config
    here = replace(config, service_url=None)
    nobody = make_builtin("builtin/noop")
    arm, *_ = prepared.arms
    kind = EpisodeKind(
        here,
        [arm],
        partial(episode_parts, own=NOTHING_OWN, load_agent=load_agent),
        {arm.model or "": nobody},
    )
    # The replay of a later turn includes all earlier states.
    latest: dict[str, int] = {}
    for number, point in enumerate(config.forks):
        known = latest.setdefault(point.session, number)
        if point.turn > config.forks[known].turn:
            latest[point.session] = number
    group, *_ = kind.plan(prepared.record).groups

    async def check() -> None:
        try:
            for number in latest.values():
                trial = group.make(number * config.replicates)
                begun = kind.header(trial)
                assert isinstance(begun, SessionRecord), "a fork has a beginning"
                await check_replays(begun, partial(kind.attempt, trial))
        finally:
            await kind.close()

    run_apart(check)


def _known_worlds(config: RunConfig, own: OwnObjects) -> list[str]:
    """Return warnings about training data that was made from the worlds of a run."""
    from assay.store.finetune_jobs import find_training_worlds
    from assay.store.store import Store

    if not config.database.exists():
        return []
    place = environment_of(config, own.environment)
    tasks = [f"{TASK}{name}" for name in config.difficulty_names]
    worlds = [
        (place.name if place is not None else tasks[task], seed) for task, seed in config.worlds
    ]
    try:
        # This is only a warning, so it does not wait long for a locked database.
        with Store(config.database, patience=0.5).reading() as connection:
            found = find_training_worlds(connection, worlds)
    except (StoreError, UsageError):
        return []
    return [f"this run plays {each}: a model trained on it knows them" for each in found]


def _renamed(
    config: RunConfig, model_map: Mapping[str, str], provider: str | None, own: OwnObjects
) -> list[str] | None:
    """Return the corrected model names; None if they are unchanged."""
    unknown = next((name for name in model_map if name not in config.models), None)
    if unknown is not None:
        raise UsageError(unknown_name("model in --model-map", unknown, config.models))
    names = [model_map.get(name, name) for name in config.models]
    if provider is not None:
        names = [at_provider(name, provider) for name in names]
    if config.openai_base_url is None:
        registry = registry_for(config.database, names)
        names = [
            name if name in own.models else registry.correct_case(name, also=BUILTIN_MODELS)
            for name in names
        ]
    return names if names != [*config.models] else None


def _asked_at(prepared: PreparedRun[RunConfig], pool: ModelPool) -> dict[str, str]:
    """Return the address and remote name of each arm's model, by arm label."""
    found = {}
    for arm in prepared.arms:
        asked = pool.addresses.get(arm.model or "")
        if arm.model is not None and asked is not None:
            name = pool.entry(arm.model).remote_name
            found[arm.label] = without_secrets(asked[0]) + (
                "" if name == arm.model else f" as {name}"
            )
    return found

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
    check_reachable,
    is_tuned,
    load_jobs,
    load_registry_with_jobs,
    make_model,
    make_pool,
    qualify_name,
)
from assay.agents.user_agents import UserAgent
from assay.core.aio import run_in_own_loop
from assay.core.options import takes_options
from assay.core.text import unknown_name
from assay.crafter.rules import TASK
from assay.episodes.arms import make_arm_options, make_arms
from assay.episodes.config import RunConfig
from assay.episodes.environments import UserEnvironment, load_environment
from assay.episodes.hook_runner import gather_hooks
from assay.episodes.hooks import DEFAULT_HOOKS, Hook
from assay.episodes.metrics import MetricSet, load_metrics
from assay.errors import ServiceError, StoreError, UsageError
from assay.models.budget import Budget
from assay.models.pool import ModelPool
from assay.runs.kind import PreparedRun
from assay.runs.options import WhichRun
from assay.runs.prepare import prepare_run
from assay.runs.resume import record_addresses, strip_secrets
from assay.types import ChatModel

if TYPE_CHECKING:
    from assay.crafter.service.http_client import HttpClient
    from assay.episodes.kind import EpisodeParts
    from assay.store.records import SessionRecord

_PROBE_S = 3.0
"""Timeout of the health check of a service, in seconds."""
_TOKEN_VARIABLE = "ASSAY_SERVICE_TOKEN"

AgentLoader = Callable[[RunConfig, str], UserAgent]
"""Makes the agent that a configuration names; pickled to workers."""


class UserObjects(NamedTuple):
    """Objects that a program passes directly: agents, models and an environment."""

    agents: Mapping[str, UserAgent] = {}
    """Agents by their name in the configuration."""
    models: Mapping[str, ChatModel] = {}
    """Models by name."""
    environment: UserEnvironment | None = None


NO_USER_OBJECTS = UserObjects()


def load_episode_parts(
    config: RunConfig, *, own: UserObjects, load_agent: AgentLoader
) -> "EpisodeParts":
    """Load the parts that a process needs to play the episodes of a run."""
    from assay.episodes.kind import EpisodeParts

    # A worker may start hours after the run did.
    current = replace(config)
    if any(
        getattr(current, name) != getattr(config, name)
        for name in ("agent_hashes", "environment_hash", "hook_hashes")
    ):
        raise UsageError(
            "a file with agents, hooks or the environment was changed after the run started; "
            "restore it and resume, or start a new run with --fresh"
        )
    return EpisodeParts(
        open_worlds=None
        if config.service_url is None
        else partial(_make_client, config, timeout=config.service_timeout),
        hooks=load_hook_classes(config),
        agents=load_agents(config, own.agents, load_agent),
        environment=find_environment(config, own.environment),
        read_parent=_make_parent_reader(config.database.absolute()),
    )


def _make_parent_reader(database: Path) -> "Callable[[str], SessionRecord]":
    """Return a cached reader of stored sessions; forks of one session read it once."""

    @lru_cache(maxsize=4)
    def read_session(session_id: str) -> "SessionRecord":
        from assay.store.load import load_sessions
        from assay.store.store import Store

        with Store(database).reading() as connection:
            return next(load_sessions(connection, [session_id]))

    return read_session


def find_environment(
    config: RunConfig, passed: UserEnvironment | None
) -> UserEnvironment | None:
    """Return the environment of a run: the given one, or the configured one."""
    if config.environment is None or passed is not None:
        return passed
    return load_environment(config.environment)


def load_agents(
    config: RunConfig, passed: Mapping[str, UserAgent], load_agent: AgentLoader
) -> dict[str, UserAgent]:
    """Return the agents of a run and its arms, by their name in the configuration."""
    specs = (*config.agents, *(arm.agent for arm in config.arms if arm.agent))
    return {spec: passed.get(spec) or load_agent(config, spec) for spec in dict.fromkeys(specs)}


def make_models(
    prepared: "PreparedRun[RunConfig]", pool: ModelPool, own: UserObjects
) -> dict[str, ChatModel]:
    """Return the chat models of a run's arms, by name."""
    names = dict.fromkeys(arm.model for arm in prepared.arms if arm.model is not None)
    settings = prepared.config.make_model_settings()
    return {name: own.models.get(name) or make_model(name, settings, pool) for name in names}


def load_hook_classes(config: RunConfig) -> tuple[type[Hook], ...]:
    """Return the hook classes of a run: built-in, installed, and from its files."""
    classes: dict[type[Hook], None] = {}
    files: tuple[Path | None, ...] = config.hooks
    if config.environment is None:
        # Built-in and installed hooks are made for Crafter.
        classes, files = dict.fromkeys(DEFAULT_HOOKS), (None, *config.hooks)
    for path in files:
        classes |= dict.fromkeys(gather_hooks(path).classes)
    return tuple(classes)


def load_run_metrics(config: RunConfig) -> MetricSet | None:
    """Return the metrics of the configured file, or None."""
    return None if config.metrics_from is None else load_metrics(config.metrics_from)


def check_service(config: RunConfig) -> None:
    """Raise UsageError if the configured service is unreachable or not a Crafter service."""
    if config.service_url is None:
        return
    from assay.crafter.service.http_client import RequestRetries

    no_retries = RequestRetries(attempts=1)
    seconds = min(config.service_timeout, _PROBE_S)

    async def check_health() -> None:
        async with _make_client(config, timeout=seconds, retries=no_retries) as client:
            await client.health()

    try:
        run_in_own_loop(check_health)
    except ServiceError as error:
        raise UsageError(str(error)) from error


def _make_client(config: RunConfig, **options: Any) -> "HttpClient":
    from assay.crafter.service.http_client import HttpClient

    token = os.environ.get(_TOKEN_VARIABLE) or None
    return HttpClient(config.service_url or "", token=token, **options)


_DEFAULT: Final = "default"
_OPTION_NAMES: Final = {
    "view": "--view",
    "history": "--history",
    "actions_per_turn": "--actions-per-turn",
}

TrainingOptions = Mapping[str, Mapping[str, Any]]
"""Agent options of the training episodes, by model."""


def apply_training_options(
    prepared: PreparedRun[RunConfig],
    prepare_again: Callable[[Mapping[str, Any]], PreparedRun[RunConfig]],
) -> PreparedRun[RunConfig]:
    """Return the run with the agent options of its fine-tuned models' training episodes.

    Options chosen by the user are kept.

    Args:
        prepared: The run without these options.
        prepare_again: Prepares the run with other settings.
    """
    training_options = _find_training_options(prepared)
    if not training_options:
        return prepared
    adopted = {
        name: value
        for name, value in next(iter(training_options.values())).items()
        if prepared.sources[name] == _DEFAULT
        and all(options.get(name) == value for options in training_options.values())
        and getattr(prepared.config.agent, name) != value
    }
    warnings = []
    if adopted:
        models = ", ".join(training_options)
        prepared = prepare_again(adopted)
        sources = {**prepared.sources, **dict.fromkeys(adopted, f"the teaching of {models}")}
        prepared = replace(prepared, sources=sources)
        option_names = " and ".join(_OPTION_NAMES[name] for name in adopted)
        warnings.append(
            f"{models} was fine-tuned with {_format_options(adopted)}, so this run uses the "
            f"same; {option_names} overrides this"
        )
    warnings += _warn_mismatches(prepared, training_options)
    return replace(prepared, warnings=(*prepared.warnings, *warnings))


def _find_training_options(prepared: PreparedRun[RunConfig]) -> TrainingOptions:
    models = dict.fromkeys(
        arm.model for arm in prepared.arms if arm.model is not None and arm.agent is None
    )
    tuned = [name for name in models if is_tuned(name)]
    if not tuned:
        return {}
    from assay.store.finetune_jobs import PLAYED

    options_by_model = {
        job.result_model.casefold(): job.lineage.get(PLAYED) or {}
        for job in load_jobs(prepared.config.database)
        if job.result_model is not None
    }
    training_options = {}
    for model in tuned:
        played = options_by_model.get(model[model.casefold().index("ft:") :].casefold(), {})
        options = {name: played[name] for name in _OPTION_NAMES if played.get(name) is not None}
        if options:
            training_options[model] = options
    return training_options


def _warn_mismatches(
    prepared: PreparedRun[RunConfig], training_options: TrainingOptions
) -> Iterator[str]:
    for arm in prepared.arms:
        options = make_arm_options(prepared.config, arm)
        expected = training_options.get(arm.model or "", {})
        differing = {name: v for name, v in expected.items() if getattr(options, name) != v}
        if differing:
            actual = {name: getattr(options, name) for name in differing}
            yield (
                f"{arm.label} was fine-tuned with {_format_options(differing)}, and this run "
                f"uses {_format_options(actual)}: its training may have less effect"
            )


def _format_options(values: Mapping[str, Any]) -> str:
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
    own: UserObjects = NO_USER_OBJECTS,
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

    def prepare_with(values: Mapping[str, Any]) -> PreparedRun[RunConfig]:
        return prepare_run(
            RunConfig,
            lambda run_config: make_arms(
                run_config,
                load_agents(run_config, own.agents, load_agent),
                find_environment(run_config, own.environment),
            ),
            values,
            config,
            which=which,
            command=command,
            source=source,
            base=base,
        )

    prepared = prepare_with(settings)
    if which.resume is None and (
        corrected := _correct_names(prepared.config, model_map or {}, provider, own)
    ):
        settings = {**settings, "models": corrected}
        prepared = prepare_with(settings)
    if which.resume is None:
        prepared = apply_training_options(
            prepared, lambda taught: prepare_with({**settings, **taught})
        )
    run_config = prepared.config
    # An unusable user file is reported before anything is played.
    load_hook_classes(run_config)
    load_run_metrics(run_config)
    if run_config.forks:
        _check_forks(prepared, load_agent)
    if dry:
        return prepared
    check_service(run_config)
    model_settings = run_config.make_model_settings()
    pool = make_pool(
        model_settings, None if run_config.budget is None else Budget(run_config.budget)
    )
    notices: list[str] = []
    try:
        make_models(prepared, pool, own)
        prepared = record_addresses(prepared, _find_addresses(prepared, pool))
        check_reachable(pool, model_settings, notices.append)
    finally:
        pool.close()
    warnings = (*prepared.warnings, *notices, *_warn_training_worlds(run_config, own))
    return replace(prepared, warnings=warnings)


def _check_forks(prepared: PreparedRun[RunConfig], load_agent: AgentLoader) -> None:
    """Raise UsageError before any model call if a fork point cannot be reproduced exactly."""
    from assay.agents.builtin import make_builtin
    from assay.core.aio import run_in_own_loop
    from assay.episodes.forks import check_replay
    from assay.episodes.kind import EpisodeKind
    from assay.store.records import SessionRecord

    config = prepared.config
    local_config = replace(config, service_url=None)
    placeholder = make_builtin("builtin/noop")
    arm, *_ = prepared.arms
    kind = EpisodeKind(
        local_config,
        [arm],
        partial(load_episode_parts, own=NO_USER_OBJECTS, load_agent=load_agent),
        {arm.model or "": placeholder},
    )
    # The replay of a later turn includes all earlier states.
    latest: dict[str, int] = {}
    for number, point in enumerate(config.forks):
        number_of_latest = latest.setdefault(point.session, number)
        if point.turn > config.forks[number_of_latest].turn:
            latest[point.session] = number
    group, *_ = kind.plan(prepared.record).groups

    async def check_all() -> None:
        try:
            for number in latest.values():
                trial = group.make(number * config.replicates)
                session = kind.header(trial)
                assert isinstance(session, SessionRecord), "a fork has a beginning"
                await check_replay(session, partial(kind.attempt, trial))
        finally:
            await kind.close()

    run_in_own_loop(check_all)


def _warn_training_worlds(config: RunConfig, own: UserObjects) -> list[str]:
    """Return warnings about training data that was made from the worlds of a run."""
    from assay.store.finetune_jobs import find_training_worlds
    from assay.store.store import Store

    if not config.database.exists():
        return []
    environment = find_environment(config, own.environment)
    tasks = [f"{TASK}{name}" for name in config.difficulty_names]
    worlds = [
        (environment.name if environment is not None else tasks[task], seed)
        for task, seed in config.worlds
    ]
    try:
        # This is only a warning, so it does not wait long for a locked database.
        with Store(config.database, patience=0.5).reading() as connection:
            training_data = find_training_worlds(connection, worlds)
    except (StoreError, UsageError):
        return []
    return [
        f"this run plays {description}; a model trained on them has seen these worlds"
        for description in training_data
    ]


def _correct_names(
    config: RunConfig, model_map: Mapping[str, str], provider: str | None, own: UserObjects
) -> list[str] | None:
    """Return the corrected model names; None if they are unchanged."""
    unknown = next((name for name in model_map if name not in config.models), None)
    if unknown is not None:
        raise UsageError(unknown_name("model in --model-map", unknown, config.models))
    names = [model_map.get(name, name) for name in config.models]
    if provider is not None:
        names = [qualify_name(name, provider) for name in names]
    if config.openai_base_url is None:
        registry = load_registry_with_jobs(config.database, names)
        names = [
            name if name in own.models else registry.correct_case(name, also=BUILTIN_MODELS)
            for name in names
        ]
    return names if names != [*config.models] else None


def _find_addresses(prepared: PreparedRun[RunConfig], pool: ModelPool) -> dict[str, str]:
    """Return the address and remote name of each arm's model, by arm label."""
    addresses = {}
    for arm in prepared.arms:
        address = pool.addresses.get(arm.model or "")
        if arm.model is not None and address is not None:
            name = pool.entry(arm.model).remote_name
            addresses[arm.label] = strip_secrets(address[0]) + (
                "" if name == arm.model else f" as {name}"
            )
    return addresses

"""What a command means, settled and checked before anything starts or anything heavy loads."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from assay._util.names import unknown_name
from assay.agents import BUILTIN_MODELS
from assay.agents.chat_models import check_reachable, pool_of
from assay.agents.tuned import at_provider, registry_for
from assay.api._run_parts import (
    NOTHING_OWN,
    AgentLoader,
    OwnObjects,
    agents_of,
    check_service_answers,
    environment_of,
    episode_parts,
    hooks_of,
    metrics_of,
    run_models,
)
from assay.api._taught import as_taught
from assay.crafter.rules import TASK
from assay.errors import StoreError, UsageError
from assay.models import Budget, ModelPool
from assay.rollouts import RunConfig, arms_of
from assay.runs import PreparedRun, prepare_run
from assay.runs.addresses import with_addresses, without_secrets

__all__ = ["prepare"]


def prepare(
    settings: Mapping[str, Any],
    config: Path | None = None,
    *,
    command: str = "",
    run_id: str | None = None,
    resume: str | None = None,
    fresh: bool = False,
    allow_different: Collection[str] = (),
    dry: bool = False,
    model_map: Mapping[str, str] | None = None,
    provider: str | None = None,
    source: str = "command line",
    own: OwnObjects = NOTHING_OWN,
    base: Mapping[str, Any] | None = None,
    load_agent: AgentLoader,
) -> PreparedRun[RunConfig]:
    """Settle what a run would do, and check all that can be checked; starts nothing.

    Args:
        settings: What to choose, by the names of `RunConfig`.
        config: A configuration file; the settings count before it.
        command: The command line, for the record.
        run_id: The id of the run.
        resume: The id of an unfinished run to go on with.
        fresh: Start anew, whatever is unfinished.
        allow_different: What a resumed run may have otherwise than before: address, ledger.
        dry: Leave out what only a run needs: keys, addresses and the file of replies.
        model_map: Names of models to replace, each with the name that takes its place.
        provider: Who answers for fine-tuned models whose names do not tell.
        source: Who gives the settings, for errors and the record.
        own: Agents and models of a program.
        base: Settings of another run, as stored, that a new one has unless it says otherwise.
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
            command=command,
            run_id=run_id,
            resume=resume,
            fresh=fresh,
            allow_different=allow_different,
            source=source,
            base=base,
        )

    prepared = prepared_with(settings)
    if resume is None and (
        renamed := _renamed(prepared.config, model_map or {}, provider, own)
    ):
        settings = {**settings, "models": renamed}
        prepared = prepared_with(settings)
    if resume is None:
        prepared = as_taught(prepared, lambda taught: prepared_with({**settings, **taught}))
    chosen = prepared.config
    # A file of the user that cannot be used is found out before anything is played.
    hooks_of(chosen)
    metrics_of(chosen)
    if chosen.forks:
        _check_forks(prepared, load_agent)
    if dry:
        return prepared
    check_service_answers(chosen)
    pool = pool_of(chosen, None if chosen.budget is None else Budget(chosen.budget))
    started: list[str] = []
    try:
        run_models(prepared, pool, own)
        prepared = with_addresses(prepared, _asked_at(prepared, pool))
        check_reachable(pool, chosen, started.append)
    finally:
        pool.close()
    words = (*prepared.warnings, *started, *_known_worlds(chosen, own))
    return replace(prepared, warnings=words)


def _check_forks(prepared: PreparedRun[RunConfig], load_agent: AgentLoader) -> None:
    """Find out before anything is asked that every state can be made again, exactly."""
    from assay._util.loops import run_apart
    from assay.agents import make_builtin
    from assay.rollouts import EpisodeKind
    from assay.rollouts.forks import check_replays
    from assay.traces.records import SessionRecord

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
    # The state after a turn is on the way to those after later ones.
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
    """What the store knows of training data that was made of the worlds of a run."""
    from assay.experiments.trained_worlds import trained_worlds
    from assay.traces.store import Store

    if not config.database.exists():
        return []
    place = environment_of(config, own.environment)
    tasks = [f"{TASK}{name}" for name in config.difficulty_names]
    worlds = [
        (place.name if place is not None else tasks[task], seed) for task, seed in config.worlds
    ]
    try:
        # Somebody who writes to the store is not waited for: this is only a word of warning.
        with Store(config.database, patience=0.5).reading() as connection:
            found = trained_worlds(connection, worlds)
    except (StoreError, UsageError):
        return []
    return [f"this run plays {each}: a model trained on it knows them" for each in found]


def _renamed(
    config: RunConfig, model_map: Mapping[str, str], provider: str | None, own: OwnObjects
) -> list[str] | None:
    """The models as they are to be called; None if that is as they were named."""
    unknown = next((name for name in model_map if name not in config.models), None)
    if unknown is not None:
        raise UsageError(unknown_name("model in --model-map", unknown, config.models))
    names = [model_map.get(name, name) for name in config.models]
    if provider is not None:
        names = [at_provider(name, provider) for name in names]
    if config.openai_base_url is None:
        registry = registry_for(config.database, names)
        names = [
            name if name in own.models else registry.spelled(name, also=BUILTIN_MODELS)
            for name in names
        ]
    return names if names != [*config.models] else None


def _asked_at(prepared: PreparedRun[RunConfig], pool: ModelPool) -> dict[str, str]:
    """Where the model of each arm is asked, by the arm's label, and under which name."""
    found = {}
    for arm in prepared.arms:
        asked = pool.addresses.get(arm.model or "")
        if arm.model is not None and asked is not None:
            name = pool.entry(arm.model).remote_name
            found[arm.label] = without_secrets(asked[0]) + (
                "" if name == arm.model else f" as {name}"
            )
    return found

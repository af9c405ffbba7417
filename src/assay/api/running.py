"""Runs, played: here the parts of a run are picked and put together."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from assay._util.user_threads import contained
from assay.agents.chat_models import limit_record, pool_of
from assay.agents.own import own_agent
from assay.api._run_parts import (
    NOTHING_OWN,
    OwnObjects,
    answerers_of,
    episode_parts,
    metrics_of,
    run_models,
)
from assay.api.notebook import listeners
from assay.api.run_preparation import load_agent, prepare
from assay.api.run_reports import analysis_values
from assay.metrics import apply_metrics
from assay.models import Budget, load_registry
from assay.rollouts import EpisodeKind, RunConfig
from assay.rollouts.environments import own_environment
from assay.runs import (
    PreparedRun,
    RunResult,
    execute,
)
from assay.runs.addresses import store_addresses
from assay.runs.choosing import executor_of
from assay.runs.processes import pickled
from assay.runs.spending import begin_run
from assay.traces.store import Store
from assay.trials import Event, Retries, Stop, Troubles
from assay.types import ChatModel

__all__ = ["run", "run_prepared"]

_HANG_S = 30.0
"""Seconds that a worker may hang in native code, beyond what a decision may take."""


def run(
    *,
    models: Sequence[str | ChatModel] | str | None = None,
    agents: Mapping[str, Any] | Sequence[str] | None = None,
    environment: type | str | None = None,
    config: Path | str | None = None,
    run_id: str | None = None,
    resume: str | None = None,
    fresh: bool = False,
    allow_different: Collection[str] = (),
    listen: Callable[[Event], None] | None = None,
    notice: Callable[[str], None] | None = None,
    **settings: Any,
) -> RunResult:
    """Let models and agents play, record everything, and return what came of it.

    Settings have the names of `RunConfig`: episodes, max_turns, difficulty, seed, database
    and so on. Like the command, it resumes the latest unfinished run that has the same
    settings, unless `fresh` is given. In a notebook a line says how far it is.

    Args:
        models: Names of models, or objects that answer like `assay.types.ChatModel`.
        agents: Agents of your own, as a dictionary of functions or classes by name, or as
            a list such as `["mine.py:act"]`.
        environment: A class with `reset` and `step`, or a name such as
            `gymnasium:CartPole-v1`; Crafter unless given.
        config: A configuration file; what is given here counts before it.
        run_id: The id of the run.
        resume: The id of an unfinished run to go on with.
        fresh: Start anew, whatever is unfinished.
        allow_different: What a resumed run may have otherwise than before: address, ledger.
        listen: Who hears of progress, as events of `assay.trials`; in a notebook, without
            it, a line on standard error.
        notice: Who hears of everything else, in sentences; the same.
        **settings: What to choose; the rest has its default.
    """
    listen, notice = listeners(listen, notice)
    named = [models] if isinstance(models, str) else models
    objects = {model.name: model for model in named or () if not isinstance(model, str)}
    given = {}
    if isinstance(agents, Mapping):
        made = [own_agent(name, value) for name, value in agents.items()]
        given = {f"{agent.name}@{agent.sha[:12]}": agent for agent in made}
    settings["models"] = named and [
        model if isinstance(model, str) else model.name for model in named
    ]
    settings["agents"] = [*given] if given else agents
    place = None
    if isinstance(environment, type):
        place = own_environment(environment)
    settings["environment"] = place.spec if place else environment
    own = OwnObjects(given, objects, place)
    prepared = prepare(
        settings,
        None if config is None else Path(config),
        command="assay.run(...)",
        run_id=run_id,
        resume=resume,
        fresh=fresh,
        allow_different=allow_different,
        source="assay.run",
        own=own,
    )
    for warning in prepared.warnings:
        notice(warning)
    return run_prepared(prepared, listen=listen, notice=notice, own=own)


def run_prepared(
    prepared: PreparedRun[RunConfig],
    *,
    listen: Callable[[Event], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    stop: Stop | None = None,
    own: OwnObjects = NOTHING_OWN,
) -> RunResult:
    """Do what `prepare` settled."""
    config = prepared.config
    metrics = metrics_of(config)

    def measure(store: Store, experiment_ids: Sequence[str]) -> None:
        if metrics is not None:
            apply_metrics(store, experiment_ids, metrics, notice, limit_s=config.decision_limit)

    stop = stop or Stop()
    troubles = Troubles(listen)
    budget = None if config.budget is None else Budget(config.budget)
    pool = pool_of(config, budget, troubles)
    kind = EpisodeKind(
        config,
        prepared.arms,
        partial(
            episode_parts,
            own=OwnObjects(own.agents, {}, own.environment),
            load_agent=load_agent,
        ),
        run_models(prepared, pool, own),
    )
    # What cannot be sent is found out before anything is written.
    for agent in own.agents.values() if config.executor != "asyncio" else ():
        pickled(agent, f"agent {agent.name!r}")
    executor = executor_of(
        config,
        config.decision_limit + _HANG_S,
        notice,
        withheld=load_registry().key_variables,
    )
    try:
        with contained(notice):
            result = execute(
                prepared,
                kind,
                executor=executor,
                retries=Retries(seed=config.seed),
                measure=measure,
                analyse=analysis_values,
                limits_seen=lambda: map(limit_record, pool.history()),
                begin=partial(begin_run, prepared, budget, notice),
                on_stop=pool.leave,
                answerers=answerers_of(prepared, pool),
                listen=listen,
                notice=notice,
                stop=stop,
            )
        store_addresses(prepared)
        return replace(result, last_trouble=troubles.last)
    finally:
        pool.close()

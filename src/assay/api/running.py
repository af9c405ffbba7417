"""Runs: prepared, estimated, played. Here classes are picked and models made by name."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay._util.descriptors import connections_allowed
from assay._util.loops import run_apart
from assay._util.names import unknown_name
from assay._util.user_threads import contained
from assay.agents import BUILTIN_MODELS, make_builtin
from assay.agents.own import OwnAgent, load_agent, own_agent
from assay.errors import ServiceError, UsageError
from assay.metrics import (
    DEFAULT_HOOKS,
    Hook,
    MetricSet,
    apply_metrics,
    gather_hooks,
    load_metrics,
)
from assay.metrics.tally import OUTCOMES
from assay.models import (
    Budget,
    CallRetries,
    ModelPool,
    PaceChange,
    Price,
    load_registry,
)
from assay.models.reach import REFUSED_KEY, SILENT, why_unreachable
from assay.rollouts import EpisodeKind, EpisodeParts, RunConfig, arms_of
from assay.rollouts.environments import (
    OwnEnvironment,
    load_environment,
    own_environment,
)
from assay.rollouts.estimate import Asker, Quote, RunEstimate, estimate_run
from assay.rollouts.sample import play_sample
from assay.runs import (
    Arm,
    InProcess,
    PreparedRun,
    Processes,
    RunResult,
    TrialExecutor,
    execute,
    prepare_run,
)
from assay.runs.addresses import store_addresses, with_addresses, without_secrets
from assay.runs.processes import pickled
from assay.runs.remaining import remaining
from assay.runs.spending import resume_budget, spent_so_far
from assay.service.client import HttpClient, LocalClient, WorldClient
from assay.service.worlds import Worlds
from assay.stats import Interval, t_interval
from assay.traces.folder import RunFolder
from assay.traces.records import LimitRecord
from assay.traces.store import Store
from assay.trials import Event, Retries, Stop
from assay.types import ChatModel, TrialState

if TYPE_CHECKING:
    from assay.report import Document, ModelSummary

__all__ = [
    "chat_model",
    "config_template",
    "estimate",
    "prepare",
    "run",
    "run_prepared",
    "run_report",
]

_OPENAI = "https://api.openai.com/v1"
_MOST_CONNECTIONS = 10_000
_SAID_EVERY_S = 10.0
_FOR_EVER = 1e9
"""Seconds."""
_HANG_S = 30.0
"""Seconds that a worker may hang in native code, beyond what a decision may take."""
_PATIENCE = 5.0
"""Seconds that who asks for an estimate waits for the database."""


class OwnObjects(NamedTuple):
    """What a program hands over that has no name in a file: agents and models of its own."""

    agents: Mapping[str, OwnAgent] = {}
    """By the words that stand for them in the configuration."""
    models: Mapping[str, ChatModel] = {}
    """By their names."""
    environment: OwnEnvironment | None = None


_NOTHING_OWN = OwnObjects()


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
    source: str = "command line",
    own: OwnObjects = _NOTHING_OWN,
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
        source: Who gives the settings, for errors and the record.
        own: Agents and models of a program.
    """

    def prepared_with(given: Mapping[str, Any]) -> PreparedRun[RunConfig]:
        return prepare_run(
            RunConfig,
            lambda chosen: arms_of(
                chosen, _agents(chosen, own.agents), _environment(chosen, own.environment)
            ),
            given,
            config,
            command=command,
            run_id=run_id,
            resume=resume,
            fresh=fresh,
            allow_different=allow_different,
            source=source,
        )

    prepared = prepared_with(settings)
    if resume is None and (renamed := _renamed(prepared.config, model_map or {}, own)):
        prepared = prepared_with({**settings, "models": renamed})
    chosen = prepared.config
    # A file of the user that cannot be used is found out before anything is played.
    _hooks(chosen)
    _metrics(chosen)
    if dry:
        return prepared
    pool = _pool(chosen, None if chosen.budget is None else Budget(chosen.budget))
    try:
        _models(prepared, pool, own)
        prepared = with_addresses(prepared, _asked_at(prepared, pool))
        _check_reachable(pool, chosen)
    finally:
        pool.close()
    return prepared


def _renamed(
    config: RunConfig, model_map: Mapping[str, str], own: OwnObjects
) -> list[str] | None:
    """The models as they are to be called; None if that is as they were named."""
    unknown = next((name for name in model_map if name not in config.models), None)
    if unknown is not None:
        raise UsageError(unknown_name("model in --model-map", unknown, config.models))
    names = [model_map.get(name, name) for name in config.models]
    if config.openai_base_url is None:
        registry = load_registry()
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
    listen: Callable[[Event], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> RunResult:
    """Let models and agents play, record everything, and return what came of it.

    Settings have the names of `RunConfig`: episodes, max_turns, difficulty, seed, database
    and so on. Like the command, it resumes the latest unfinished run that has the same
    settings, unless `fresh` is given.

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
        listen: Who hears of progress, as events of `assay.trials`.
        notice: Who hears of everything else, in sentences.
        **settings: What to choose; the rest has its default.
    """
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
    own: OwnObjects = _NOTHING_OWN,
) -> RunResult:
    """Do what `prepare` settled."""
    config = prepared.config
    if config.service_url is not None:
        run_apart(lambda: _check_service(config.service_url or "", config.service_timeout))
    metrics = _metrics(config)

    def measure(store: Store, experiment_ids: Sequence[str]) -> None:
        if metrics is not None:
            apply_metrics(store, experiment_ids, metrics, notice, limit_s=config.decision_limit)

    stop = stop or Stop()
    troubles = _Troubles(notice)
    budget = None if config.budget is None else Budget(config.budget)
    pool = _pool(config, budget, troubles)
    kind = EpisodeKind(
        config,
        prepared.arms,
        partial(_parts, own=OwnObjects(own.agents, {}, own.environment)),
        _models(prepared, pool, own),
    )
    executor = _executor(config, kind, own, notice)
    try:
        with contained(notice):
            result = execute(
                prepared,
                kind,
                executor=executor,
                retries=Retries(seed=config.seed),
                measure=measure,
                analyse=_analysis,
                limits_seen=lambda: map(_limit, pool.history()),
                begin=partial(_begin, prepared, budget, notice),
                on_stop=pool.leave,
                listen=listen,
                notice=notice,
                stop=stop,
            )
        store_addresses(prepared)
        return replace(result, last_trouble=troubles.last)
    finally:
        pool.close()


def _analysis(result: RunResult) -> dict[str, Any]:
    decisions = [decision.as_json() for decision in result.decisions]
    return {**run_report(result).values(), "decisions": decisions}


def _executor(
    config: RunConfig, kind: EpisodeKind, own: OwnObjects, notice: Callable[[str], None]
) -> TrialExecutor:
    if config.executor == "asyncio":
        return InProcess()
    # What cannot be sent is found out before anything is written.
    for agent in own.agents.values():
        pickled(agent, f"agent {agent.name!r}")
    providers = load_registry().providers.values()
    return Processes(
        config.workers,
        withheld={
            "OPENAI_API_KEY",
            *(one.key_variable for one in providers if one.key_variable),
        },
        hang_s=config.decision_limit + _HANG_S,
        notice=notice,
    )


class _Troubles:
    """Says why calls are asked again: the first time, and then every few seconds."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        self.last: str | None = None
        self._notice, self._said_at = notice, float("-inf")

    def __call__(self, reason: str, attempts: int, wait: float) -> None:
        self.last = reason
        now = time.monotonic()
        if now - self._said_at >= _SAID_EVERY_S:
            self._said_at = now
            self._notice(f"{reason}; tried {attempts} times, again in {wait:.1f} s")


def _check_reachable(pool: ModelPool, config: RunConfig) -> None:
    """Find out before the first episode which models cannot be asked; no call is made."""
    places = pool.addresses
    if config.cache is not None or not places:
        return  # what a file of replies has needs nobody
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


def _parts(config: RunConfig, *, own: OwnObjects) -> EpisodeParts:
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
        hooks=_hooks(config),
        agents=_agents(config, own.agents),
        environment=_environment(config, own.environment),
    )


def _environment(config: RunConfig, given: OwnEnvironment | None) -> OwnEnvironment | None:
    if config.environment is None or given is not None:
        return given
    return load_environment(config.environment)


def _agents(config: RunConfig, given: Mapping[str, OwnAgent]) -> dict[str, OwnAgent]:
    specs = (*config.agents, *(arm.agent for arm in config.arms if arm.agent))
    return {spec: given.get(spec) or load_agent(spec) for spec in dict.fromkeys(specs)}


def _models(
    prepared: PreparedRun[RunConfig], pool: ModelPool, own: OwnObjects
) -> dict[str, ChatModel]:
    names = dict.fromkeys(arm.model for arm in prepared.arms if arm.model is not None)
    return {name: own.models.get(name) or _model(name, prepared.config, pool) for name in names}


def run_report(result: RunResult) -> "Document":
    """What `assay run` prints of a run: tables, rankings, notes; `values()` is data."""
    from assay.judge import rank_models
    from assay.report import run_document, summarize

    summaries = [
        _with_open(summary, result) for summary in summarize(result.episodes, result.started)
    ]
    # Where looks decided, a test that ignores them would say another thing.
    rankings = () if result.decisions else rank_models(result.episodes)
    return run_document(summaries, result.run_id, rankings, _own_outcomes(result))


def _with_open(summary: "ModelSummary", result: RunResult) -> "ModelSummary":
    """A summary whose totals count what open episodes have cost, too."""
    spent = result.open_spending.get(summary.model)
    if spent is None:
        return summary
    dollars = None
    if spent.dollars is not None and summary.cost_spent is not None:
        dollars = summary.cost_spent + spent.dollars
    tokens = summary.tokens_spent + spent.tokens
    return replace(summary, tokens_spent=tokens, cost_spent=dollars)


def _own_outcomes(result: RunResult) -> dict[str, dict[str, Interval]]:
    """Means of what a metric or an environment of the user's own declares, by arm and name."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in result.episodes:
        for name, value in result.outcomes.get(row.session_id, {}).items():
            if name not in OUTCOMES and row.state is TrialState.RESULT:
                values.setdefault(row.model, {}).setdefault(name, []).append(value)
    return {
        arm: {name: t_interval(earned) for name, earned in own.items()}
        for arm, own in values.items()
    }


def estimate(prepared: PreparedRun[RunConfig]) -> RunEstimate:
    """What a prepared run would take; needs no key and no network, and writes nothing.

    Raises:
        ModelRejected: There is no such model, or it is gone.
    """
    config = prepared.config
    pool = _pool(replace(config, cache=None))
    kind = EpisodeKind(config, prepared.arms, partial(_parts, own=_NOTHING_OWN), {})
    return estimate_run(
        config,
        [_quote(arm, config, pool) for arm in prepared.arms],
        play_sample(config, _environment(config, None)),
        remaining(prepared, kind.plan(prepared.record), config.max_turns),
        spent=spent_so_far(
            prepared, patience=_PATIENCE, allow_different=prepared.allow_different
        ),
    )


def config_template() -> str:
    """The text of a configuration file with every key, its default and what it may be."""
    from assay.rollouts.template import run_template

    return run_template()


def chat_model(name: str) -> ChatModel:
    """A model by its name, built in or of a provider; close it after use.

    Raises:
        UsageError: Nobody answers at its address.
    """
    config = RunConfig()
    pool = _pool(config)
    model = _model(name, config, pool)
    _check_reachable(pool, config)
    return model


def _model(name: str, config: RunConfig, pool: ModelPool) -> ChatModel:
    return make_builtin(name) if _is_played_here(name, config) else pool.make(name)


def _is_played_here(name: str, config: RunConfig) -> bool:
    # An address of the user's own answers under any name; that of OpenAI is nobody's own.
    elsewhere = config.openai_base_url not in (None, _OPENAI)
    return name in BUILTIN_MODELS and (not elsewhere or name in config.baselines_beside)


def _quote(arm: Arm, config: RunConfig, pool: ModelPool) -> Quote:
    name, asked_by = arm.model, Asker.OURS
    if arm.agent is not None:
        asked_by = Asker.NOBODY if name is None else Asker.OWN
    if name is None or _is_played_here(name, config):
        free = Price(input=0.0, output=0.0)
        return Quote(
            model=arm.label, provider="builtin", in_process=True, price=free, asked_by=asked_by
        )
    entry = pool.entry(name, retired=True)
    price = pool.price(entry)
    missing = pool.missing(entry)
    if price is None and config.budget is not None:
        missing += (f"the budget needs a price of {name!r}; give --price IN/OUT",)
    return Quote(
        model=arm.label,
        provider=entry.provider.name,
        price=price,
        per_minute=entry.requests_per_minute,
        missing=missing,
        asked_by=asked_by,
    )


def _pool(
    config: RunConfig,
    budget: Budget | None = None,
    on_fault: Callable[[str, int, float], None] = lambda *_: None,
) -> ModelPool:
    return ModelPool(
        load_registry(),
        also=BUILTIN_MODELS,
        base_url=config.openai_base_url,
        key=config.openai_api_key,
        budget=budget,
        price=_price(config.price),
        max_connections=config.max_connections,
        connections=min(_MOST_CONNECTIONS, connections_allowed()),
        cache=config.cache,
        retries=CallRetries(patience=config.call_patience),
        seed=config.seed,
        on_fault=on_fault,
    )


def _begin(
    prepared: PreparedRun[RunConfig],
    budget: Budget | None,
    notice: Callable[[str], None],
    folder: RunFolder,
) -> None:
    """Keep who answers from now on, and count what earlier attempts have spent."""
    if folder.record != prepared.record:
        folder.rewrite(prepared.record, has_ledger=folder.has_ledger)
    if budget is None:
        return
    balance = resume_budget(prepared, folder, budget, prepared.allow_different)
    if balance.open:
        notice(
            f"{len(balance.open)} calls were under way when the run was last left and may be "
            f"billed: they count with ${balance.open_usd:.4f}, the most they can have cost"
        )


def _price(text: str | None) -> Price | None:
    if text is None:
        return None
    numbers = [float(part) for part in text.split("/")]
    return Price(
        input=numbers[0],
        cached=numbers[1] if len(numbers) == 3 else None,
        output=numbers[-1],
    )


def _limit(line: tuple[str, PaceChange]) -> LimitRecord:
    provider, change = line
    return LimitRecord(
        provider=provider,
        at=change.at,
        connections=change.limit,
        per_second=change.rate,
        pause_s=change.pause_s,
        reason=change.reason,
    )


def _worlds(config: RunConfig) -> WorldClient:
    if config.service_url is not None:
        return HttpClient(config.service_url, timeout=config.service_timeout)
    # Ours alone: as many as may be open, and none is ever forgotten.
    worlds = Worlds(
        seed=config.seed,
        max_instances=config.max_concurrent_episodes,
        idle_timeout=_FOR_EVER,
    )
    return LocalClient(worlds)


async def _check_service(url: str, timeout: float) -> None:
    """Find out before the first episode that nobody answers there."""
    async with HttpClient(url, timeout=timeout) as client:
        try:
            await client.health()
        except ServiceError as error:
            raise UsageError(str(error)) from error


def _metrics(config: RunConfig) -> MetricSet | None:
    return None if config.metrics_from is None else load_metrics(config.metrics_from)


def _hooks(config: RunConfig) -> tuple[type[Hook], ...]:
    found: dict[type[Hook], None] = {}
    places: tuple[Path | None, ...] = config.hooks
    if config.environment is None:
        # Those that come with assay and with packages know Crafter.
        found, places = dict.fromkeys(DEFAULT_HOOKS), (None, *config.hooks)
    for path in places:
        found |= dict.fromkeys(gather_hooks(path).classes)
    return tuple(found)

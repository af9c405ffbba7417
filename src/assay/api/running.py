"""Runs: prepared, estimated, played. Here classes are picked and models made by name."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay._util.loops import run_apart
from assay.agents import BUILTIN_MODELS, make_builtin
from assay.errors import ServiceError, UsageError
from assay.metrics import DEFAULT_HOOKS, Hook, MetricSet, gather_hooks, load_metrics
from assay.models import Budget, ModelPool, PaceChange, Price, load_registry
from assay.rollouts import PreparedRun, RunConfig, RunResult, execute, prepare_run
from assay.rollouts.estimate import Quote, RunEstimate, estimate_run
from assay.rollouts.remaining import remaining
from assay.rollouts.sample import play_sample
from assay.rollouts.spending import spent_so_far
from assay.service.client import HttpClient, LocalClient, WorldClient
from assay.service.worlds import Worlds
from assay.traces.folder import RunFolder, journal_root
from assay.traces.records import LimitRecord
from assay.trials import Event, Retries, Stop
from assay.types import ChatModel

__all__ = ["chat_model", "config_template", "estimate", "prepare", "run", "run_prepared"]

_OPENAI = "https://api.openai.com/v1"
_FOR_EVER = 1e9
"""Seconds."""
_PATIENCE = 5.0
"""Seconds that who asks for an estimate waits for the database."""


def prepare(
    settings: Mapping[str, Any],
    config: Path | None = None,
    *,
    command: str = "",
    run_id: str | None = None,
    resume: str | None = None,
    fresh: bool = False,
    dry: bool = False,
    giver: str = "command line",
) -> PreparedRun:
    """Settle what a run would do, and check all that can be checked; starts nothing.

    Args:
        settings: What to choose, by the names of `RunConfig`.
        config: A configuration file; the settings count before it.
        command: The command line, for the record.
        run_id: The id of the run.
        resume: The id of an unfinished run to go on with.
        fresh: Start anew, whatever is unfinished.
        dry: Leave out what only a run needs: keys, addresses and the file of replies.
        giver: Who gives the settings, for errors and the record.
    """
    prepared = prepare_run(
        settings,
        config,
        command=command,
        run_id=run_id,
        resume=resume,
        fresh=fresh,
        source=giver,
    )
    chosen = prepared.config
    # A file of the user that cannot be used is found out before anything is played.
    _hooks(chosen)
    _metrics(chosen)
    if dry:
        return prepared
    pool = _pool(chosen, None if chosen.budget is None else Budget(chosen.budget))
    try:
        for experiment in prepared.record.experiments:
            _model(experiment.model, chosen, pool)
    finally:
        pool.close()
    return prepared


def run(
    *,
    config: Path | str | None = None,
    run_id: str | None = None,
    resume: str | None = None,
    fresh: bool = False,
    listen: Callable[[Event], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> RunResult:
    """Let models play, record everything, and return what came of it.

    Settings have the names of `RunConfig`: models, episodes, max_turns, difficulty, seed,
    database and so on. Like the command, it resumes the latest unfinished run that has
    the same settings, unless `fresh` is given.

    Args:
        config: A configuration file; what is given here counts before it.
        run_id: The id of the run.
        resume: The id of an unfinished run to go on with.
        fresh: Start anew, whatever is unfinished.
        listen: Who hears of progress, as events of `assay.trials`.
        notice: Who hears of everything else, in sentences.
        **settings: What to choose; the rest has its default.
    """
    prepared = prepare(
        settings,
        None if config is None else Path(config),
        command="assay.run(...)",
        run_id=run_id,
        resume=resume,
        fresh=fresh,
        giver="assay.run",
    )
    for warning in prepared.warnings:
        notice(warning)
    return run_prepared(prepared, listen=listen, notice=notice)


def run_prepared(
    prepared: PreparedRun,
    *,
    listen: Callable[[Event], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
    stop: Stop | None = None,
) -> RunResult:
    """Do what `prepare` settled."""
    config = prepared.config
    if config.service_url is not None:
        run_apart(lambda: _check_service(config.service_url or "", config.service_timeout))
    pool = _pool(config, _budget(prepared))
    try:
        return execute(
            prepared,
            models={
                one.model: _model(one.model, config, pool)
                for one in prepared.record.experiments
            },
            make_worlds=lambda: _worlds(config),
            hooks=_hooks(config),
            metrics=_metrics(config),
            retries=Retries(seed=config.seed),
            limits_seen=lambda: map(_limit, pool.history()),
            listen=listen,
            notice=notice,
            stop=stop,
        )
    finally:
        pool.close()


def estimate(prepared: PreparedRun) -> RunEstimate:
    """What a prepared run would take; needs no key and no network, and writes nothing.

    Raises:
        ModelRejected: There is no such model, or it is gone.
    """
    config = prepared.config
    pool = _pool(replace(config, cache=None))
    quotes = [_quote(one.model, config, pool) for one in prepared.record.experiments]
    return estimate_run(
        config,
        quotes,
        play_sample(config),
        remaining(prepared),
        spent=spent_so_far(prepared, patience=_PATIENCE),
    )


def config_template() -> str:
    """The text of a configuration file with every key, its default and what it may be."""
    from assay.rollouts.template import run_template

    return run_template()


def chat_model(name: str) -> ChatModel:
    """A model by its name, built in or of a provider; close it after use."""
    config = RunConfig()
    return _model(name, config, _pool(config))


def _model(name: str, config: RunConfig, pool: ModelPool) -> ChatModel:
    return make_builtin(name) if _is_played_here(name, config) else pool.make(name)


def _is_played_here(name: str, config: RunConfig) -> bool:
    # An address of the user's own answers under any name; that of OpenAI is nobody's own.
    elsewhere = config.openai_base_url not in (None, _OPENAI)
    return name in BUILTIN_MODELS and (not elsewhere or name in config.extra_baselines)


def _quote(name: str, config: RunConfig, pool: ModelPool) -> Quote:
    if _is_played_here(name, config):
        free = Price(input=0.0, output=0.0)
        return Quote(model=name, provider="builtin", in_process=True, price=free)
    entry = pool.entry(name)
    price = pool.price(entry)
    missing = pool.missing(entry)
    if price is None and config.budget is not None:
        missing += (f"the budget needs a price of {name!r}; give --price IN/OUT",)
    return Quote(
        model=name,
        provider=entry.provider.name,
        price=price,
        per_minute=entry.requests_per_minute,
        missing=missing,
    )


def _pool(config: RunConfig, budget: Budget | None = None) -> ModelPool:
    return ModelPool(
        load_registry(),
        also=BUILTIN_MODELS,
        base_url=config.openai_base_url,
        key=config.openai_api_key,
        budget=budget,
        price=_price(config.price),
        max_connections=config.max_connections,
        cache=config.cache,
        seed=config.seed,
    )


def _budget(prepared: PreparedRun) -> Budget | None:
    config, record = prepared.config, prepared.record
    if config.budget is None:
        return None
    folder = RunFolder(journal_root(config.database) / record.id, record)
    return Budget(config.budget, spent_so_far(prepared), on_loss=folder.add_loss)


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
    found: dict[type[Hook], None] = dict.fromkeys(DEFAULT_HOOKS)
    for path in (None, *config.hooks):
        found |= dict.fromkeys(gather_hooks(path).classes)
    return tuple(found)

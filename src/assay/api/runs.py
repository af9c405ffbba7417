"""Runs of episodes: execution, forks, estimates, reports, and the configuration template.

This module chooses the parts of a run and puts them together. A fork continues stored episodes
from chosen turns, several times each.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.agents.chat_models import is_builtin, make_pool
from assay.agents.user_agents import wrap_agent
from assay.api.notebook import make_observer
from assay.api.run_preparation import load_agent, prepare
from assay.core.options import takes_options
from assay.core.settings import Counts
from assay.core.user_code import contain_user_code
from assay.episodes.config import SETTINGS, ForkPoint, RunConfig
from assay.episodes.environments import wrap_environment
from assay.episodes.estimate import CallerKind, Quote, RunEstimate, estimate_run, play_sample
from assay.episodes.kind import EpisodeKind
from assay.episodes.prepare import (
    NO_USER_OBJECTS,
    UserObjects,
    find_environment,
    load_episode_parts,
    load_run_metrics,
    make_models,
)
from assay.errors import UsageError
from assay.judge.outcomes import OUTCOMES
from assay.models.budget import Budget
from assay.models.pool import ModelPool
from assay.models.registry import Price
from assay.runs.control import Retries, Stop
from assay.runs.events import SILENT, Event, RetryLog, RunObserver
from assay.runs.executor_choice import make_executor
from assay.runs.kind import Arm, PreparedRun
from assay.runs.options import WhichRun
from assay.runs.prepare import count_remaining
from assay.runs.resume import store_addresses
from assay.runs.run import RunResult, execute_run
from assay.runs.spending import compute_spending
from assay.runs.workers.pool import pickle_for_worker
from assay.stats.intervals import Interval, t_interval
from assay.store.opening import store_at
from assay.store.store import Store
from assay.types import ChatModel, TrialState

if TYPE_CHECKING:
    from assay.report.document import Document
    from assay.report.run_summary import ModelSummary
    from assay.store.records import Trace


def run_report(result: RunResult) -> "Document":
    """Return the report that `assay run` prints; its `values()` are plain data."""
    from assay.report.run import run_document
    from assay.report.run_summary import rank_models, summarize

    summaries = [
        _add_open_spending(summary, result)
        for summary in summarize(result.episodes, result.started)
    ]
    # Rankings ignore the interim analyses, and could contradict their decisions.
    rankings = () if result.decisions else rank_models(result.episodes)
    return run_document(summaries, result.run_id, rankings, _compute_user_outcomes(result))


def _add_open_spending(summary: "ModelSummary", result: RunResult) -> "ModelSummary":
    """Add the spending of open episodes to the totals of a summary."""
    spent = result.open_spending.get(summary.model)
    if spent is None:
        return summary
    dollars = None
    if spent.dollars is not None and summary.cost_spent is not None:
        dollars = summary.cost_spent + spent.dollars
    tokens = summary.tokens_spent + spent.tokens
    return replace(summary, tokens_spent=tokens, cost_spent=dollars)


def _compute_user_outcomes(result: RunResult) -> dict[str, dict[str, Interval]]:
    """Return the means of user-defined outcomes, by arm and name."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in result.episodes:
        for name, value in result.outcomes.get(row.session_id, {}).items():
            if name not in OUTCOMES and row.state is TrialState.RESULT:
                values.setdefault(row.model, {}).setdefault(name, []).append(value)
    return {
        arm: {name: t_interval(samples) for name, samples in outcomes.items()}
        for arm, outcomes in values.items()
    }


def aggregate_episodes(result: RunResult) -> dict[str, Any]:
    """Return the aggregates of all episodes for the results file."""
    decisions = [decision.as_json() for decision in result.decisions]
    return {**run_report(result).values(), "decisions": decisions}


_HANG_S = 30.0
"""Seconds that a worker may hang in native code, in addition to the decision limit."""


@takes_options
def run(
    *,
    models: Sequence[str | ChatModel] | str | None = None,
    agents: Mapping[str, Any] | Sequence[str] | None = None,
    environment: type | str | None = None,
    config: Path | str | None = None,
    which: WhichRun,
    listen: Callable[[Event], None] | None = None,
    notice: Callable[[str], None] | None = None,
    **settings: Any,
) -> RunResult:
    """Run models and agents, record everything, and return the result.

    Settings have the names of `RunConfig`: episodes, max_turns, difficulty, seed, database
    and so on. Like the command, this resumes the latest unfinished run with the same settings,
    unless `fresh` is given. In a notebook, a line shows the progress.

    Args:
        models: Names of models, or objects with the interface of `assay.types.ChatModel`.
        agents: User-defined agents: a dictionary of functions or classes by name, or a list
            such as `["mine.py:act"]`.
        environment: Class with `reset` and `step`, or a name such as `gymnasium:CartPole-v1`;
            default: Crafter.
        config: Configuration file; arguments override it.
        which: Options that choose between a new run and an unfinished one.
        listen: Callback for events of `assay.runs`; default in a notebook: a line on stderr.
        notice: Callback for messages; default in a notebook: stderr.
        **settings: Values by the names of `RunConfig`.
    """
    observer = make_observer(listen, notice)
    given_models = [models] if isinstance(models, str) else models
    objects = {model.name: model for model in given_models or () if not isinstance(model, str)}
    agents_by_name = {}
    if isinstance(agents, Mapping):
        user_agents = [wrap_agent(name, value) for name, value in agents.items()]
        agents_by_name = {f"{agent.name}@{agent.sha[:12]}": agent for agent in user_agents}
    settings["models"] = given_models and [
        model if isinstance(model, str) else model.name for model in given_models
    ]
    settings["agents"] = [*agents_by_name] if agents_by_name else agents
    user_environment = None
    if isinstance(environment, type):
        user_environment = wrap_environment(environment)
    settings["environment"] = user_environment.spec if user_environment else environment
    own = UserObjects(agents_by_name, objects, user_environment)
    prepared = prepare(
        settings,
        None if config is None else Path(config),
        command="assay.run(...)",
        which=which,
        source="assay.run",
        own=own,
    )
    for warning in prepared.warnings:
        observer.on_message(warning)
    return run_prepared(prepared, observer=observer, own=own)


def run_prepared(
    prepared: PreparedRun[RunConfig],
    *,
    observer: RunObserver = SILENT,
    stop: Stop | None = None,
    own: UserObjects = NO_USER_OBJECTS,
) -> RunResult:
    """Execute a run that was returned by `prepare`."""
    config = prepared.config
    retries = RetryLog(observer)
    budget = None if config.budget is None else Budget(config.budget)
    pool = make_pool(config.make_model_settings(), budget, retries)
    kind = EpisodeKind(
        config,
        prepared.arms,
        partial(
            load_episode_parts,
            own=UserObjects(own.agents, {}, own.environment),
            load_agent=load_agent,
        ),
        make_models(prepared, pool, own),
        metrics=load_run_metrics(config),
        analyse=aggregate_episodes,
    )
    # Agents that cannot be pickled are reported before anything is written.
    for agent in own.agents.values() if config.executor != "asyncio" else ():
        pickle_for_worker(agent, f"agent {agent.name!r}")
    executor = make_executor(prepared.settings, config.decision_limit + _HANG_S)
    try:
        with contain_user_code(observer.on_message):
            result = execute_run(
                prepared,
                kind,
                executor=executor,
                retries=Retries(seed=config.seed),
                pool=pool,
                observer=observer,
                stop=stop,
            )
        store_addresses(prepared)
        return replace(result, last_trouble=retries.last)
    finally:
        pool.close()


At = int | str | Sequence[int | str]
_AT = re.compile(r"(?P<turn>\d{1,9})|(?P<share>\d{1,3}(?:\.\d+)?)%|\+(?P<later>\d{1,9})")
_LOCAL_SETTINGS = frozenset(
    {"environment", "environment_hash", "openai_base_url", "decision_limit"}
)
"""Settings of a version that do not change the requests of an episode."""


@takes_options
def fork(
    *sessions: str,
    models: Sequence[str | ChatModel] | str,
    at: At,
    futures: int = 4,
    which: WhichRun,
    listen: "Callable[[Event], None] | None" = None,
    notice: Callable[[str], None] | None = None,
    **settings: Any,
) -> RunResult:
    """Continue stored Crafter episodes from chosen turns, as a new run.

    World and conversation are restored as they were after the turn, and checked against the
    trace. From there models play, up to the limits of the whole episode. Copied turns cost
    nothing. Like `assay.run`, this resumes the latest unfinished run with the same settings.

    Args:
        *sessions: Sessions, experiments or runs; `best`, `worst` and `latest` refer to the
            latest run that is not a fork.
        models: Models that continue the episodes.
        at: Turns after which to continue, one or several: 10, "50%" of the turns of an
            episode, or "+1" for one turn after the point where a session was itself forked.
        futures: Number of continuations per model and state.
        which: Options that choose between a new run and an unfinished one.
        listen: Callback for events of `assay.runs`.
        notice: Callback for messages.
        **settings: Other settings of `RunConfig`, such as temperature, budget and database.
    """
    observer = make_observer(listen, notice)
    given_models = [models] if isinstance(models, str) else models
    own = UserObjects(
        {}, {model.name: model for model in given_models if not isinstance(model, str)}
    )
    settings["models"] = [
        model if isinstance(model, str) else model.name for model in given_models
    ]
    prepared = prepare_fork(
        sessions,
        at,
        futures,
        settings,
        command="assay.fork(...)",
        which=which,
        source="assay.fork",
        own=own,
    )
    for warning in prepared.warnings:
        observer.on_message(warning)
    return run_prepared(prepared, observer=observer, own=own)


@takes_options
def prepare_fork(
    sessions: Sequence[str],
    at: At | None,
    futures: int,
    settings: Mapping[str, Any],
    *,
    which: WhichRun,
    **preparation: Any,
) -> PreparedRun[RunConfig]:
    """Prepare a fork, and check that its states can be reproduced.

    Args:
        sessions: Sessions, experiments or runs.
        at: Turns after which to continue.
        futures: Number of continuations per model and state.
        settings: Other settings, by the names of `RunConfig`.
        which: Options that choose between a new run and an unfinished one.
        **preparation: Other arguments of `prepare`.
    """
    if which.resume is not None:
        return prepare(settings, which=which, **preparation)
    if not sessions:
        raise UsageError(
            "give the episodes to fork: best, worst, or ids; 'assay traces list' shows them"
        )
    if at is None:
        raise UsageError("--at is missing; give turns, such as --at 10,25 or --at 50%")
    turns = _parse_turns(at)
    if not settings.get("models"):
        raise UsageError(
            "--model is missing; give the model that continues, such as gpt-4o-mini"
        )
    if isinstance(futures, bool) or not isinstance(futures, int) or not 1 <= futures <= 1000:
        raise UsageError(f"--futures {futures!r} is not allowed; give a number from 1 to 1000")
    database = settings.get("database")
    base, points = _find_fork_points(store_at(database), sessions, turns)
    fork_settings = {"forks": points, "replicates": futures, "baselines": False}
    return prepare({**settings, **fork_settings}, base=base, which=which, **preparation)


def _parse_turns(at: At) -> list[Callable[["Trace"], int]]:
    """Parse `at` into functions that return a turn of an episode."""
    words = [at] if isinstance(at, int) else at.split(",") if isinstance(at, str) else at
    return [_parse_turn(str(word).strip()) for word in words]


def _parse_turn(word: str) -> Callable[["Trace"], int]:
    match = _AT.fullmatch(word)
    if match is None or (match["share"] and float(match["share"]) >= 100):
        raise UsageError(
            f"--at {word!r} is not allowed; give turns such as 10,25, a share of an episode "
            "such as 50%, or +1 for one turn after the fork point of a session"
        )
    if match["turn"]:
        turn = int(match["turn"])
        return lambda trace: turn
    if match["share"]:
        share = float(match["share"]) / 100
        return lambda trace: int(share * len(trace.session.played))
    later = int(match["later"])

    def find_turn_after_fork(trace: "Trace") -> int:
        header = trace.session.header
        if "fork" not in header.metadata:
            raise UsageError(
                f"--at {word} counts from a fork point, but episode {header.session_id} is "
                "not a fork; give a turn such as 10"
            )
        return int(header.metadata["fork"]["turn"]) + later

    return find_turn_after_fork


def _find_fork_points(
    store: "Store",
    names: Sequence[str],
    turns: Sequence[Callable[["Trace"], int]],
) -> tuple[dict[str, Any], tuple[ForkPoint, ...]]:
    """Return the common settings of the episodes, and their fork points."""
    from assay.episodes.forks import make_fork_point
    from assay.runs.configuration import list_differences
    from assay.store.load import load_traces
    from assay.store.queries import select_sessions

    base: dict[str, Any] = {}
    first = ""
    points: dict[tuple[str, int], ForkPoint] = {}
    with store.reading() as connection:
        # `best`, `worst` and `latest` never refer to forks, so that the same command resumes.
        session_ids = select_sessions(connection, names, fork_words=False)
        for trace in load_traces(connection, session_ids):
            session, settings = trace.session.header.session_id, _select_request_settings(trace)
            stored_difficulty = settings.get("difficulty", "easy")
            difficulty = SETTINGS["difficulty"].read(stored_difficulty, session, is_stored=True)
            tasks = RunConfig(difficulty=difficulty).difficulty_names
            for turn in turns:
                point = make_fork_point(trace.session, turn(trace), tasks)
                points[session, point.turn] = point
            if not first:
                base, first = settings, session
            if changes := list_differences(RunConfig, base, settings):
                raise UsageError(
                    f"episodes {first} and {session} have different settings: "
                    f"{'; '.join(changes)}; fork them in separate runs"
                )
    if not points:
        raise UsageError(
            f"{', '.join(names)} has no episodes to fork; 'assay traces list' shows them"
        )
    return base, tuple(points.values())


def _select_request_settings(trace: "Trace") -> dict[str, Any]:
    """Return the stored settings of an episode that determine its requests."""
    counted, stored = RunConfig.counted(), trace.run.configuration
    request_settings = {
        name: value
        for name, value in stored.items()
        if counted.get(name) is Counts.VERSION and name not in _LOCAL_SETTINGS
    }
    settings = trace.experiment.tags.get("settings")
    if settings and isinstance(request_settings.get("agent"), dict):
        request_settings["agent"] = {**request_settings["agent"], **settings}
    return request_settings


_PATIENCE = 5.0
"""Seconds that an estimate waits for the database."""


def estimate(prepared: PreparedRun[RunConfig]) -> RunEstimate:
    """Estimate a prepared run; needs no key and no network, and writes nothing.

    Raises:
        ModelRejected: A model does not exist, or is retired.
    """
    config = prepared.config
    pool = make_pool(replace(config.make_model_settings(), cache=None))
    kind = EpisodeKind(
        config,
        prepared.arms,
        partial(load_episode_parts, own=NO_USER_OBJECTS, load_agent=load_agent),
        {},
    )
    return estimate_run(
        config,
        [_make_quote(arm, config, pool) for arm in prepared.arms],
        play_sample(config, find_environment(config, None)),
        count_remaining(
            prepared,
            kind.plan(prepared.record),
            config.max_turns,
            (lambda spec: config.forks[spec.fork].turn) if config.forks else None,
        ),
        spent=compute_spending(
            prepared, patience=_PATIENCE, allow_different=prepared.allow_different
        ),
    )


def _make_quote(arm: Arm, config: RunConfig, pool: ModelPool) -> Quote:
    name, asked_by = arm.model, CallerKind.BUILTIN
    if arm.agent is not None:
        asked_by = CallerKind.NONE if name is None else CallerKind.USER
    if name is None or is_builtin(name, config.make_model_settings()):
        free = Price(input=0.0, output=0.0)
        return Quote(
            model=arm.label, provider="builtin", in_process=True, price=free, asked_by=asked_by
        )
    entry = pool.entry(name, retired=True)
    price = pool.price(entry)
    missing = pool.missing(entry)
    if price is None and config.budget is not None:
        missing += (f"the budget needs a price for {name!r}; give --price IN/OUT",)
    return Quote(
        model=arm.label,
        provider=entry.provider.name,
        price=price,
        per_minute=entry.requests_per_minute,
        missing=missing,
        asked_by=asked_by,
    )


def config_template() -> str:
    """Return a configuration file with every key, its default and its allowed values."""
    from assay.episodes.config import format_run_template

    return format_run_template()

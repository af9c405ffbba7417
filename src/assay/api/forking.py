"""Forks: stored episodes played on from one of their states, several futures each."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from assay._util.settings import Counts
from assay.api._run_parts import OwnObjects
from assay.api.notebook import listeners
from assay.api.run_preparation import prepare
from assay.errors import UsageError
from assay.rollouts.config import SETTINGS, ForkPoint, RunConfig
from assay.runs import PreparedRun, RunResult
from assay.traces.opening import store_at
from assay.types import ChatModel

if TYPE_CHECKING:
    from assay.traces.store import Store
    from assay.traces.trace import Trace
    from assay.trials import Event

__all__ = ["fork", "prepare_fork"]

At = int | str | Sequence[int | str]
_AT = re.compile(r"(?P<turn>\d{1,9})|(?P<share>\d{1,3}(?:\.\d+)?)%|\+(?P<later>\d{1,9})")
_HERE = frozenset({"environment", "environment_hash", "openai_base_url", "decision_limit"})
"""How an episode was played that does not decide what is asked next."""


def fork(
    *sessions: str,
    models: Sequence[str | ChatModel] | str,
    at: At,
    futures: int = 4,
    run_id: str | None = None,
    resume: str | None = None,
    fresh: bool = False,
    allow_different: Collection[str] = (),
    listen: "Callable[[Event], None] | None" = None,
    notice: Callable[[str], None] | None = None,
    **settings: Any,
) -> RunResult:
    """Play stored episodes of Crafter on from some of their states, as a run of its own.

    The world and the conversation are what they were after the turn, checked against the
    trace; from there on models play, up to the limits of the whole episode. Turns in common
    cost nothing. Like `assay.run`, it resumes the latest unfinished run of the same settings.

    Args:
        *sessions: Sessions, experiments or runs; `best`, `worst` and `latest` are those of the
            latest run that is no fork.
        models: Who plays on.
        at: After which turns: 10, "50%" of the turns of an episode, or "+1" for a turn after
            that at which a session was itself forked; or several.
        futures: How often each model plays on from each state.
        run_id: The id of the run.
        resume: The id of an unfinished run to go on with.
        fresh: Start anew, whatever is unfinished.
        allow_different: What a resumed run may have otherwise than before: address, ledger.
        listen: Who hears of progress, as events of `assay.trials`.
        notice: Who hears of everything else, in sentences.
        **settings: More of `RunConfig`, such as temperature, budget and database.
    """
    from assay.api.running import run_prepared

    listen, notice = listeners(listen, notice)
    named = [models] if isinstance(models, str) else models
    own = OwnObjects({}, {each.name: each for each in named if not isinstance(each, str)})
    settings["models"] = [each if isinstance(each, str) else each.name for each in named]
    prepared = prepare_fork(
        sessions,
        at,
        futures,
        settings,
        command="assay.fork(...)",
        run_id=run_id,
        resume=resume,
        fresh=fresh,
        allow_different=allow_different,
        source="assay.fork",
        own=own,
    )
    for warning in prepared.warnings:
        notice(warning)
    return run_prepared(prepared, listen=listen, notice=notice, own=own)


def prepare_fork(
    sessions: Sequence[str],
    at: At | None,
    futures: int,
    settings: Mapping[str, Any],
    **how: Any,
) -> PreparedRun[RunConfig]:
    """Settle what a fork would do, and check that its states can be made again.

    Args:
        sessions: Sessions, experiments or runs.
        at: After which turns.
        futures: How often each model plays on from each state.
        settings: What else to choose, by the names of `RunConfig`.
        **how: What `prepare` takes.
    """
    if how.get("resume") is not None:
        return prepare(settings, **how)
    if not sessions:
        raise UsageError(
            "name the episodes to fork: best, worst, or ids; 'assay traces list' shows them"
        )
    if at is None:
        raise UsageError("say after which turns with --at, such as --at 10,25 or --at 50%")
    wanted = _wanted(at)
    if not settings.get("models"):
        raise UsageError("name who plays on with --model, such as --model gpt-4o-mini")
    if isinstance(futures, bool) or not isinstance(futures, int) or not 1 <= futures <= 1000:
        raise UsageError(f"--futures {futures!r} is not allowed; give a number from 1 to 1000")
    database = settings.get("database")
    base, points = _points(store_at(database), sessions, wanted)
    chosen = {"forks": points, "replicates": futures, "baselines": False}
    return prepare({**settings, **chosen}, base=base, **how)


def _wanted(at: At) -> list[Callable[["Trace"], int]]:
    """What turn of an episode each word means."""
    words = [at] if isinstance(at, int) else at.split(",") if isinstance(at, str) else at
    return [_turn(str(word).strip()) for word in words]


def _turn(word: str) -> Callable[["Trace"], int]:
    said = _AT.fullmatch(word)
    if said is None or (said["share"] and float(said["share"]) >= 100):
        raise UsageError(
            f"--at {word!r} is not allowed; give turns such as 10,25, a share of an episode "
            "such as 50%, or +1 for a turn after that at which a session was forked"
        )
    if said["turn"]:
        turn = int(said["turn"])
        return lambda trace: turn
    if said["share"]:
        share = float(said["share"]) / 100
        return lambda trace: int(share * len(trace.session.played))
    later = int(said["later"])

    def after_fork(trace: "Trace") -> int:
        header = trace.session.header
        if "fork" not in header.metadata:
            raise UsageError(
                f"--at {word} counts from where a session was forked, and episode "
                f"{header.session_id} was not; give a turn such as 10"
            )
        return int(header.metadata["fork"]["turn"]) + later

    return after_fork


def _points(
    store: "Store",
    names: Sequence[str],
    wanted: Sequence[Callable[["Trace"], int]],
) -> tuple[dict[str, Any], tuple[ForkPoint, ...]]:
    """How the episodes were played, which must be alike, and the states that are meant."""
    from assay.rollouts.forks import fork_point
    from assay.runs.settings import difference
    from assay.traces.load import load_traces
    from assay.traces.select import select_sessions

    base: dict[str, Any] = {}
    first = ""
    points: dict[tuple[str, int], ForkPoint] = {}
    with store.reading() as connection:
        # Words stand for whole episodes, so that the same command resumes.
        chosen = select_sessions(connection, names, fork_words=False)
        for trace in load_traces(connection, chosen):
            session, own = trace.session.header.session_id, _played_as(trace)
            kept = own.get("difficulty", "easy")
            difficulty = SETTINGS["difficulty"].read(kept, session, kept=True)
            tasks = RunConfig(difficulty=difficulty).difficulty_names
            for turn in wanted:
                point = fork_point(trace.session, turn(trace), tasks)
                points[session, point.turn] = point
            if not first:
                base, first = own, session
            if changes := difference(RunConfig, base, own):
                raise UsageError(
                    f"episodes {first} and {session} were not played in the same way: "
                    f"{'; '.join(changes)}; fork them in two runs"
                )
    if not points:
        raise UsageError(
            f"{', '.join(names)} has no episodes to fork; 'assay traces list' shows them"
        )
    return base, tuple(points.values())


def _played_as(trace: "Trace") -> dict[str, Any]:
    """The settings that decide what an episode is asked next, as its run stored them."""
    counted, stored = RunConfig.counted(), trace.run.configuration
    own = {
        name: value
        for name, value in stored.items()
        if counted.get(name) is Counts.VERSION and name not in _HERE
    }
    settings = trace.experiment.tags.get("settings")
    if settings and isinstance(own.get("agent"), dict):
        own["agent"] = {**own["agent"], **settings}
    return own

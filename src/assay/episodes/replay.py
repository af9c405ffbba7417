"""Replay and verification of recorded episodes.

A replay repeats an episode from its seed, difficulty and actions, without a model. It yields
what the world does now next to what was recorded. `verify_session` compares digest, reward,
achievements and missing effect of every step, and then the outcomes that follow from them. It
stops at the first difference and changes nothing.

`verify_episode` also handles other environments: an episode is replayed if its environment is
available, unchanged and declared deterministic. The content of a trace never makes it raise.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from assay.core.aio import run_apart
from assay.crafter.engine.digest import DIGEST_VERSION
from assay.crafter.rules import ACTIONS, TASK, WORLD_LENGTH
from assay.crafter.world import Ended, StepResult, World
from assay.episodes.environments import OwnEnvironment, OwnWorld, load_environment
from assay.episodes.totals import EpisodeTotals
from assay.errors import EpisodeOver, ReplayError, UsageError, UserCodeError, WorldFull
from assay.store.records import SessionHeader, SessionRecord, StepRecord
from assay.types import TrialState


class Replayed(NamedTuple):
    """One step, as recorded and as replayed."""

    turn: int
    recorded: StepRecord
    result: StepResult
    """Result of the replayed step."""


class Replay:
    """Replays a session while it is iterated over, and keeps totals.

    Raises ReplayError with the reason if the session has too little data to be replayed.
    """

    def __init__(self, session: SessionRecord) -> None:
        self.session = session
        self.world = _world(session.header)
        _require_actions(session)
        self.reward = 0.0
        """Sum of all rewards so far."""
        self.unlocked: dict[str, int] = {}
        """Step of each unlocked achievement, in order."""
        self.steps = sum(len(played.steps) for played in session.played)
        """Number of recorded steps."""

    def __iter__(self) -> Iterator[Replayed]:
        """Yield the replayed steps; raise EpisodeOver if the world ends too early."""
        for played in self.session.played:
            for recorded in played.steps:
                result = self.world.step(recorded.action)
                self.reward = round(self.reward + result.reward, 6)
                self.unlocked.update(dict.fromkeys(result.unlocked, self.world.steps))
                yield Replayed(played.turn, recorded, result)


def _require_actions(session: SessionRecord) -> None:
    for played in session.played:
        for step in played.steps:
            if step.action not in ACTIONS:
                raise ReplayError(
                    f"step {step.index} is {step.action[:80]!r}, "
                    "which is no action of this world"
                )


def replay_session(session: SessionRecord) -> Iterator[Replayed]:
    """Replay a recorded session step by step."""
    return iter(Replay(session))


def _world(header: SessionHeader) -> World:
    """Make the world of a session at its start."""
    if not header.task.startswith(TASK):
        raise ReplayError(
            f"its task is {header.task[:80]!r}; only episodes of Crafter can be played again"
        )
    if header.seed is None:
        raise ReplayError("it has no seed")
    metadata = header.metadata
    difficulty = _difficulty(header)
    try:
        return World(
            header.seed,
            difficulty,
            metadata.get("length", WORLD_LENGTH),
            episode=metadata.get("world_episode", 1),
        )
    except (UsageError, WorldFull) as error:
        raise ReplayError(f"its world cannot be made: {error}") from error


def _difficulty(header: SessionHeader) -> str | Mapping[str, Any]:
    # All numbers of a difficulty are recorded, because the meaning of its name may change.
    given = header.metadata.get("difficulty", header.difficulty)
    if isinstance(given, (str, Mapping)):
        return given
    raise ReplayError("it does not say its difficulty")


_OF_STEPS = ("achievement_rate", "achievements", "reward", "steps", "time_management")
_PLACES = 6


class Finding(StrEnum):
    """Result of a verification."""

    SAME = "same"
    """Every step was reproduced as recorded."""
    DIFFERENT = "different"
    """At least one step was not: the trace is damaged, or a different world produced it."""
    UNVERIFIABLE = "unverifiable"
    """The session has too little data to be compared."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference between a trace and its replay."""

    step: int | None
    """Index of the step; None for the episode as a whole."""
    turn: int | None
    field: str
    """Name of the field that differs: digest, reward, unlocked, ..."""
    recorded: str
    replayed: str

    def __str__(self) -> str:
        where = "" if self.step is None else f"step {self.step} (turn {self.turn}): "
        return f"{where}{self.field} was {self.recorded}, is {self.replayed}"


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of the verification of one session."""

    session_id: str
    finding: Finding
    steps: int
    """Number of steps that were replayed without a difference."""
    difference: Difference | None = None
    reason: str | None = None
    """Reason why the session cannot be verified, if so."""


def verify_session(session: SessionRecord) -> Verification:
    """Replay a session and compare; never raises because of the content of the trace."""
    name, steps = session.header.session_id, 0
    difference = None
    try:
        replay = Replay(session)
        _require_digests(session)
        for replayed in replay:
            difference = _compare_step(replay.world, replayed)
            if difference is not None:
                break
            steps += 1
    except ReplayError as error:
        return Verification(name, Finding.UNVERIFIABLE, steps, reason=str(error))
    except (EpisodeOver, WorldFull):
        difference = Difference(steps + 1, None, "the world", "going on", "over")
    difference = difference or _compare_outcomes(session)
    finding = Finding.SAME if difference is None else Finding.DIFFERENT
    return Verification(name, finding, steps, difference)


def _require_digests(session: SessionRecord) -> None:
    version = session.header.metadata.get("digest_version", DIGEST_VERSION)
    if version != DIGEST_VERSION:
        raise ReplayError(
            f"its digests are of version {version!r}, and this version of assay makes "
            f"version {DIGEST_VERSION}"
        )
    for played in session.played:
        for step in played.steps:
            if step.digest is None:
                raise ReplayError(f"step {step.index} has no digest to compare with")


def _compare_step(world: World, replayed: Replayed) -> Difference | None:
    recorded, result = replayed.recorded, replayed.result
    pairs: tuple[tuple[str, object, object], ...] = (
        ("index", recorded.index, world.steps),
        ("digest", recorded.digest, f"{world.digest():016x}"),
        ("reward", round(recorded.reward, _PLACES), round(result.reward, _PLACES)),
        ("unlocked", recorded.unlocked, result.unlocked),
        ("no_effect", recorded.no_effect, result.no_effect),
        ("terminated", recorded.terminated, result.ended is Ended.DIED),
    )
    for field, was, is_now in pairs:
        if was != is_now:
            return Difference(recorded.index, replayed.turn, field, _words(was), _words(is_now))
    return None


def _compare_outcomes(session: SessionRecord) -> Difference | None:
    """Return the first stored outcome that does not follow from the steps, which agree."""
    end = session.end
    if end is None or end.state is not TrialState.RESULT:
        return None
    for name, value in EpisodeTotals.of(session).outcomes(0.0).items():
        stored = end.outcomes.get(name)
        follows = name in _OF_STEPS or name.startswith("unlocked/")
        if follows and stored is not None and abs(stored - value) > 10**-_PLACES:
            return Difference(None, None, f"outcome {name}", f"{stored:g}", f"{value:g}")
    return None


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nothing"
    return "nothing" if value is None else str(value)


_LIMIT_S = 60.0


def verify_episode(session: SessionRecord, given: OwnEnvironment | None = None) -> Verification:
    """Replay an episode and compare every step with the trace.

    Args:
        session: The episode.
        given: Its environment, if a program gave it as a class.
    """
    declared = session.header.metadata.get("environment")
    if not isinstance(declared, dict):
        return verify_session(session)
    name = session.header.session_id
    try:
        environment = _unchanged(declared, given)
        _check_digests(session, environment)
    except UsageError as error:
        return Verification(name, Finding.UNVERIFIABLE, 0, reason=str(error))
    agreed, difference = 0, None
    try:
        agreed, difference = run_apart(lambda: _replayed(session, environment))
    except UserCodeError as error:
        difference = Difference(None, None, "the environment", "playing", str(error))
    finding = Finding.SAME if difference is None else Finding.DIFFERENT
    return Verification(name, finding, agreed, difference)


def _unchanged(declared: dict[str, object], given: OwnEnvironment | None) -> OwnEnvironment:
    spec = str(declared.get("spec"))
    if declared.get("deterministic") is not True:
        raise UsageError(f"{spec} says that it is not deterministic")
    if given is not None and given.name == spec.partition("@")[0]:
        environment = given
    else:
        environment = load_environment(spec)
    if environment.sha != declared.get("sha"):
        raise UsageError(f"{spec} has changed since, so it would play another game")
    return environment


def _check_digests(session: SessionRecord, environment: OwnEnvironment) -> None:
    if any(step.digest is None for played in session.played for step in played.steps):
        raise UsageError(
            f"what {environment.name} shows has no digest; show numbers, texts, arrays, and "
            "lists or dictionaries of them"
        )


async def _replayed(
    session: SessionRecord, environment: OwnEnvironment
) -> tuple[int, Difference | None]:
    """Return the number of equal steps, and the first difference if any."""
    world = OwnWorld(environment, session.header.seed or 0, _LIMIT_S)
    agreed = 0
    try:
        await world.begin()
        for played in session.played:
            for step in played.steps:
                again = (await world.step([step.action], step.index - 1)).steps[0]
                if difference := _difference(played.turn, step, again):
                    return agreed, difference
                agreed += 1
        earned = world.declared
    finally:
        await world.leave()
    for name, value in earned.items():
        stored = session.end.outcomes.get(name) if session.end else None
        if stored is not None and abs(stored - value) > 10**-_PLACES:
            return agreed, Difference(
                None, None, f"outcome {name}", f"{stored:g}", f"{value:g}"
            )
    return agreed, None


def _difference(turn: int, recorded: StepRecord, again: StepRecord) -> Difference | None:
    for field in ("digest", "reward", "terminated", "truncated"):
        was, is_now = getattr(recorded, field), getattr(again, field)
        if was != is_now:
            return Difference(recorded.index, turn, field, str(was), str(is_now))
    return None

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

from assay.core.aio import run_in_own_loop
from assay.crafter.engine.digest import DIGEST_VERSION
from assay.crafter.rules import ACTIONS, TASK, WORLD_LENGTH
from assay.crafter.world import Ended, StepResult, World
from assay.episodes.environments import UserEnvironment, UserWorld, load_environment
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
        self.world = _make_world(session.header)
        _check_actions(session)
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


def _check_actions(session: SessionRecord) -> None:
    for played in session.played:
        for step in played.steps:
            if step.action not in ACTIONS:
                raise ReplayError(
                    f"step {step.index} is {step.action[:80]!r}, "
                    "which is not an action of this world"
                )


def replay_session(session: SessionRecord) -> Iterator[Replayed]:
    """Replay a recorded session step by step."""
    return iter(Replay(session))


def _make_world(header: SessionHeader) -> World:
    """Make the world of a session at its start."""
    if not header.task.startswith(TASK):
        raise ReplayError(
            f"its task is {header.task[:80]!r}; only episodes of Crafter can be replayed"
        )
    if header.seed is None:
        raise ReplayError("it has no seed")
    metadata = header.metadata
    difficulty = _read_difficulty(header)
    try:
        return World(
            header.seed,
            difficulty,
            metadata.get("length", WORLD_LENGTH),
            episode=metadata.get("world_episode", 1),
        )
    except (UsageError, WorldFull) as error:
        raise ReplayError(f"its world cannot be created: {error}") from error


def _read_difficulty(header: SessionHeader) -> str | Mapping[str, Any]:
    # All numbers of a difficulty are recorded, because the meaning of its name may change.
    recorded = header.metadata.get("difficulty", header.difficulty)
    if isinstance(recorded, (str, Mapping)):
        return recorded
    raise ReplayError("its difficulty is not recorded")


_OUTCOMES_OF_STEPS = ("achievement_rate", "achievements", "reward", "steps", "time_management")
_DECIMALS = 6


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
        location = "" if self.step is None else f"step {self.step} (turn {self.turn}): "
        return f"{location}{self.field} was {self.recorded}, is {self.replayed}"


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
        _check_digest_version(session)
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


def _check_digest_version(session: SessionRecord) -> None:
    version = session.header.metadata.get("digest_version", DIGEST_VERSION)
    if version != DIGEST_VERSION:
        raise ReplayError(
            f"its digests have version {version!r}, and this version of assay computes "
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
        ("reward", round(recorded.reward, _DECIMALS), round(result.reward, _DECIMALS)),
        ("unlocked", recorded.unlocked, result.unlocked),
        ("no_effect", recorded.no_effect, result.no_effect),
        ("terminated", recorded.terminated, result.ended is Ended.DIED),
    )
    for field, old, new in pairs:
        if old != new:
            return Difference(
                recorded.index, replayed.turn, field, _format_value(old), _format_value(new)
            )
    return None


def _compare_outcomes(session: SessionRecord) -> Difference | None:
    """Return the first stored outcome that does not follow from the steps, which agree."""
    end = session.end
    if end is None or end.state is not TrialState.RESULT:
        return None
    for name, value in EpisodeTotals.of(session).outcomes(0.0).items():
        stored = end.outcomes.get(name)
        is_derived = name in _OUTCOMES_OF_STEPS or name.startswith("unlocked/")
        if is_derived and stored is not None and abs(stored - value) > 10**-_DECIMALS:
            return Difference(None, None, f"outcome {name}", f"{stored:g}", f"{value:g}")
    return None


def _format_value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nothing"
    return "nothing" if value is None else str(value)


_TIMEOUT_S = 60.0


def verify_episode(
    session: SessionRecord, passed: UserEnvironment | None = None
) -> Verification:
    """Replay an episode and compare every step with the trace.

    Args:
        session: The episode.
        passed: Its environment, if a program gave it as a class.
    """
    declared = session.header.metadata.get("environment")
    if not isinstance(declared, dict):
        return verify_session(session)
    name = session.header.session_id
    try:
        environment = _load_unchanged(declared, passed)
        _check_digests(session, environment)
    except UsageError as error:
        return Verification(name, Finding.UNVERIFIABLE, 0, reason=str(error))
    equal_steps, difference = 0, None
    try:
        equal_steps, difference = run_in_own_loop(lambda: _replay_steps(session, environment))
    except UserCodeError as error:
        difference = Difference(None, None, "the environment", "playing", str(error))
    finding = Finding.SAME if difference is None else Finding.DIFFERENT
    return Verification(name, finding, equal_steps, difference)


def _load_unchanged(
    declared: dict[str, object], passed: UserEnvironment | None
) -> UserEnvironment:
    spec = str(declared.get("spec"))
    if declared.get("deterministic") is not True:
        raise UsageError(f"{spec} is declared as not deterministic")
    if passed is not None and passed.name == spec.partition("@")[0]:
        environment = passed
    else:
        environment = load_environment(spec)
    if environment.sha != declared.get("sha"):
        raise UsageError(f"{spec} has changed since the episode was recorded")
    return environment


def _check_digests(session: SessionRecord, environment: UserEnvironment) -> None:
    if any(step.digest is None for played in session.played for step in played.steps):
        raise UsageError(
            f"observations of {environment.name} have no digest; use numbers, texts, arrays, "
            "and lists or dictionaries of them"
        )


async def _replay_steps(
    session: SessionRecord, environment: UserEnvironment
) -> tuple[int, Difference | None]:
    """Return the number of equal steps, and the first difference if any."""
    world = UserWorld(environment, session.header.seed or 0, _TIMEOUT_S)
    equal_steps = 0
    try:
        await world.begin()
        for played in session.played:
            for step in played.steps:
                replayed = (await world.step([step.action], step.index - 1)).steps[0]
                if difference := _compare_records(played.turn, step, replayed):
                    return equal_steps, difference
                equal_steps += 1
        outcomes = world.declared
    finally:
        await world.close()
    for name, value in outcomes.items():
        stored = session.end.outcomes.get(name) if session.end else None
        if stored is not None and abs(stored - value) > 10**-_DECIMALS:
            return equal_steps, Difference(
                None, None, f"outcome {name}", f"{stored:g}", f"{value:g}"
            )
    return equal_steps, None


def _compare_records(
    turn: int, recorded: StepRecord, replayed: StepRecord
) -> Difference | None:
    for field in ("digest", "reward", "terminated", "truncated"):
        old, new = getattr(recorded, field), getattr(replayed, field)
        if old != new:
            return Difference(recorded.index, turn, field, str(old), str(new))
    return None

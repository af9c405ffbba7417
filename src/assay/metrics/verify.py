"""Whether a recorded episode is what its world really does.

Every step is made again and its digest, reward, achievements and lack of effect compared;
then the outcomes that follow from them. Changes nothing, and stops at the first difference.
"""

from dataclasses import dataclass
from enum import StrEnum

from assay.crafter import DIGEST_VERSION, Ended, World
from assay.errors import EpisodeOver, ReplayError, WorldFull
from assay.traces.records import SessionRecord
from assay.types import TrialState

from .replay import Replay, Replayed
from .tally import EpisodeTotals

__all__ = ["Difference", "Finding", "Verification", "verify_session"]

_OF_STEPS = ("achievement_rate", "achievements", "reward", "steps", "time_management")
_PLACES = 6


class Finding(StrEnum):
    """What came of a verification."""

    SAME = "same"
    """Every step came out as it was recorded."""
    DIFFERENT = "different"
    """At least one did not: the trace is damaged, or another world made it."""
    UNVERIFIABLE = "unverifiable"
    """The session says too little to tell."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where a trace and its world disagree."""

    step: int | None
    """The index of the step; None for the episode as a whole."""
    turn: int | None
    field: str
    """What differs: digest, reward, unlocked, ..."""
    recorded: str
    replayed: str

    def __str__(self) -> str:
        where = "" if self.step is None else f"step {self.step} (turn {self.turn}): "
        return f"{where}{self.field} was {self.recorded}, is {self.replayed}"


@dataclass(frozen=True, slots=True)
class Verification:
    """The answer for one session."""

    session_id: str
    finding: Finding
    steps: int
    """How many steps were made again and agreed."""
    difference: Difference | None = None
    reason: str | None = None
    """Why nothing can be said, if nothing can."""


def verify_session(session: SessionRecord) -> Verification:
    """Play a session again and compare; never raises for what is in the trace."""
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
    """The first stored outcome that the steps, which agree, do not come to."""
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

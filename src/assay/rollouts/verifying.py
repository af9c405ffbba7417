"""Whether a recorded episode is what its environment really does, wherever it was played.

Those of Crafter are verified by `assay.metrics`. One of another environment is played again
if that is there, unchanged, and says of itself that it is deterministic. Never raises for
what is in a trace.
"""

from assay._util.loops import run_apart
from assay.errors import UsageError, UserCodeError
from assay.metrics import Difference, Finding, Verification, verify_session
from assay.traces.records import SessionRecord, StepRecord

from .environments import OwnEnvironment, load_environment
from .own_world import OwnWorld

__all__ = ["verify_episode"]

_LIMIT_S = 60.0
_PLACES = 6


def verify_episode(session: SessionRecord, given: OwnEnvironment | None = None) -> Verification:
    """Play an episode again and compare every step with the trace.

    Args:
        session: The episode.
        given: Its environment, if a program had given that as a class.
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
    """How many steps came out the same, and the first that did not."""
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

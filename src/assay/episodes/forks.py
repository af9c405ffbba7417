"""Forks: episodes that start with the first turns of a stored session.

The journal of a fork begins with turns of its parent session, as if an earlier attempt had made
them, and the fork is then resumed like any other episode. The copied turns are not charged
again: their calls have no tokens, cost and time, and name the session that made them.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from assay.crafter.rules import TASK
from assay.episodes.config import ForkPoint
from assay.errors import UsageError
from assay.runs.control import Interrupted
from assay.runs.engine import Context
from assay.store.journal import Journal
from assay.store.recorder import Recorder, ReplayDiffers
from assay.store.records import CallRecord, SessionHeader, SessionRecord
from assay.store.schema import COPIED, StoredKind
from assay.types import Usage

_FORK: Final = "fork"


def fork_point(session: SessionRecord, turn: int, tasks: Sequence[str]) -> ForkPoint:
    """Return the fork point of a session after some of its turns.

    Args:
        session: A Crafter episode played by the built-in agent.
        turn: Number of turns; 0 is its start.
        tasks: Names of the difficulties of its run.

    Raises:
        UsageError: The session has too little data to be continued, or does not have the turn.
    """
    header = session.header
    who = f"episode {header.session_id}"
    _check_forkable(session, who)
    turns = len(session.played)
    if not 0 <= turn < turns:
        last = f"0 to {turns - 1}" if turns > 1 else "0, its start,"
        raise UsageError(
            f"{who} cannot be forked at turn {turn}: it has {turns} turns; give {last} so that "
            "there is something to play"
        )
    if header.difficulty not in tasks:
        raise UsageError(
            f"{who} has the difficulty {header.difficulty!r}, which its run does not know: "
            f"{', '.join(tasks)}; fork another"
        )
    calls = [copied_call(call, header.session_id) for call in session.calls]
    taken = [call.parameters[COPIED] for call in calls if call.turn <= turn]
    assert header.seed is not None, "its world was made from it"
    return ForkPoint(
        session=header.session_id,
        turn=turn,
        steps=sum(len(played.steps) for played in session.played if played.turn <= turn),
        seed=header.seed,
        task=tasks.index(header.difficulty),
        tokens=sum(each["tokens"] for each in taken),
        seconds=round(sum(each["seconds"] for each in taken), 6),
    )


def _check_forkable(session: SessionRecord, who: str) -> None:
    header = session.header
    if header.trial_kind != StoredKind.EPISODE:
        raise UsageError(
            f"{who} is {header.trial_kind}, and only episodes that 'assay run' played can be "
            "forked: their worlds and requests can be made again"
        )
    if not header.task.startswith(TASK):
        raise UsageError(
            f"{who} played in {header.task[:80]!r}; only episodes of Crafter can be forked"
        )
    if "own_agent" in header.metadata:
        raise UsageError(
            f"{who} was played by {header.metadata['own_agent']}, an agent of your own, whose "
            "requests cannot be made again; fork episodes of models"
        )
    answers = {message.position for message in session.messages}
    if not session.calls or any(call.reply not in answers for call in session.calls):
        raise UsageError(
            f"{who} has no messages in this store, so nobody can be asked to play on; fork one "
            "whose messages were stored"
        )
    if any(step.digest is None for played in session.played for step in played.steps):
        raise UsageError(
            f"{who} has steps without a digest, so its states cannot be checked; fork another"
        )


def forked_header(header: SessionHeader, point: ForkPoint) -> SessionHeader:
    """Return the header of an episode that continues from a fork point."""
    fork = {"turn": point.turn, "tokens": point.tokens, "seconds": point.seconds}
    return replace(
        header,
        parent=point.session,
        forked_at=point.steps,
        metadata={**header.metadata, _FORK: fork},
    )


def beginning(parent: SessionRecord, header: SessionHeader, turn: int) -> SessionRecord:
    """Return the first turns of a session, as the start of another session."""
    calls = [call for call in parent.calls if call.turn <= turn]
    last = max((call.reply for call in calls), default=-1)
    return SessionRecord(
        header,
        [message for message in parent.messages if message.position <= last],
        [copied_call(call, parent.header.session_id) for call in calls],
        [played for played in parent.played if played.turn <= turn],
        None,
    )


def copied_call(call: CallRecord, session_id: str) -> CallRecord:
    """Return a call that was made and charged in another session."""
    taken = {"session": session_id, "tokens": call.usage.total, "seconds": call.latency_s}
    return replace(
        call,
        usage=Usage(),
        cost_usd=0.0,
        latency_s=0.0,
        waited_s=0.0,
        retries=0,
        # A call that was already a copy keeps its original session.
        parameters={COPIED: taken, **call.parameters},
    )


async def check_replays(
    begun: SessionRecord, attempt: Callable[[Recorder, Context], Awaitable[object]]
) -> None:
    """Replay the copied turns without model calls, and compare them with the trace.

    Raises:
        UsageError: The world or the messages differ from the trace.
    """
    where = f"episode {begun.header.parent} cannot be forked at turn {len(begun.played)}"
    recorder = Recorder(Journal(Path("unwritten")), begun)
    try:
        await attempt(recorder, Context(asked_to_stop=lambda: True))
    except Interrupted:
        return
    except ReplayDiffers as error:
        said, _, _ = str(error).partition(" differs")
        what = said.partition(": ")[2]
        raise UsageError(
            f"{where}: {what} comes out otherwise than it was recorded; it was played by "
            "another version of assay, or the store is damaged: see 'assay traces verify'"
        ) from error
    raise UsageError(f"{where}: it ends there")

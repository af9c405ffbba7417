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


def make_fork_point(session: SessionRecord, turn: int, tasks: Sequence[str]) -> ForkPoint:
    """Return the fork point of a session after some of its turns.

    Args:
        session: A Crafter episode played by the built-in agent.
        turn: Number of turns; 0 is its start.
        tasks: Names of the difficulties of its run.

    Raises:
        UsageError: The session has too little data to be continued, or does not have the turn.
    """
    header = session.header
    episode = f"episode {header.session_id}"
    _check_forkable(session, episode)
    turns = len(session.played)
    if not 0 <= turn < turns:
        last = f"0 to {turns - 1}" if turns > 1 else "0, its start,"
        raise UsageError(
            f"{episode} cannot be forked at turn {turn}: it has {turns} turns; give {last} so "
            "that a turn is left to play"
        )
    if header.difficulty not in tasks:
        raise UsageError(
            f"{episode} has the difficulty {header.difficulty!r}, which is not one of its run: "
            f"{', '.join(tasks)}; fork another episode"
        )
    calls = [copy_call(call, header.session_id) for call in session.calls]
    copied = [call.parameters[COPIED] for call in calls if call.turn <= turn]
    assert header.seed is not None, "its world was made from it"
    return ForkPoint(
        session=header.session_id,
        turn=turn,
        steps=sum(len(played.steps) for played in session.played if played.turn <= turn),
        seed=header.seed,
        task=tasks.index(header.difficulty),
        tokens=sum(copy["tokens"] for copy in copied),
        seconds=round(sum(copy["seconds"] for copy in copied), 6),
    )


def _check_forkable(session: SessionRecord, episode: str) -> None:
    header = session.header
    if header.trial_kind != StoredKind.EPISODE:
        raise UsageError(
            f"{episode} is a trial of kind {header.trial_kind}; only episodes of 'assay run' "
            "can be forked, because their worlds and requests can be reproduced"
        )
    if not header.task.startswith(TASK):
        raise UsageError(
            f"{episode} played in {header.task[:80]!r}; only episodes of Crafter can be forked"
        )
    if "own_agent" in header.metadata:
        raise UsageError(
            f"{episode} was played by the user agent {header.metadata['own_agent']}, whose "
            "requests cannot be reproduced; fork episodes of models"
        )
    positions = {message.position for message in session.messages}
    if not session.calls or any(call.reply not in positions for call in session.calls):
        raise UsageError(
            f"the messages of {episode} are not in this database, so a model cannot continue "
            "it; fork an episode with stored messages"
        )
    if any(step.digest is None for played in session.played for step in played.steps):
        raise UsageError(
            f"{episode} has steps without a digest, so its states cannot be checked; fork "
            "another episode"
        )


def make_fork_header(header: SessionHeader, point: ForkPoint) -> SessionHeader:
    """Return the header of an episode that continues from a fork point."""
    fork = {"turn": point.turn, "tokens": point.tokens, "seconds": point.seconds}
    return replace(
        header,
        parent=point.session,
        forked_at=point.steps,
        metadata={**header.metadata, _FORK: fork},
    )


def copy_turns(parent: SessionRecord, header: SessionHeader, turn: int) -> SessionRecord:
    """Return the first turns of a session, as the start of another session."""
    calls = [call for call in parent.calls if call.turn <= turn]
    last = max((call.reply for call in calls), default=-1)
    return SessionRecord(
        header,
        [message for message in parent.messages if message.position <= last],
        [copy_call(call, parent.header.session_id) for call in calls],
        [played for played in parent.played if played.turn <= turn],
        None,
    )


def copy_call(call: CallRecord, session_id: str) -> CallRecord:
    """Return a call that was made and charged in another session."""
    original = {"session": session_id, "tokens": call.usage.total, "seconds": call.latency_s}
    return replace(
        call,
        usage=Usage(),
        cost_usd=0.0,
        latency_s=0.0,
        waited_s=0.0,
        retries=0,
        # A call that was already a copy keeps its original session.
        parameters={COPIED: original, **call.parameters},
    )


async def check_replay(
    copied_turns: SessionRecord, attempt: Callable[[Recorder, Context], Awaitable[object]]
) -> None:
    """Replay the copied turns without model calls, and compare them with the trace.

    Raises:
        UsageError: The world or the messages differ from the trace.
    """
    parent, turn = copied_turns.header.parent, len(copied_turns.played)
    problem = f"episode {parent} cannot be forked at turn {turn}"
    recorder = Recorder(Journal(Path("unwritten")), copied_turns)
    try:
        await attempt(recorder, Context(should_stop=lambda: True))
    except Interrupted:
        return
    except ReplayDiffers as error:
        difference, _, _ = str(error).partition(" differs")
        part = difference.partition(": ")[2]
        raise UsageError(
            f"{problem}: {part} differs from the recording; the episode was played by another "
            "version of assay, or the database is damaged; run 'assay traces verify'"
        ) from error
    raise UsageError(f"{problem}: the episode ends there")

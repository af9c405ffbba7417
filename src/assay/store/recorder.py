"""The one way to write the journal of a trial, and to go on with one that is begun.

A trial whose journal has turns is tried again from its start: `recall` gives the recorded
answers back in their order, so that nobody is asked twice, and what the trial does again must
be what it did before. A difference means that another version plays, or somebody whose
actions do not follow from what it sees; nothing after it could be trusted.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from assay.errors import JournalError
from assay.store.journal import Journal, is_blank, put_aside
from assay.store.records import (
    CallRecord,
    EndRecord,
    ErrorRecord,
    MessageRecord,
    PlayedRecord,
    SessionHeader,
    SessionRecord,
)
from assay.types import Message, TrialState


class ReplayDiffers(JournalError):
    """A trial that was tried again did something else than its journal says."""


class Recorder:
    """Writes down one trial; what is recorded already is compared instead."""

    def __init__(self, journal: Journal, session: SessionRecord | None = None) -> None:
        self.seconds = 0.0
        """Time that counts as the trial's own; whoever tries adds to it."""
        self.journal = journal
        """Where it is written down."""
        self._end = session.end if session else None
        self._calls: dict[int, deque[CallRecord]] = {}
        for call in session.calls if session else ():
            self._calls.setdefault(call.turn, deque()).append(call)
        self._played = {played.turn: played for played in session.played} if session else {}
        self._messages = (
            {record.position: record.message for record in session.messages} if session else {}
        )

    @classmethod
    def open(
        cls,
        path: Path,
        header: Callable[[], SessionHeader | SessionRecord],
        *,
        resumes: bool = True,
    ) -> Self:
        """Go on with a journal, or begin one; only then is the header asked for.

        A session in its place is a trial whose first turns are given: it goes on after them.

        Where a trial cannot be resumed in the middle, its journal is put aside and a new one
        begun; what was paid for it stays on the bill.
        """
        if not resumes and not is_blank(path):
            put_aside(path)
        if is_blank(path):
            begun = header()
            given = begun if isinstance(begun, SessionRecord) else None
            return cls(Journal.create(path, begun), given)
        return cls(*Journal.reopen(path))

    @property
    def attempts(self) -> int:
        """How many attempts came to an end."""
        return self._end.attempts if self._end else 0

    def recall(
        self, turn: int, request: Sequence[int], new: Mapping[int, Message]
    ) -> tuple[CallRecord, Message] | None:
        """The next recorded call of a turn, with its answer; None if nobody was asked yet.

        Args:
            turn: Counted from 1.
            request: The positions of the messages that would be sent.
            new: Messages that were made since the call before, by position.
        """
        calls = self._calls.get(turn)
        if not calls:
            if turn in self._played:
                raise self._differs(f"turn {turn} asks its model once more")
            return None
        call = calls.popleft()
        same = tuple(request) == call.request and all(
            self._messages.get(position) == message for position, message in new.items()
        )
        if not same:
            raise self._differs(f"the request of turn {turn}")
        return call, self._messages[call.reply]

    def add_call(self, call: CallRecord, messages: Sequence[MessageRecord]) -> None:
        """Write down an answer, before anything is done about it."""
        self.journal.append_call(call, messages)

    def add_messages(self, messages: Sequence[MessageRecord]) -> None:
        """Write down messages that belong to no call."""
        self.journal.append_messages(messages)

    def add_played(self, played: PlayedRecord) -> PlayedRecord:
        """Write down what was played of a turn, or give back what is recorded of it."""
        if self._calls.get(played.turn):
            raise self._differs(f"turn {played.turn} asks its model less often")
        recorded = self._played.get(played.turn)
        if recorded is None:
            self.journal.append_played(played)
            return played
        if recorded.steps != played.steps or recorded.asked != played.asked:
            raise self._differs(f"the steps of turn {played.turn}")
        return recorded

    async def kept(self) -> None:
        """Wait until all that was written down is on disk."""
        await self.journal.kept()

    def knows(self, turn: int) -> bool:
        """Whether anything is recorded of a turn."""
        return turn in self._played or turn in self._calls

    def end(
        self,
        state: TrialState,
        reason: str,
        outcomes: Mapping[str, float],
        error: ErrorRecord | None = None,
        *,
        at: float | None = None,
    ) -> None:
        """Write down how the attempt ended: now, or at a time in seconds since 1970."""
        self.journal.append_end(
            EndRecord(
                at=time.time() if at is None else at,
                state=state,
                stop_reason=reason,
                duration_s=self.seconds,
                outcomes=outcomes,
                error=error,
                attempts=self.attempts + 1,
            )
        )

    def _differs(self, what: str) -> ReplayDiffers:
        return ReplayDiffers(
            f"episode {self.journal.path.stem} cannot be resumed: {what} differs from what is "
            "in its journal; resume with the version of assay that started it, or start anew "
            "with --fresh"
        )

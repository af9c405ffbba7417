"""Writing of a trial's journal, and replay of a journal that is continued.

A resumed trial runs again from its start: `recall` returns the recorded replies in order, so
that no model call is repeated, and the trial must do the same as before. A difference means
that another version of assay runs or that the agent is not deterministic; nothing after it
could be trusted.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from assay.errors import JournalError
from assay.store.journal import Journal, is_blank, set_aside_restarted
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
    """A resumed trial diverged from its journal."""


class Recorder:
    """Writer of one trial's journal; turns that are recorded already are compared instead."""

    def __init__(self, journal: Journal, session: SessionRecord | None = None) -> None:
        self.seconds = 0.0
        """Duration of the trial so far; the caller adds to it."""
        self.journal = journal
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
        """Continue a journal, or create one with the result of `header`.

        `header` may return a session: a trial that continues after its first turns, as a fork.

        If `resumes` is false, an existing journal is set aside, so that its cost still counts,
        and a new one is started.
        """
        if not resumes and not is_blank(path):
            set_aside_restarted(path)
        if is_blank(path):
            begun = header()
            given = begun if isinstance(begun, SessionRecord) else None
            return cls(Journal.create(path, begun), given)
        return cls(*Journal.reopen(path))

    @property
    def attempts(self) -> int:
        """Number of attempts that ended."""
        return self._end.attempts if self._end else 0

    def recall(
        self, turn: int, request: Sequence[int], new: Mapping[int, Message]
    ) -> tuple[CallRecord, Message] | None:
        """Return the next recorded call of a turn and its reply; None if there is none.

        Args:
            turn: Counted from 1.
            request: Positions of the messages that would be sent.
            new: Messages created since the previous call, by position.
        """
        calls = self._calls.get(turn)
        if not calls:
            if turn in self._played:
                raise self._make_error(f"the number of model calls in turn {turn}")
            return None
        call = calls.popleft()
        same = tuple(request) == call.request and all(
            self._messages.get(position) == message for position, message in new.items()
        )
        if not same:
            raise self._make_error(f"the request of turn {turn}")
        return call, self._messages[call.reply]

    def add_call(self, call: CallRecord, messages: Sequence[MessageRecord]) -> None:
        """Record a reply, before it is acted on."""
        self.journal.append_call(call, messages)

    def add_messages(self, messages: Sequence[MessageRecord]) -> None:
        """Record messages that belong to no call."""
        self.journal.append_messages(messages)

    def add_played(self, played: PlayedRecord) -> PlayedRecord:
        """Record the actions played in a turn; return the existing record if there is one."""
        if self._calls.get(played.turn):
            raise self._make_error(f"the number of model calls in turn {played.turn}")
        recorded = self._played.get(played.turn)
        if recorded is None:
            self.journal.append_played(played)
            return played
        if recorded.steps != played.steps or recorded.asked != played.asked:
            raise self._make_error(f"the steps of turn {played.turn}")
        return recorded

    async def wait_until_written(self) -> None:
        """Wait until all records are written."""
        await self.journal.wait_until_written()

    def has_turn(self, turn: int) -> bool:
        """Return whether a turn has been recorded, in whole or in part."""
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
        """Record the end of the attempt; `at` is in seconds since 1970 (default: now)."""
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

    def _make_error(self, what: str) -> ReplayDiffers:
        return ReplayDiffers(
            f"episode {self.journal.path.stem} cannot be resumed: {what} differs from its "
            "journal; resume with the version of assay that started it, or start over with "
            "--fresh"
        )

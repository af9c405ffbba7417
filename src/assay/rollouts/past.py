"""The turns an episode has in its journal, given back in their order while it is replayed.

Whatever the agent and the world do again must be what they did before: a difference means
that another version plays, and then nothing that follows could be trusted.
"""

from collections.abc import Sequence

from assay.agents import NewMessage
from assay.errors import JournalError
from assay.traces.records import CallRecord, PlayedRecord, SessionRecord
from assay.types import Message

__all__ = ["RecordedTurns"]


class RecordedTurns:
    """What was recorded of an episode; empty for a new one."""

    def __init__(self, session: SessionRecord | None = None) -> None:
        self._session = session
        self._calls = {call.turn: call for call in session.calls} if session else {}
        self._played = {played.turn: played for played in session.played} if session else {}
        self._messages = (
            {record.position: record.message for record in session.messages} if session else {}
        )

    @property
    def turns(self) -> int:
        """How many turns have an answer."""
        return len(self._calls)

    @property
    def attempts(self) -> int:
        """How many attempts came to an end."""
        end = self._session.end if self._session else None
        return end.attempts if end else 0

    def call(self, turn: int) -> tuple[CallRecord, Message] | None:
        """The call of a turn and its answer, if they were recorded."""
        call = self._calls.get(turn)
        return None if call is None else (call, self._messages[call.reply])

    def check_call(
        self, call: CallRecord, positions: Sequence[int], new: Sequence[NewMessage]
    ) -> None:
        """Raise JournalError unless the same messages would be sent again."""
        same = tuple(positions) == call.request and all(
            self._messages.get(message.position) == message.message for message in new
        )
        if not same:
            raise JournalError(self._words(f"the request of turn {call.turn}"))

    def check_played(self, played: PlayedRecord) -> PlayedRecord | None:
        """What was recorded of that turn, if anything; JournalError if it differs."""
        recorded = self._played.get(played.turn)
        if recorded is not None and recorded.steps != played.steps:
            raise JournalError(self._words(f"the steps of turn {played.turn}"))
        return recorded

    def _words(self, what: str) -> str:
        session = self._session.header.session_id if self._session else ""
        return (
            f"session {session} cannot go on: {what} came out differently than in its "
            "journal; resume with the version of assay that started it, or start anew "
            "with --fresh"
        )

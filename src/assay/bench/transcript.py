"""What a coding trial says and does, written down as it happens.

Every call of a model is in the journal before anybody acts on the answer. What was done since
is one turn, with a step for each action.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from assay.runs.model_calls import Asking
from assay.traces.call_totals import CallTotals
from assay.traces.recorder import Recorder
from assay.traces.records import MessageRecord, PlayedRecord, StepRecord
from assay.trials import Context
from assay.types import (
    ChatModel,
    ChatReply,
    ChatRequest,
    Encoded,
    Message,
    MessageType,
    NewMessage,
    PreparedRequest,
    Usage,
)

__all__ = ["CallSettings", "CodingTranscript"]

_KINDS = {"system": MessageType.SYSTEM, "tool": MessageType.FEEDBACK}


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How a model is asked."""

    temperature: float | None = None
    max_tokens: int = 4096
    seed: int | None = None


class CodingTranscript:
    """The messages and actions of one trial; the numbers say where it continues."""

    def __init__(
        self,
        recorder: Recorder,
        context: Context,
        *,
        turn: int = 0,
        position: int = 0,
        steps: int = 0,
    ) -> None:
        self.totals = CallTotals()
        """Tokens and dollars so far."""
        self.usage, self.calls = Usage(), 0
        self.answered_as: str | None = None
        """What the provider calls the model that answered last."""
        self.turn, self.position, self.steps = turn, position, steps
        self._recorder, self._context = recorder, context
        self._asking = Asking(recorder, self.totals, context)
        self._positions: dict[int, tuple[int, Message]] = {}
        self._acts: list[StepRecord] = []

    async def ask(
        self,
        model: ChatModel,
        messages: Sequence[Message],
        tools: Encoded,
        settings: CallSettings,
    ) -> ChatReply:
        """Ask a model, as the next turn."""
        await self.flush()
        self.turn += 1
        self._asking.turn = self.turn
        new = [self._place(message) for message in messages if not self._knows(message)]
        request = ChatRequest(
            model=model.name,
            messages=messages,
            tools=tools,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            seed=settings.seed,
        )
        positions = tuple(self._positions[id(message)][0] for message in messages)
        prepared = PreparedRequest(request, positions, self.position)
        reply = await self._asking.ask(model, prepared, new, self._place)
        self.usage += reply.usage
        self.calls += 1
        self.answered_as = reply.answered_as or self.answered_as
        return reply

    async def act(self, action: str, reward: float = 0.0) -> None:
        """Write down something that was done; the model sees what came of it by itself."""
        self.steps += 1
        self._acts.append(
            StepRecord(index=self.steps, action=action, reward=reward, digest=None)
        )

    async def graded(self, outcome: str, score: float) -> None:
        """Write down the grade, as a turn of its own that is rewarded with the score."""
        await self.flush()
        self.turn += 1
        await self.act(f"graded: {outcome}", score)
        await self.flush()

    async def tell(self, action: str, came_of_it: str) -> None:
        """Write down something that was done without a model, with what came of it."""
        if not self._acts:
            self.turn += 1
        await self.act(action)
        said = [
            self._place(Message({"role": "assistant", "content": action})),
            self._place(Message({"role": "user", "content": came_of_it})),
        ]
        now = time.time()
        self._recorder.add_messages(
            [
                MessageRecord(position, self.turn, message, kind, now)
                for position, message, kind in said
            ]
        )

    async def flush(self) -> None:
        """Write down what was done since the last call."""
        if not self._acts:
            return
        played = PlayedRecord(
            turn=self.turn,
            at=time.time(),
            asked=tuple(step.action for step in self._acts),
            steps=tuple(self._acts),
        )
        self._acts.clear()
        self._recorder.add_played(played)
        await self._recorder.kept()

    def _knows(self, message: Message) -> bool:
        return id(message) in self._positions

    def _place(self, message: Message) -> NewMessage:
        # The message is kept, so that its id stays its own.
        place = self.position
        self._positions[id(message)] = (place, message)
        self.position += 1
        default = MessageType.OBSERVATION
        if message.role == "assistant":
            called = message.value.get("tool_calls")
            default = MessageType.TOOL_CALL if called else MessageType.REPLY
        return NewMessage(place, message, _KINDS.get(message.role, default))

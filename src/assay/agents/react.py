"""The ReAct agent: the conversation of one episode.

Pure: it knows no model, no world and no files. The same views and replies give the same
messages, byte for byte, which is what resuming an episode relies on. Each message is made
once; a request only lists those that are sent, so a turn costs little more than its text.
"""

from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from assay.crafter import StepResult, View
from assay.crafter.rules import ACTIONS, NoEffect
from assay.crafter.text import Observation, full_text, observe, short_text
from assay.types import ChatRequest, Message

from .feedback import MARKER, report
from .options import AgentOptions
from .prompt import system_message, tools, up_to
from .reading import Decision, Reading, read_reply

if TYPE_CHECKING:
    from assay.traces.records import PlayedRecord, StepRecord

__all__ = ["MessageType", "NewMessage", "PreparedRequest", "ReactAgent"]


class MessageType(StrEnum):
    """What a message of the conversation is."""

    SYSTEM = "system"
    """The rules and the instructions."""
    OBSERVATION = "observation"
    """What was done and what can be seen."""
    TOOL_CALL = "tool_call"
    """A reply that calls tools."""
    REPLY = "reply"
    """A reply that calls none."""
    FEEDBACK = "feedback"
    """An answer without an observation."""


class PreparedRequest(NamedTuple):
    """A request, and where its messages stand in the conversation."""

    request: ChatRequest
    positions: tuple[int, ...]
    reply: int
    """The position that the answer will have."""


class NewMessage(NamedTuple):
    """A message at its position in the conversation, counted from 0."""

    position: int
    message: Message
    message_type: MessageType


class ReactAgent:
    """One conversation: `begin`, then `request`, `read` and `observe` turn by turn."""

    def __init__(
        self, options: AgentOptions, *, model: str, seed: int | None, max_turns: int
    ) -> None:
        self.tools = tools(options.actions_per_turn)
        """What every request offers."""
        self._options = options
        self._model, self._seed, self._max_turns = model, seed, max_turns
        self._write = short_text if options.view == "short" else full_text
        self._pinned: tuple[Message, ...] = ()
        self._turns: deque[list[Message]] = deque(maxlen=options.history)
        self._count = 0
        self._new: list[NewMessage] = []
        self._achieved: list[str] = []
        self._reading: Reading | None = None

    def begin(self, view: View) -> None:
        """Open the conversation with the rules and the first view."""
        options = self._options
        system = system_message(
            options.prompt,
            short=options.view == "short",
            actions_per_turn=options.actions_per_turn,
            history=options.history,
        )
        task = (
            f"The game begins. You have {self._max_turns} turns, each of "
            f"{up_to(options.actions_per_turn)}. Reach as many achievements as you can."
        )
        first = _user(f"{task}\n{MARKER}\n{self._write(observe(view))}")
        self._pinned = (system, first)
        self._add(system, MessageType.SYSTEM)
        self._add(first, MessageType.OBSERVATION)

    def request(self) -> PreparedRequest:
        """What to ask next."""
        options = self._options
        messages = [*self._pinned]
        for turn in self._turns:
            messages += turn
        recent = len(messages) - len(self._pinned)
        positions = (0, 1, *range(self._count - recent, self._count))
        request = ChatRequest(
            model=self._model,
            messages=messages,
            tools=self.tools,
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            seed=self._seed,
        )
        return PreparedRequest(request, positions, self._count)

    def read(self, reply: Message) -> Decision:
        """What a reply asks for; it becomes part of the conversation."""
        reading = read_reply(reply.value, self._options.actions_per_turn)
        self._reading = reading
        self._turns.append([reply])
        self._add(reply, MessageType.TOOL_CALL if reading.calls else MessageType.REPLY)
        return reading.decision

    def observe(self, played: "PlayedRecord", view: View) -> None:
        """Tell what came of the last reply."""
        reading = self._reading
        if reading is None:
            raise RuntimeError("observe() before read(): there is no reply to answer")
        for step in played.steps:
            self._achieved += step.unlocked
        told = report(
            played,
            max_turns=self._max_turns,
            cut=reading.decision.cut,
            limit=self._options.actions_per_turn,
            problems=reading.problems,
            achieved=self._achieved,
        )
        seen = _observation(view, played.steps[-1] if played.steps else None)
        content = f"{told}\n{MARKER}\n{self._write(seen)}"
        for call in reading.calls[:-1]:
            answer = _tool("See the answer to the last call of this turn.", call)
            self._answer(answer, MessageType.FEEDBACK)
        last = _tool(content, reading.calls[-1]) if reading.calls else _user(content)
        self._answer(last, MessageType.OBSERVATION)
        self._reading = None

    def take_new(self) -> list[NewMessage]:
        """The messages that were made since this was last asked."""
        new, self._new = self._new, []
        return new

    def _answer(self, message: Message, message_type: MessageType) -> None:
        self._turns[-1].append(message)
        self._add(message, message_type)

    def _add(self, message: Message, message_type: MessageType) -> None:
        self._new.append(NewMessage(self._count, message, message_type))
        self._count += 1


def _observation(view: View, last: "StepRecord | None") -> Observation:
    if last is None:
        return observe(view)
    result = StepResult(
        reward=last.reward,
        done=last.terminated or last.truncated,
        ended=None,
        unlocked=last.unlocked,
        no_effect=None if last.no_effect is None else NoEffect(last.no_effect),
    )
    return observe(view, action=ACTIONS.index(last.action), result=result)


def _user(content: str) -> Message:
    return Message({"role": "user", "content": content})


def _tool(content: str, call: str) -> Message:
    return Message({"role": "tool", "tool_call_id": call, "content": content})

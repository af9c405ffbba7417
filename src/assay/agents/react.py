"""The ReAct agent: the conversation of one episode.

It is pure: it has no access to models, worlds or files. The same views and replies give the
same messages, byte for byte, which resuming an episode relies on. Each message is made once,
and a request only lists messages, so a turn costs little more than its text.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from assay.agents.feedback import MARKER, format_report
from assay.agents.options import AgentOptions
from assay.agents.prompts import (
    CRAFTER,
    Game,
    format_action_count,
    make_system_message,
    make_tools,
)
from assay.agents.replies import Decision, ParsedReply, read_reply
from assay.types import ChatRequest, Message, MessageType, NewMessage, PreparedRequest

if TYPE_CHECKING:
    from assay.store.records import PlayedRecord, StepRecord


class ReactAgent:
    """One conversation: `begin`, then `request`, `read` and `observe` in every turn."""

    def __init__(
        self,
        options: AgentOptions,
        *,
        model: str,
        seed: int | None,
        max_turns: int,
        game: Game = CRAFTER,
    ) -> None:
        self.tools = make_tools(options.actions_per_turn, game.actions)
        """Tools offered in every request."""
        self._options = options
        self._model, self._seed, self._max_turns = model, seed, max_turns
        self._game, self._short = game, options.view == "short"
        self._pinned: tuple[Message, ...] = ()
        self._turns: deque[list[Message]] = deque(maxlen=options.history)
        self._count = 0
        self._new: list[NewMessage] = []
        self._achieved: list[str] = []
        self._reward = 0.0
        self._reading: ParsedReply | None = None

    def begin(self, view: Any) -> None:
        """Start the conversation with the rules and the first view."""
        options = self._options
        system = make_system_message(
            options.prompt,
            short=self._short,
            actions_per_turn=options.actions_per_turn,
            history=options.history,
            game=self._game,
        )
        task = (
            f"The game begins. You have {self._max_turns} turns, each of "
            f"{format_action_count(options.actions_per_turn)}. {self._game.goal}"
        )
        first = _make_user_message(f"{task}\n{MARKER}\n{self._describe_view(view, None)}")
        self._pinned = (system, first)
        self._add(system, MessageType.SYSTEM)
        self._add(first, MessageType.OBSERVATION)

    def request(self) -> PreparedRequest:
        """Return the next request to the model."""
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
        """Parse a reply, and add it to the conversation."""
        reading = read_reply(reply.value, self._options.actions_per_turn, self._game.actions)
        self._reading = reading
        self._turns.append([reply])
        self._add(reply, MessageType.TOOL_CALL if reading.calls else MessageType.REPLY)
        return reading.decision

    def observe(self, played: "PlayedRecord", view: Any) -> None:
        """Add the results of the last reply, and the new view, to the conversation."""
        reading = self._reading
        if reading is None:
            raise RuntimeError("observe() was called before read()")
        for step in played.steps:
            self._achieved += step.unlocked
            self._reward += step.reward
        report = format_report(
            played,
            max_turns=self._max_turns,
            cut=reading.decision.cut,
            limit=self._options.actions_per_turn,
            problems=reading.problems,
            results=[self._game.format_result(step) for step in played.steps],
            so_far=self._game.format_progress(self._achieved, self._reward),
            actions=self._game.actions,
        )
        observation = self._describe_view(view, played.steps[-1] if played.steps else None)
        content = f"{report}\n{MARKER}\n{observation}"
        for call in reading.calls[:-1]:
            response = _make_tool_message("See the answer to the last call of this turn.", call)
            self._add_to_turn(response, MessageType.FEEDBACK)
        last = (
            _make_tool_message(content, reading.calls[-1])
            if reading.calls
            else _make_user_message(content)
        )
        self._add_to_turn(last, MessageType.OBSERVATION)
        self._reading = None

    def _describe_view(self, view: Any, last: "StepRecord | None") -> str:
        return self._game.format_observation(view, last, short=self._short)

    def take_new(self) -> list[NewMessage]:
        """Return the messages added since the last call."""
        new, self._new = self._new, []
        return new

    def _add_to_turn(self, message: Message, message_type: MessageType) -> None:
        self._turns[-1].append(message)
        self._add(message, message_type)

    def _add(self, message: Message, message_type: MessageType) -> None:
        self._new.append(NewMessage(self._count, message, message_type))
        self._count += 1


def _make_user_message(content: str) -> Message:
    return Message({"role": "user", "content": content})


def _make_tool_message(content: str, call: str) -> Message:
    return Message({"role": "tool", "tool_call_id": call, "content": content})

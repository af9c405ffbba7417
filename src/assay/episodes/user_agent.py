"""User-defined agent as the player of an episode.

It runs in a thread, so that a hanging agent does not block others. After a resume it receives
the same views and the recorded responses, which restores its state. If it then decides
differently than before, its episode fails with an error.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from assay.agents.options import AgentOptions
from assay.agents.replies import Decision
from assay.agents.user_agents import OwnAgent, action_names
from assay.core.secrets import redact
from assay.core.user_code import UserThread
from assay.crafter.rules import ACTIONS
from assay.episodes.environments import OwnEnvironment, Seen
from assay.errors import UserCodeError
from assay.runs.model_calls import Asking
from assay.store.records import PlayedRecord
from assay.types import (
    ChatModel,
    ChatReply,
    ChatRequest,
    Encoded,
    Message,
    MessageType,
    NewMessage,
    PreparedRequest,
)


class OwnPlayer:
    """Passes each view to an agent, and returns its decision."""

    tools: Encoded | None = None

    def __init__(
        self,
        agent: OwnAgent,
        model: ChatModel | None,
        *,
        seed: int,
        options: AgentOptions,
        environment: OwnEnvironment | None,
        limit_s: float,
    ) -> None:
        self._agent, self._environment, self._options = agent, environment, options
        self._thread = UserThread(agent.name, limit_s)
        self._model = (
            None if model is None else _Conversation(model, seed, options, self._thread)
        )
        self._given = {"model": self._model, "seed": seed, "settings": options}
        self._act: Any = None
        self._view: Any = None

    async def begin(self, view: Any) -> None:
        """Create the agent."""
        self._act = await self._thread.call(lambda: self._agent.made(self._given))
        self.observe(None, view)

    async def decide(self, asking: Asking) -> Decision:
        """Return the actions that the agent chooses for its view."""
        if self._model is not None:
            self._model.asking, self._model.loop = asking, asyncio.get_running_loop()
        try:
            answer = await self._thread.call(lambda: self._act(self._view))
        except UserCodeError:
            await self._end_calls()
            raise
        await self._end_calls()
        asked, actions = self._named(answer)
        limit = self._options.actions_per_turn
        asked, cut = asked[:limit], max(0, len(asked) - limit)
        if actions is None:
            return Decision(asked=asked, actions=asked, cut=cut)
        asked = tuple(name if name in actions else redact(name) for name in asked)
        known = tuple(name for name in asked if name in actions)
        unknown = tuple(name for name in asked if name not in actions)
        return Decision(asked=asked, unknown=unknown, actions=known, cut=cut)

    def _named(self, answer: Any) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """Return the chosen actions as texts, and the names of all actions, if any."""
        environment = self._environment
        if environment is None or environment.actions is not None:
            actions = ACTIONS if environment is None else environment.actions
            return action_names(self._agent.name, answer, actions or ()), actions
        # A list may be one action or a sequence of actions; only the space could tell them
        # apart.
        try:
            return (environment.written(answer),), None
        except (TypeError, ValueError) as error:
            raise UserCodeError(f"{self._agent.name} chose {answer!r}: {error}") from error

    async def _end_calls(self) -> None:
        """End the calls of this turn with it, including those that are not awaited."""
        if self._model is None:
            return
        await self._model.end_calls()
        # An error of a call counts, even if the agent caught it.
        if self._model.trouble is not None:
            raise self._model.trouble

    def observe(self, played: PlayedRecord | None, view: Any) -> None:
        """Keep the new view."""
        self._view = view.observation if isinstance(view, Seen) else view

    def leave(self) -> None:
        """Let the thread end; a hanging agent can make no more calls."""
        if self._model is not None:
            self._model.asking = None
        self._thread.leave()


class _Conversation:
    """Model object given to an agent; see `assay.agents.user_agents.AgentModel`."""

    def __init__(
        self, model: ChatModel, seed: int, options: AgentOptions, thread: UserThread
    ) -> None:
        self.name = model.name
        self.asking: Asking | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.trouble: BaseException | None = None
        self._model, self._seed, self._options, self._thread = model, seed, options, thread
        self._positions: dict[bytes, int] = {}
        self._count = 0
        self._one_at_a_time = asyncio.Lock()

    def ask(self, messages: str | Sequence[Mapping[str, Any]], **more: Any) -> ChatReply:
        """Call the model, and wait for the response."""
        with self._thread.waiting():
            return self._started(messages, more).result()

    async def ask_async(
        self, messages: str | Sequence[Mapping[str, Any]], **more: Any
    ) -> ChatReply:
        """Call the model from a coroutine, which runs in an event loop of the agent."""
        with self._thread.waiting():
            return await asyncio.wrap_future(self._started(messages, more))

    async def end_calls(self) -> None:
        """Reject new calls, and wait for running ones."""
        self.asking = None
        async with self._one_at_a_time:
            pass

    def _started(
        self, messages: str | Sequence[Mapping[str, Any]], more: Mapping[str, Any]
    ) -> Future[ChatReply]:
        if self.loop is None or self.asking is None:
            raise UserCodeError("a model can be asked in act(view), and only until it returns")
        asked = self._ask(self.asking, messages, **more)
        return asyncio.run_coroutine_threadsafe(asked, self.loop)

    async def _ask(
        self,
        asking: Asking,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> ChatReply:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        options = self._options
        sent = [Message(dict(message)) for message in messages]
        request = ChatRequest(
            model=self.name,
            messages=sent,
            tools=Encoded([dict(tool) for tool in tools]),
            temperature=options.temperature if temperature is None else temperature,
            max_tokens=options.max_tokens if max_tokens is None else max_tokens,
            seed=self._seed,
        )
        # In the order of the calls: a resume must assign equal positions to the messages.
        async with self._one_at_a_time:
            new: list[NewMessage] = []
            positions = tuple(self._place(message, new) for message in sent)
            prepared = PreparedRequest(request, positions, self._count)

            def read(reply: Message) -> NewMessage:
                self._count += 1
                self._positions[reply.encoded] = prepared.reply
                return NewMessage(prepared.reply, reply, MessageType.REPLY)

            try:
                return await asking.ask(self._model, prepared, new, read)
            except BaseException as error:
                self.trouble = error
                raise

    def _place(self, message: Message, new: list[NewMessage]) -> int:
        """Return the position of a message in the session; each message is recorded once."""
        known = self._positions.get(message.encoded)
        if known is None:
            known = self._positions[message.encoded] = self._count
            self._count += 1
            new.append(NewMessage(known, message, message.role))
        return known

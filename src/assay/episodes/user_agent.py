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
from assay.agents.user_agents import UserAgent, convert_actions
from assay.core.secrets import redact
from assay.core.user_code import UserThread
from assay.crafter.rules import ACTIONS
from assay.episodes.environments import EnvironmentView, UserEnvironment
from assay.errors import UserCodeError
from assay.runs.model_calls import ModelCalls
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


class UserAgentPlayer:
    """Passes each view to an agent, and returns its decision."""

    tools: Encoded | None = None

    def __init__(
        self,
        agent: UserAgent,
        model: ChatModel | None,
        *,
        seed: int,
        options: AgentOptions,
        environment: UserEnvironment | None,
        limit_s: float,
    ) -> None:
        self._agent, self._environment, self._options = agent, environment, options
        self._thread = UserThread(agent.name, limit_s)
        self._model = (
            None if model is None else _Conversation(model, seed, options, self._thread)
        )
        self._arguments = {"model": self._model, "seed": seed, "settings": options}
        self._act: Any = None
        self._view: Any = None

    async def begin(self, view: Any) -> None:
        """Create the agent."""
        self._act = await self._thread.call(lambda: self._agent.make_act(self._arguments))
        self.observe(None, view)

    async def decide(self, model_calls: ModelCalls) -> Decision:
        """Return the actions that the agent chooses for its view."""
        if self._model is not None:
            self._model.model_calls, self._model.loop = model_calls, asyncio.get_running_loop()
        try:
            result = await self._thread.call(lambda: self._act(self._view))
        except UserCodeError:
            await self._end_calls()
            raise
        await self._end_calls()
        requested, actions = self._convert_answer(result)
        limit = self._options.actions_per_turn
        requested, cut = requested[:limit], max(0, len(requested) - limit)
        if actions is None:
            return Decision(asked=requested, actions=requested, cut=cut)
        requested = tuple(name if name in actions else redact(name) for name in requested)
        known = tuple(name for name in requested if name in actions)
        unknown = tuple(name for name in requested if name not in actions)
        return Decision(asked=requested, unknown=unknown, actions=known, cut=cut)

    def _convert_answer(self, result: Any) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        """Return the chosen actions as texts, and the names of all actions, if any."""
        environment = self._environment
        if environment is None or environment.actions is not None:
            actions = ACTIONS if environment is None else environment.actions
            return convert_actions(self._agent.name, result, actions or ()), actions
        # A list may be one action or a sequence of actions; only the space could tell them
        # apart.
        try:
            return (environment.format_action(result),), None
        except (TypeError, ValueError) as error:
            raise UserCodeError(f"{self._agent.name} returned {result!r}: {error}") from error

    async def _end_calls(self) -> None:
        """End the calls of this turn with it, including those that are not awaited."""
        if self._model is None:
            return
        await self._model.end_calls()
        # An error of a call counts, even if the agent caught it.
        if self._model.error is not None:
            raise self._model.error

    def observe(self, played: PlayedRecord | None, view: Any) -> None:
        """Keep the new view."""
        self._view = view.observation if isinstance(view, EnvironmentView) else view

    def close(self) -> None:
        """Let the thread end; a hanging agent can make no more calls."""
        if self._model is not None:
            self._model.model_calls = None
        self._thread.close()


class _Conversation:
    """Model object given to an agent; see `assay.agents.user_agents.AgentModel`."""

    def __init__(
        self, model: ChatModel, seed: int, options: AgentOptions, thread: UserThread
    ) -> None:
        self.name = model.name
        self.model_calls: ModelCalls | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.error: BaseException | None = None
        self._model, self._seed, self._options, self._thread = model, seed, options, thread
        self._positions: dict[bytes, int] = {}
        self._count = 0
        self._lock = asyncio.Lock()

    def ask(self, messages: str | Sequence[Mapping[str, Any]], **more: Any) -> ChatReply:
        """Call the model, and wait for the response."""
        with self._thread.waiting():
            return self._start_call(messages, more).result()

    async def ask_async(
        self, messages: str | Sequence[Mapping[str, Any]], **more: Any
    ) -> ChatReply:
        """Call the model from a coroutine, which runs in an event loop of the agent."""
        with self._thread.waiting():
            return await asyncio.wrap_future(self._start_call(messages, more))

    async def end_calls(self) -> None:
        """Reject new calls, and wait for running ones."""
        self.model_calls = None
        async with self._lock:
            pass

    def _start_call(
        self, messages: str | Sequence[Mapping[str, Any]], more: Mapping[str, Any]
    ) -> Future[ChatReply]:
        if self.loop is None or self.model_calls is None:
            raise UserCodeError("the model can be called only while act(view) is running")
        call = self._call_model(self.model_calls, messages, **more)
        return asyncio.run_coroutine_threadsafe(call, self.loop)

    async def _call_model(
        self,
        model_calls: ModelCalls,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> ChatReply:
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        options = self._options
        encoded = [Message(dict(message)) for message in messages]
        request = ChatRequest(
            model=self.name,
            messages=encoded,
            tools=Encoded([dict(tool) for tool in tools]),
            temperature=options.temperature if temperature is None else temperature,
            max_tokens=options.max_tokens if max_tokens is None else max_tokens,
            seed=self._seed,
        )
        # In the order of the calls: a resume must assign equal positions to the messages.
        async with self._lock:
            new: list[NewMessage] = []
            positions = tuple(self._find_position(message, new) for message in encoded)
            prepared = PreparedRequest(request, positions, self._count)

            def read(reply: Message) -> NewMessage:
                self._count += 1
                self._positions[reply.encoded] = prepared.reply
                return NewMessage(prepared.reply, reply, MessageType.REPLY)

            try:
                return await model_calls.call(self._model, prepared, new, read)
            except BaseException as error:
                self.error = error
                raise

    def _find_position(self, message: Message, new: list[NewMessage]) -> int:
        """Return the position of a message in the session; each message is recorded once."""
        position = self._positions.get(message.encoded)
        if position is None:
            position = self._positions[message.encoded] = self._count
            self._count += 1
            new.append(NewMessage(position, message, message.role))
        return position

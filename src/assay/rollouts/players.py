"""Who decides in an episode: the ReAct agent with its model, or an agent of the user's own."""

from typing import Any, Protocol

from assay.agents import Decision, ReactAgent
from assay.runs.model_calls import Asking
from assay.traces.records import PlayedRecord
from assay.types import ChatModel, Encoded, Message, NewMessage

__all__ = ["EpisodePlayer", "ReactPlayer"]


class EpisodePlayer(Protocol):
    """Decides turn by turn, from what it sees."""

    tools: Encoded | None
    """What its requests offer, if they are always the same."""

    async def begin(self, view: Any) -> None:
        """See the world for the first time."""
        ...

    async def decide(self, asking: Asking) -> Decision:
        """What to do in this turn."""
        ...

    def observe(self, played: PlayedRecord, view: Any) -> None:
        """See what came of it."""
        ...

    def leave(self) -> None:
        """The episode is over."""
        ...


class ReactPlayer:
    """The ReAct agent and its model: one call in each turn."""

    def __init__(self, agent: ReactAgent, model: ChatModel) -> None:
        self.tools: Encoded | None = agent.tools
        self._agent, self._model = agent, model

    async def begin(self, view: Any) -> None:
        """Open the conversation."""
        self._agent.begin(view)

    async def decide(self, asking: Asking) -> Decision:
        """Ask the model, and read its reply."""
        agent, decision = self._agent, Decision()

        def read(reply: Message) -> NewMessage:
            nonlocal decision
            decision = agent.read(reply)
            (answer,) = agent.take_new()
            return answer

        prepared = agent.request()
        await asking.ask(self._model, prepared, agent.take_new(), read)
        return decision

    def observe(self, played: PlayedRecord, view: Any) -> None:
        """Tell what came of the last reply."""
        self._agent.observe(played, view)

    def leave(self) -> None:
        """Nothing is held."""

"""A small loop that plays an episode in process: agent, built-in model and world."""

from dataclasses import dataclass, field

from assay.agents.builtin import BuiltinModel, make_builtin
from assay.agents.options import AgentOptions
from assay.agents.react import ReactAgent
from assay.agents.replies import Decision
from assay.crafter import World
from assay.store.records import PlayedRecord, StepRecord
from assay.types import ChatReply, ChatRequest, NewMessage

__all__ = ["Game", "play", "play_actions"]


@dataclass
class Game:
    """The requests, replies and steps of an episode."""

    world: World
    requests: list[ChatRequest] = field(default_factory=list)
    replies: list[ChatReply] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    played: list[PlayedRecord] = field(default_factory=list)
    messages: list[NewMessage] = field(default_factory=list)

    @property
    def achieved(self) -> list[str]:
        """The achievements that were unlocked."""
        return [name for name, count in self.world.achievements.items() if count]


def play_actions(world: World, turn: int, decision: Decision) -> PlayedRecord:
    """Carry out the actions of a decision until the episode ends."""
    steps: list[StepRecord] = []
    for action in decision.actions:
        if world.done:
            break
        result = world.step(action)
        steps.append(
            StepRecord(
                index=world.steps,
                action=action,
                reward=result.reward,
                digest=None,
                unlocked=result.unlocked,
                no_effect=result.no_effect,
                terminated=result.done,
            )
        )
    return PlayedRecord(
        turn=turn,
        at=0.0,
        asked=decision.asked,
        unknown=decision.unknown,
        malformed=decision.malformed,
        skipped=len(decision.actions) - len(steps),
        steps=tuple(steps),
    )


def play(
    model: str,
    seed: int,
    difficulty: str = "easy",
    *,
    turns: int = 100,
    options: AgentOptions | None = None,
) -> Game:
    """Play an episode with a built-in model."""
    options = options or AgentOptions()
    player = make_builtin(model)
    assert isinstance(player, BuiltinModel)
    game = Game(World(seed, difficulty))
    agent = ReactAgent(options, model=model, seed=seed, max_turns=turns)
    agent.begin(game.world.view())
    for turn in range(1, turns + 1):
        requested = agent.request()
        reply = player.answer(requested.request)
        decision = agent.read(reply.message)
        played = play_actions(game.world, turn, decision)
        game.requests.append(requested.request)
        game.replies.append(reply)
        game.decisions.append(decision)
        game.played.append(played)
        if game.world.done:
            break
        agent.observe(played, game.world.view())
    game.messages = agent.take_new()
    return game

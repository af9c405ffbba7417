"""A model, worlds and an agent that only have the sizes of the workload.

The model and the worlds hand out prepared values, as the mock model and the tool of the peer
do. The agent is ours, with the texts of the workload in the places of its own.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

from assay.agents import AgentOptions, ReactAgent
from assay.crafter import ACHIEVEMENTS, ITEMS, Difficulty, View
from assay.crafter.service.results import Checkpoint, Started, StepReply, adapter
from assay.crafter.text.observation import observe
from assay.episodes import kind
from assay.episodes.arms import make_arms
from assay.episodes.config import RunConfig
from assay.episodes.kind import EpisodeKind, EpisodeParts
from assay.metrics import DEFAULT_HOOKS
from assay.models.budget import Budget
from assay.runs.control import Retries
from assay.runs.prepare import prepare_run
from assay.runs.run import RunResult, execute_run
from assay.types import ChatModel, ChatReply, ChatRequest, Message, MessageType, Usage
from perf.peers import workload

__all__ = ["StubModel", "StubWorlds", "stub_agent", "stub_kind", "stub_run"]

_USAGE: Final = Usage(prompt=workload.PROMPT_TOKENS, completion=workload.REPLY_TOKENS)


class StubModel:
    """Answers every request with one tool call; the seed of a request names its episode."""

    name = "stub"
    provider = "stub"

    def __init__(self, budget: Budget | None = None) -> None:
        """With a budget, money is set aside for every call and a part of it spent."""
        self._turns = Counter[int]()
        self._budget = budget

    async def reply(self, request: ChatRequest) -> ChatReply:
        number = request.seed or 0
        reserved = await self._budget.reserve(0.002) if self._budget is not None else None
        turn = self._turns[number]
        self._turns[number] = turn + 1
        function = {
            "name": "interact",
            "arguments": json.dumps(workload.arguments_of(number, turn)),
        }
        call = {"id": f"call_{number}_{turn}", "type": "function", "function": function}
        message = Message({"role": "assistant", "content": "", "tool_calls": [call]})
        if reserved is not None:
            reserved.settle(0.001)
        return ChatReply(message, "tool_calls", _USAGE, cost_usd=0.0)

    async def close(self) -> None:
        """Nothing is open."""


class StubWorlds:
    """Worlds in which nothing ever changes."""

    def __init__(self) -> None:
        self._count = 0
        info = {
            "terminated": False,
            "truncated": False,
            "rewards": [0.0] * 3,
            "unlocked": [[]] * 3,
            "no_effect": [None] * 3,
            "digests": ["0123456789abcdef"] * 3,
            "inventories": [_INVENTORY] * 3,
            "skipped": 0,
        }
        self._reply = adapter(StepReply).validate_python(
            {"observation": _OBSERVATION, "reward": 0.0, "done": False, "info": info}
        )

    async def initialize(
        self,
        seed: int | None = None,
        difficulty: str | Difficulty | Mapping[str, float] = "classic",
        length: int = 10_000,
        *,
        include: Sequence[str] = ("view",),
    ) -> Started:
        self._count += 1
        info = {"seed": seed, "episode": 1, "difficulty": "easy", "length": length}
        return adapter(Started).validate_python(
            {
                "env_id": str(self._count),
                "observation": _OBSERVATION,
                "done": False,
                "info": info | {"digest": "0123456789abcdef"},
            }
        )

    async def step(self, env_id: str, *actions: int | str) -> StepReply:
        return self._reply

    async def terminate(self, env_id: str) -> None:
        """Nothing is kept."""

    async def checkpoint(self, env_id: str) -> Checkpoint:
        raise NotImplementedError

    async def restore(self, checkpoint: Checkpoint) -> Started:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""


class _StubAgent(ReactAgent):
    """Our agent, with texts of the workload's sizes; its report of a turn comes on top."""

    def __init__(self, options: AgentOptions, *, seed: int | None, **rest: Any) -> None:
        super().__init__(options, seed=seed, **rest)
        self._number, self._shown = seed or 0, 0

    def begin(self, view: View) -> None:
        system = Message({"role": "system", "content": workload.SYSTEM})
        text = workload.OPENING + workload.observation_of(self._number, 0)
        first = Message({"role": "user", "content": text})
        self._pinned = (system, first)
        self._add(system, MessageType.SYSTEM)
        self._add(first, MessageType.OBSERVATION)

    def _write(self, view: View, last: Any) -> str:
        observe(view)
        self._shown += 1
        return workload.observation_of(self._number, self._shown)


def stub_kind(config: RunConfig, model: ChatModel) -> EpisodeKind:
    """Episodes of a run in stub worlds, with one model."""
    parts = EpisodeParts(StubWorlds, DEFAULT_HOOKS)
    return EpisodeKind(config, make_arms(config, {}), lambda _: parts, {"stub": model})


@contextmanager
def stub_agent() -> Iterator[None]:
    """Have episodes of a model played by the agent with the stub's texts, and no others."""
    before = vars(kind)["ReactAgent"]
    vars(kind)["ReactAgent"] = _StubAgent
    try:
        yield
    finally:
        vars(kind)["ReactAgent"] = before


def stub_run(settings: Mapping[str, Any], model: ChatModel) -> RunResult:
    """Play a run of such episodes."""
    prepared = prepare_run(RunConfig, lambda config: make_arms(config, {}), settings)
    with stub_agent():
        return execute_run(prepared, stub_kind(prepared.config, model), retries=Retries(seed=0))


_INVENTORY: Final = dict.fromkeys(ITEMS, 5)
_GRASS: Final = [[2] * 7 for _ in range(9)]


def _make_empty_grid(code: int) -> list[list[int]]:
    """Return a grid with only the player, in its centre."""
    return [[code if (x, y) == (4, 3) else 0 for y in range(7)] for x in range(9)]


_OBSERVATION: Final[dict[str, Any]] = {
    "inventory": _INVENTORY,
    "achievements_status": dict.fromkeys(ACHIEVEMENTS, False),
    "player_position": (32, 32),
    "player_direction": (0, 1),
    "semantic_map": None,
    "world_material_map": None,
    "observation_image": None,
    "view": {
        "materials": _GRASS,
        "objects": _make_empty_grid(13),
        "details": _make_empty_grid(4),
        "sleeping": False,
        "daylight": 1.0,
    },
    "num_steps_taken": 3,
    "max_steps_episode": 10_000,
    "error_info": None,
    "reward_last_step": 0.0,
    "total_reward_episode": 0.0,
    "terminated": False,
    "truncated": False,
}

"""User code for tests: a bandit environment, agents and a model."""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from assay.api.runs import run
from assay.runs.run import RunResult
from assay.types import ChatReply, ChatRequest, Message, Usage

__all__ = [
    "AGENTS",
    "BANDIT",
    "EXECUTORS",
    "CountedModel",
    "count_calls",
    "errors_of",
    "play_in",
]

EXECUTORS = ("asyncio", pytest.param("processes", marks=pytest.mark.extras))
"""The executors of trials."""

BANDIT = '''
import random


class Bandit:
    """Two arms, one of them better."""

    actions = ("left", "right")
    outcomes = {"regret": "lower"}

    def reset(self, seed):
        self.random = random.Random(seed)
        self.chances = [self.random.random() for _ in self.actions]
        self.pulls, self.regret = 0, 0.0
        return "Pull an arm."

    def step(self, action):
        chance = self.chances[self.actions.index(action)]
        self.pulls += 1
        self.regret += max(self.chances) - chance
        won = self.random.random() < chance
        return "It paid." if won else "Nothing.", float(won), self.pulls >= 10
'''

AGENTS = '''
def left(seen):
    return "left"


class Switching:
    """Takes the other arm after a loss."""

    def __init__(self):
        self.now = 0

    def act(self, seen):
        self.now ^= seen == "Nothing."
        return self.now


class Leaning:
    """Asks its model about a number, and leans with the pole."""

    def __init__(self, model):
        self.model = model

    def act(self, seen):
        self.model.ask(f"The pole leans by {seen[2]:.3f}.")
        return int(seen[2] > 0)


class Twice:
    """Keeps state, and asks its model twice a turn: for a plan, then for a step of it."""

    def __init__(self, model, seed):
        self.model, self.said = model, [f"world {seed}"]

    def act(self, view):
        plan = self.model.ask(f"Plan {len(self.said)}, after {self.said[-1]!r}?").message.text
        step = self.model.ask(
            [{"role": "user", "content": "Step?"}, {"role": "assistant", "content": plan}]
        )
        self.said.append(step.message.text)
        return "move_left" if len(self.said) % 2 else ["move_right", "do"]
'''


class CountedModel:
    """Appends a byte to the file `asked` per call; plays the first action of the prompt."""

    provider = "test"

    def __init__(
        self,
        name: str = "counted",
        *,
        pause: float = 0.001,
        trouble: Callable[[int], None] | None = None,
        cost_usd: float | None = 0.0,
    ) -> None:
        self.name, self.requests = name, list[ChatRequest]()
        self._pause, self._trouble, self._cost = pause, trouble, cost_usd

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        with Path("asked").open("ab") as file:
            file.write(b".")
        await asyncio.sleep(self._pause)
        if self._trouble is not None:
            self._trouble(len(self.requests))
        return ChatReply(
            Message(_answer(request)), usage=Usage(10, 5), cost_usd=self._cost, latency_s=0.001
        )

    async def close(self) -> None:
        """Do nothing: the model opens nothing."""


def _answer(request: ChatRequest) -> dict[str, Any]:
    text = f"answer to {request.messages[-1].text[:40]}"
    if not request.tools.value:
        return {"role": "assistant", "content": text}
    function = request.tools.value[0]["function"]
    actions = function["parameters"]["properties"]["actions"]["items"]["enum"]
    arguments = json.dumps({"actions": [actions[0]], "reasoning": text})
    call = {"name": function["name"], "arguments": arguments}
    tool = {"id": f"call_{len(request.messages)}", "type": "function", "function": call}
    return {"role": "assistant", "content": None, "tool_calls": [tool]}


def count_calls(folder: Path) -> int:
    """Count the model calls in a folder."""
    path = folder / "asked"
    return path.stat().st_size if path.exists() else 0


def play_in(folder: Path, **settings: Any) -> RunResult:
    """Run `assay.run` in a folder with the bandit and the agents; no baselines by default."""
    (folder / "bandit.py").write_text(BANDIT, "utf-8")
    if not (folder / "agents.py").exists():
        (folder / "agents.py").write_text(AGENTS, "utf-8")
    with chdir(folder):
        return run(**{"baselines": False, "save_traces": False, **settings})


def errors_of(result: RunResult, arm: str) -> Sequence[str]:
    """Return the error of each episode of an arm."""
    return [row.error_message or "" for row in result.episodes if row.model == arm]

"""People play: a person takes the place of a model, in an ordinary run of one episode.

The person is a model of the provider `human`, whose replies are the actions chosen in a page.
The episode is therefore recorded, limited, stored, verified and compared as any other. A second
world follows the same actions, so that a page is shown each state at once, and the states after
all possible actions before one is chosen.
"""

import asyncio
import json
import queue
import re
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final
from uuid import uuid4

from assay.core.text import unknown_name
from assay.crafter.difficulty import DIFFICULTIES
from assay.crafter.film import film_frame
from assay.crafter.rules import ACTIONS
from assay.crafter.text.forms import full_text
from assay.crafter.text.observation import observe
from assay.crafter.world import StepResult, World
from assay.episodes.replay import Replay
from assay.errors import AssayError, EpisodeOver, UsageError
from assay.report.viewer.library import Library, Missing, Runs
from assay.store.records import SessionRecord
from assay.store.viewing import run_worlds
from assay.types import ChatReply, ChatRequest, Message

_NAME: Final = re.compile(r"\w[\w.-]{0,39}")
_MOST: Final = 8
"""Episodes that are played at the same time."""
_IDLE_S: Final = 3600.0
_GIVEN_UP: Final = "the player left"


class ForkPrice(UsageError):
    """A remote model would cost money; `usd` is the estimate that a person must accept."""

    def __init__(self, message: str, usd: float) -> None:
        super().__init__(message)
        self.usd = usd


class Person:
    """A person as a model: each reply is a list of actions, or the end of the game."""

    provider = "human"

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"name {name!r} is not allowed; give 1 to 40 letters, digits, '.', '_' and '-'"
            )
        self.name = f"human/{name}"
        self._chosen: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()

    def choose(self, actions: Sequence[str]) -> None:
        """Give the actions of the next turn."""
        self._chosen.put(("interact", {"actions": list(actions)}))

    def leave(self, reason: str) -> None:
        """End the game in the next turn."""
        self._chosen.put(("terminate", {"reason": reason}))

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Wait for the person."""
        started = time.monotonic()
        tool, arguments = await asyncio.to_thread(self._chosen.get)
        call = {
            "id": f"call_{uuid4().hex[:12]}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        message = Message({"role": "assistant", "content": "", "tool_calls": [call]})
        taken = time.monotonic() - started
        return ChatReply(message, "tool_calls", cost_usd=0.0, latency_s=taken)

    async def close(self) -> None:
        """Do nothing: there are no connections."""


@dataclass
class PlayedGame:
    """One episode that a person plays."""

    id: str
    person: Person
    world: World
    max_turns: int
    actions_per_turn: int
    turn: int = 0
    reward: float = 0.0
    unlocked: list[str] = field(default_factory=list)
    last: tuple[str, StepResult] | None = None
    run_id: str | None = None
    error: str | None = None
    over: bool = False
    touched: float = field(default_factory=time.monotonic)
    thread: threading.Thread | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def act(self, actions: Sequence[Any]) -> list[str]:
        """Carry out the actions of one turn; return the achievements they unlock."""
        if self.over:
            raise EpisodeOver("the episode has ended; start another")
        if not 1 <= len(actions) <= self.actions_per_turn:
            raise UsageError(f"a turn has 1 to {self.actions_per_turn} actions")
        for action in actions:
            if action not in ACTIONS:
                raise UsageError(unknown_name("action", str(action)[:40], ACTIONS))
        new: list[str] = []
        for action in actions:
            result = self.world.step(action)
            self.last = action, result
            self.reward = round(self.reward + result.reward, 6)
            new += result.unlocked
            if result.done:
                break
        self.turn += 1
        self.unlocked += new
        self.over = self.world.done or self.turn >= self.max_turns
        self.person.choose(actions)
        return new

    def state(self, new: Sequence[str] = ()) -> dict[str, Any]:
        """Return what a page shows."""
        action, result = self.last or (None, None)
        index = None if action is None else ACTIONS.index(action)
        return {
            "play": self.id,
            "model": self.person.name,
            "seed": self.world.seed,
            "difficulty": self.world.difficulty_name,
            "step": self.world.steps,
            "turn": self.turn,
            "max_turns": self.max_turns,
            "actions_per_turn": self.actions_per_turn,
            "reward": self.reward,
            "unlocked": list(self.unlocked),
            "new": list(new),
            "no_effect": result and result.no_effect,
            "done": self.over,
            "ended": self.world.ended,
            "frame": _encoded(self.world),
            "text": full_text(observe(self.world.view(), action=index, result=result)),
            "next": {} if self.over else {name: _preview(self.world, name) for name in ACTIONS},
            "session": None,
        }


def _encoded(world: World) -> str:
    return b64encode(film_frame(world).tobytes()).decode()


def _preview(world: World, action: str) -> dict[str, Any]:
    after = world.fork()
    result = after.step(action)
    return {
        "frame": _encoded(after),
        "no_effect": result.no_effect,
        "unlocked": list(result.unlocked),
        "done": result.done,
    }


class Games:
    """The episodes that people play in this viewer."""

    def __init__(self, library: Library, runs: Runs) -> None:
        self._library, self.runs = library, runs
        self._games: dict[str, PlayedGame] = {}
        self._lock = threading.Lock()

    def start(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Start an episode in a new world, or continue a stored one."""
        person = Person(str(given.get("name", "")))
        if "episode" in given:
            game, begin = self._forked(person, given)
        else:
            game, begin = self._new(person, given)

        def run() -> None:
            try:
                game.run_id = begin()
            except (AssayError, OSError) as error:
                game.error = str(error)

        game.thread = threading.Thread(target=run, daemon=True)
        with self._lock:
            self._leave_idle()
            if len(self._games) >= _MOST:
                raise UsageError(f"{_MOST} episodes are played already; end one first")
            self._games[game.id] = game
        game.thread.start()
        return game.state()

    def _new(
        self, person: Person, given: Mapping[str, Any]
    ) -> tuple[PlayedGame, Callable[[], str]]:
        seed = _number(given, "seed", 0, 0, 2**31 - 1)
        difficulty = str(given.get("difficulty"))
        if difficulty not in DIFFICULTIES:
            raise UsageError(unknown_name("difficulty", difficulty[:40], DIFFICULTIES))
        turns = _number(given, "max_turns", 100, 1, 10_000)
        actions = _number(given, "actions_per_turn", 1, 1, 50)
        game = PlayedGame(uuid4().hex, person, World(seed, difficulty), turns, actions)
        settings = {
            "seed": seed,
            "difficulty": difficulty,
            "max_turns": turns,
            "actions_per_turn": actions,
        }
        return game, lambda: self.runs.play(person, **settings)

    def _forked(
        self, person: Person, given: Mapping[str, Any]
    ) -> tuple[PlayedGame, Callable[[], str]]:
        key = self._library.resolve(str(given["episode"]))
        session = self._library.session(key)
        step = _number(given, "step", 0, 0, 10**6)
        turn = _turns_within(session, step)
        replay = Replay(session)
        shared = sum(len(played.steps) for played in session.played[:turn])
        for _ in islice(replay, shared):
            pass
        metadata = session.header.metadata
        turns = metadata.get("limits", {}).get("turns") or 10_000
        actions = metadata.get("agent", {}).get("actions_per_turn") or 1
        game = PlayedGame(uuid4().hex, person, replay.world, turns, actions, turn)
        game.reward, game.unlocked = replay.reward, list(replay.unlocked)
        return game, lambda: self.runs.fork(key, turn, [person])

    def act(self, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one turn; the end of the episode stores it."""
        game = self._find(key)
        actions = given.get("actions")
        if not isinstance(actions, list):
            raise UsageError("actions is a list of names")
        with game.lock:
            game.touched = time.monotonic()
            new = game.act(actions)
            state = game.state(new)
        return {**state, "session": self._stored(game)} if game.over else state

    def end(self, key: str) -> dict[str, Any]:
        """End an episode now, and store it."""
        game = self._find(key)
        with game.lock:
            if not game.over:
                game.over = True
                game.person.leave(_GIVEN_UP)
        return {"session": self._stored(game)}

    def close(self) -> None:
        """End all episodes, when the viewer stops."""
        for game in list(self._games.values()):
            game.person.leave(_GIVEN_UP)
        for game in list(self._games.values()):
            if game.thread is not None:
                game.thread.join(_CLOSING_S)

    def _find(self, key: str) -> PlayedGame:
        found = self._games.get(key)
        if found is None:
            raise Missing("this episode is not played here any more; see the list of episodes")
        return found

    def _stored(self, game: PlayedGame) -> str:
        """Return the stored episode, when its run has ended."""
        assert game.thread is not None
        game.thread.join()
        self._games.pop(game.id, None)
        if game.run_id is None:
            raise UsageError(f"the episode could not be stored: {game.error}")
        with self._library.reading() as connection:
            (row,) = run_worlds(connection, game.run_id)
        return str(row["id"])

    def _leave_idle(self) -> None:
        for key, game in list(self._games.items()):
            if time.monotonic() - game.touched > _IDLE_S:
                game.person.leave(_GIVEN_UP)
                del self._games[key]


_CLOSING_S: Final = 10.0


def _turns_within(session: SessionRecord, step: int) -> int:
    """Return the number of whole turns up to a step: a fork shares turns with its parent."""
    made = turns = 0
    for played in session.played:
        made += len(played.steps)
        if made > step:
            break
        turns += 1
    return min(turns, len(session.played) - 1)


def _number(given: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = given.get(name, default)
    if type(value) is not int or not low <= value <= high:
        raise UsageError(f"{name} {str(value)[:40]!r} is not allowed; give {low} to {high}")
    return value


def fork_episode(library: Library, runs: Runs, given: Mapping[str, Any]) -> dict[str, Any]:
    """Continue a stored episode after a turn, by a built-in model or another one."""
    key = library.resolve(str(given.get("episode", "")))
    session = library.session(key)
    turn = _number(given, "turn", 0, 0, 10**6)
    if "step" in given:
        turn = _turns_within(session, _number(given, "step", 0, 0, 10**6))
    model = given.get("model") or f"builtin/{given.get('policy', '')}"
    if not isinstance(model, str):
        raise UsageError("model is the name of a model")
    run_id = runs.fork(key, turn, [model], accept_usd=given.get("accept_usd"))
    with library.reading() as connection:
        (row,) = run_worlds(connection, run_id)
    return {"session": row["id"]}

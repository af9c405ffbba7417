"""Steps over HTTP, against a stub of the 62 KB per step that the old service sent."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from assay.crafter import World
from assay.crafter.difficulty import DIFFICULTIES
from assay.crafter.rules import ACTIONS
from assay.crafter.service.client import LocalClient
from assay.episodes.worlds import CrafterWorld

from .games import make_actions, make_seeds
from .measure import Row, Topic, size
from .servers import start_server

__all__ = ["TOPIC"]

_ENV: Final = "/env/CrafterClassic"
_STEPS: Final = size(640, 64)
_STUB_STEPS: Final = size(64, 32)
_BATCH: Final = 64
_GAMES: Final = size(8, 1)
_OLD: Final = Path(__file__).resolve().parent / "peers" / "old_service.py"
_Play = Callable[[aiohttp.ClientSession, int], Awaitable[None]]


def _start_our_service() -> str:
    options = ("--port", "0", "--max-instances", "50000", "--json")
    return start_server("-m", "assay", "serve", *options)


def _start_stub() -> str:
    return start_server(str(_OLD))


def _make_step_body(env_id: str, action: int) -> dict[str, Any]:
    calls = [{"tool": "interact", "args": {"action": action}}]
    return {"env_id": env_id, "action": {"tool_calls": calls}}


async def _post_json(session: aiohttp.ClientSession, path: str, body: Any) -> Any:
    async with session.post(f"{_ENV}/{path}", data=json.dumps(body)) as answer:
        return json.loads(await answer.read())


async def _start_episode(session: aiohttp.ClientSession, seed: int) -> str:
    return str((await _post_json(session, "initialize", {"config": {"seed": seed}}))["env_id"])


def _choose_seed(turn: int, world: int) -> int:
    return 1000 * (turn + 2) + world


async def _time_steps(address: str, connections: int, steps: int, play: Any) -> float:
    """Seconds per step, with this many connections at once; making worlds is not counted."""
    # One more, for a WebSocket keeps its own.
    connector = aiohttp.TCPConnector(limit=connections + 1)
    async with aiohttp.ClientSession(address, connector=connector) as session:
        return float(await play(session, connections, steps // connections)) / steps


async def _play_single_steps(
    session: aiohttp.ClientSession, connections: int, steps: int, *, turn: int, old: bool
) -> float:
    ids = [
        "none" if old else await _start_episode(session, _choose_seed(turn, n))
        for n in range(connections)
    ]

    async def episode(number: int) -> None:
        env_id = ids[number]
        for action in make_actions(_choose_seed(turn, number))[:steps].tolist():
            reply = await _post_json(session, "step", _make_step_body(env_id, action))
            if reply["done"]:
                env_id = await _start_episode(session, _choose_seed(turn, number))

    started = time.perf_counter()
    await asyncio.gather(*(episode(number) for number in range(connections)))
    return time.perf_counter() - started


def _time_http_steps(turn: int, connections: int) -> float:
    play = partial(_play_single_steps, turn=turn, old=False)
    return asyncio.run(_time_steps(_start_our_service(), connections, _STEPS, play))


def _time_old_http_steps(turn: int, connections: int) -> float:
    play = partial(_play_single_steps, turn=turn, old=True)
    return asyncio.run(_time_steps(_start_stub(), connections, _STUB_STEPS, play))


async def _play_many_steps(
    session: aiohttp.ClientSession, _: int, steps: int, *, turn: int, size: int, socket: bool
) -> float:
    """Messages of `size` steps, one step per world each."""
    ids = [await _start_episode(session, _choose_seed(turn, n)) for n in range(size)]
    plans = [make_actions(_choose_seed(turn, n))[: steps // size].tolist() for n in range(size)]
    line = await session.ws_connect(f"{_ENV}/ws", max_msg_size=0) if socket else None
    started = time.perf_counter()
    for actions in zip(*plans, strict=True):
        bodies = [
            _make_step_body(env_id, action) for env_id, action in zip(ids, actions, strict=True)
        ]
        if line is None:
            replies = await _post_json(session, "batch", bodies)
        else:
            await line.send_str(json.dumps(bodies))
            replies = json.loads(await line.receive_str())
        for number, reply in enumerate(replies):
            if reply["done"]:
                ids[number] = await _start_episode(session, _choose_seed(turn, number))
    seconds = time.perf_counter() - started
    if line is not None:
        await line.close()
    return seconds


def _time_batch_steps(turn: int) -> float:
    play = partial(_play_many_steps, turn=turn, size=_BATCH, socket=False)
    return asyncio.run(_time_steps(_start_our_service(), 1, 10 * _STEPS, play))


def _time_socket_steps(turn: int, size: int) -> float:
    play = partial(_play_many_steps, turn=turn, size=size, socket=True)
    return asyncio.run(
        _time_steps(_start_our_service(), 1, _STEPS * (1 if size == 1 else 10), play)
    )


def _time_local_step(turn: int) -> float:
    async def play() -> float:
        client, seed = LocalClient(), _choose_seed(turn, 0)
        env_id = (await client.initialize(seed, include=())).env_id
        started = time.perf_counter()
        for action in make_actions(seed)[:_STEPS].tolist():
            if (await client.step(env_id, action)).done:
                env_id = (await client.initialize(seed, include=())).env_id
        return (time.perf_counter() - started) / _STEPS

    return asyncio.run(play())


def _time_local_view(turn: int) -> float:
    """CPU of a step as an episode of a run makes it."""

    async def play() -> float:
        seconds, steps = 0.0, 0
        for seed in make_seeds(turn, _GAMES):
            world = CrafterWorld(seed, DIFFICULTIES["classic"])
            await world.begin()
            names = [ACTIONS[action] for action in make_actions(seed)[:_STEPS].tolist()]
            began = time.process_time()
            for made, action in enumerate(names):
                ended = (await world.step((action,), made)).ended
                steps += 1
                if ended is not None:
                    break
            seconds += time.process_time() - began
        return seconds / steps

    return asyncio.run(play())


def _time_bare_view(turn: int) -> float:
    """CPU of the same things, asked of the world itself."""
    seconds, steps = 0.0, 0
    for seed in make_seeds(turn, _GAMES):
        world = World(seed)
        began = time.process_time()
        for action in make_actions(seed)[:_STEPS].tolist():
            done = world.step(action).done
            _ = world.view(), world.digest(), world.inventory
            steps += 1
            if done:
                break
        seconds += time.process_time() - began
    return seconds / steps


def _time_engine_step(turn: int) -> float:
    seed = _choose_seed(turn, 0)
    world, seconds = World(seed), 0.0
    actions = make_actions(seed)[:_STEPS].tolist()
    for action in actions:
        started = time.perf_counter()
        done = world.step(action).done
        seconds += time.perf_counter() - started
        if done:
            world = World(seed)
    return seconds / len(actions)


def _make_row(name: str, what: str, side: str, peer: str, against: str) -> Row:
    return Row(
        name=name,
        what=what,
        ours=side,
        peer=peer,
        against=f"62 KB per step, {against}",
        target=10,
    )


def _make_cost_row(name: str, what: str, side: str) -> Row:
    return Row(
        name=name, what=what, ours=side, peer="engine", against="World.step", cost="steps"
    )


TOPIC: Final = Topic(
    name="service",
    unit="step",
    sides={
        "engine": _time_engine_step,
        "local": _time_local_step,
        "local view": _time_local_view,
        "bare view": _time_bare_view,
        "http": partial(_time_http_steps, connections=1),
        "http 16": partial(_time_http_steps, connections=16),
        "batch": _time_batch_steps,
        "socket": partial(_time_socket_steps, size=1),
        "socket 64": partial(_time_socket_steps, size=_BATCH),
        "old": partial(_time_old_http_steps, connections=1),
        "old 16": partial(_time_old_http_steps, connections=16),
    },
    rows=(
        _make_row("http", "HTTP, one at a time", "http", "old", "one at a time"),
        _make_row("http-16", "HTTP, 16 connections", "http 16", "old 16", "16 connections"),
        _make_row("batch", f"HTTP, batches of {_BATCH}", "batch", "old 16", "16 connections"),
        _make_row("socket", "WebSocket, one step a message", "socket", "old", "one at a time"),
        _make_row(
            "socket-64", f"WebSocket, {_BATCH} a message", "socket 64", "old", "one at a time"
        ),
        _make_cost_row("local-cost", "LocalClient, in process", "local"),
        Row(
            name="local-view",
            what="A step of an episode, in process",
            ours="local view",
            peer="bare view",
            against="World.step, view, digest and inventory",
            cost="x",
            most=2.0,
            peer_unit="step",
        ),
        _make_cost_row("http-cost", "HTTP, one at a time", "http"),
        _make_cost_row("batch-cost", f"HTTP, batches of {_BATCH}", "batch"),
        _make_cost_row("socket-64-cost", f"WebSocket, {_BATCH} a message", "socket 64"),
    ),
    notes=(
        "Wall time per step, server and client on the same machine, each in a separate "
        "process; "
        "the client is aiohttp with the standard library's json on both sides. The peer is a "
        "stub that plays nothing and sends what the old service sent (perf/peers/"
        "old_service.py); it lacks FastAPI's own encoding, so it is quicker than that was. "
        "local-view is CPU time, of games played to their ends, resets excluded. "
        "Of a step that costs n World.steps, the share 1 - 1/n is spent outside the engine.",
    ),
)

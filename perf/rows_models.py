"""Models over HTTP: what a turn costs, how many play at once, and how well limits are used."""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

import aiohttp

from .measure import QUICK, Row, Topic, size
from .peers import workload
from .processes import INSPECT_PYTHON, PeerFailed, run_module
from .servers import start_model_server, start_server
from .sides.model_runs import Load, running_load, wall_time

__all__ = ["AT_ONCE", "INSPECT_SIDES", "PACE", "TOPIC"]

_LIMIT: Final = 1200
_EPISODES: Final = size(16, 2)
INSPECT_SIDES: Final = ("inspect http",)
"""The sides that need Inspect AI."""


def _make_cpu_side(module: str, **more: Any) -> Callable[[int], float]:
    def side(_turn: int) -> float:
        address = start_server("-m", "perf.peers.stub_chat")
        options = ("--episodes", str(_EPISODES), "--address", address)
        return run_module(module, *options, timeout=_LIMIT, **more)["seconds"]

    return side


TOPIC: Final = Topic(
    name="turns-http",
    unit="turn",
    sides={
        "http turn": _make_cpu_side("perf.sides.http_turns"),
        "inspect http": _make_cpu_side("perf.peers.inspect_turns", python=INSPECT_PYTHON),
        "bare http": _make_cpu_side("perf.peers.bare_turns"),
    },
    rows=(
        Row(
            name="turn-http",
            what="CPU of a turn over HTTP, stub model and world",
            ours="http turn",
            peer="inspect http",
            against="Inspect AI, openai-api",
            target=5,
        ),
        Row(
            name="turn-http-bare",
            what="CPU of a turn over HTTP, stub model and world",
            ours="http turn",
            peer="bare http",
            against="openai client alone, extra_body",
            cost="x",
            peer_unit="turn",
        ),
    ),
    notes=(
        "As turns, but the answers come over HTTP from a separate process, without delay. "
        "CPU of "
        "the client process only. Ours is all of assay run but its display. The client alone "
        "keeps the last turns and nothing else: no agent, no record; messages go by "
        "extra_body, which is its quick way.",
    ),
    warmup=False,
)

_MODELS: Final = tuple(f"model-{number}" for number in range(1, 7))
_TURNS: Final = size(100, 2)
_SLICE: Final = size(10, 1)
_PROBES: Final = size(10, 1)
_LATENCY: Final = "0.1" if QUICK else "1.0"


@cache
def _start_slow_server() -> str:
    """A server of six models that take a second, after a run that compiled the engine."""
    aliases = (f"--alias={name}=builtin/noop" for name in _MODELS)
    address = start_model_server("--latency", _LATENCY, *aliases)
    wall_time(address, Load(models=_MODELS[:1], episodes=1, turns=1), _LIMIT)
    return address


def _make_run_side(at_once: int) -> Callable[[int], float]:
    load = Load(models=_MODELS, episodes=10, turns=_TURNS, at_once=at_once)
    return lambda _turn: wall_time(_start_slow_server(), load, _LIMIT)


def _time_sequential_run(_turn: int) -> float:
    """Return the time of the run with sequential calls, extrapolated from a short one."""
    address = _start_slow_server()
    short, long = (
        wall_time(address, Load(models=_MODELS[:1], episodes=1, turns=turns), _LIMIT)
        for turns in (1, 1 + _SLICE)
    )
    return (long - short) / _SLICE * len(_MODELS) * 10 * _TURNS


@lru_cache(maxsize=64)
def _time_single_call(_turn: int) -> float:
    """Return the seconds of a single call by a bare client."""
    text = workload.SYSTEM + workload.observation_of(0, 0)
    body = {"model": _MODELS[0], "messages": [{"role": "user", "content": text}]}

    async def call(session: aiohttp.ClientSession) -> None:
        async with session.post("/v1/chat/completions", json=body) as answer:
            if answer.status != 200:
                raise PeerFailed(f"the server of models answered {answer.status}")
            await answer.read()

    async def measure() -> float:
        async with aiohttp.ClientSession(_start_slow_server()) as session:
            await call(session)
            began = time.perf_counter()
            for _ in range(_PROBES):
                await call(session)
            return (time.perf_counter() - began) / _PROBES

    return asyncio.run(measure())


def _make_concurrency_row(name: str, at_once: int, calls: int) -> Row:
    return Row(
        name=name,
        what=f"6 models x 10 episodes x {_TURNS} turns of a second, {at_once} models at once",
        ours=f"{at_once} at once",
        peer=f"{calls} calls",
        against=f"{calls} calls of a bare client",
        cost="x",
        most=1.1,
        peer_unit=f"{calls} calls",
    )


AT_ONCE: Final = Topic(
    name="models-at-once",
    unit="run",
    sides={
        "100 calls": lambda turn: 100 * _time_single_call(turn),
        "6 at once": _make_run_side(6),
        "one by one": _time_sequential_run,
        "200 calls": lambda turn: 200 * _time_single_call(turn),
        "3 at once": _make_run_side(3),
    },
    rows=(
        _make_concurrency_row("six-models", 6, 100),
        _make_concurrency_row("three-models", 3, 200),
        Row(
            name="six-one-by-one",
            what="the run of 6 models at once",
            ours="6 at once",
            peer="one by one",
            against="sequential calls",
        ),
    ),
    notes=(
        "Wall time of the command assay run, from its start to its end, with its database and "
        "files; assay serve-models --latency 1.0 answers as builtin/noop under six names. The "
        f"bare client is aiohttp: the mean of {_PROBES} calls, one after the other, times "
        f"their number. One by one is {_SLICE} turns of one episode, times 6,000 turns.",
    ),
    rounds_at_most=1,
    warmup=False,
)

_PER_MINUTE: Final = 300
_SETTLING: Final = size(60, 0)
_WATCHED: Final = size(120, 2)


@lru_cache(maxsize=64)
def _count_limited_calls(_turn: int) -> dict[str, float]:
    """Return the counts of a rate-limited server in two minutes, after a minute of warm-up."""
    options = ("--rate-limit", str(_PER_MINUTE), "--latency", "0.5")
    address = start_model_server(*options, f"--alias={_MODELS[0]}=builtin/noop")
    with running_load(address, Load(models=_MODELS[:1], episodes=60, turns=100)) as process:
        time.sleep(_SETTLING)
        while QUICK and process.poll() is None and not _count_outcomes(address):
            time.sleep(0.1)
        _request_json(address, "/stats/reset", "POST")
        time.sleep(_WATCHED)
        stats = _request_json(address, "/stats", "GET")
        if process.poll() is not None:
            raise PeerFailed(f"the run ended early, with code {process.returncode}")
    outcomes = stats["outcomes"]
    return {
        "answered": outcomes["answered"],
        "rejected": outcomes["rate_limited"],
        "asked": sum(outcomes.values()),
        "allowed": stats["seconds"] * _PER_MINUTE / 60,
    }


def _count_outcomes(address: str) -> int:
    return sum(_request_json(address, "/stats", "GET")["outcomes"].values())


def _request_json(address: str, path: str, method: str) -> Any:
    request = urllib.request.Request(address + path, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def _make_count_side(name: str) -> Callable[[int], float]:
    return lambda turn: _count_limited_calls(turn)[name]


PACE: Final = Topic(
    name="pace",
    unit="2 min",
    sides={
        name: _make_count_side(name) for name in ("answered", "allowed", "rejected", "asked")
    },
    rows=(
        Row(
            name="pace-used",
            what=f"calls answered with a limit of {_PER_MINUTE} per minute",
            ours="answered",
            peer="allowed",
            against="allowed",
            cost="x",
            target=0.9,
            peer_unit="2 min",
        ),
        Row(
            name="pace-rejected",
            what=f"calls rejected with a limit of {_PER_MINUTE} per minute",
            ours="rejected",
            peer="asked",
            against="all calls",
            cost="x",
            most=0.02,
            peer_unit="2 min",
        ),
    ),
    notes=(
        "assay run with 60 episodes open and no setting for the rate, against assay "
        f"serve-models --rate-limit {_PER_MINUTE} --latency 0.5; as the server counted it in "
        "the second and third minute.",
    ),
    rounds_at_most=1,
    counted="calls",
    warmup=False,
)

"""Real coding agents: their start in a sandbox, and what a call through their proxy takes."""

import asyncio
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiohttp

from assay.bench.base import CodingJob, CodingTask, RepoSource
from assay.bench.coders.installation import find_installed_agent
from assay.bench.coders.proxy import ModelProxy
from assay.errors import SandboxUnavailable
from assay.models.pool import ModelPool
from assay.models.registry_file import load_registry
from assay.sandboxes.base import PROGRAM, Command, Mount, SandboxSpec
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.roots import python_mounts
from assay.types import ChatReply, ChatRequest, Encoded, Message

from .measure import Row, Topic, size
from .processes import PeerFailed
from .servers import start_server

__all__ = ["AGENT_SIDES", "PROXY", "START"]

_AGENT: Final = "codex"
AGENT_SIDES: Final = ("agent in a sandbox", "bare agent")
"""The sides that need an agent that is installed."""
_STARTS: Final = 5
_CALLS: Final = size(50, 5)
_BODY: Final = {
    "model": "stub",
    "messages": [{"role": "user", "content": "what is in this folder? " * 400}],
    "tools": [{"type": "function", "function": {"name": "shell", "parameters": {}}}],
}
"""About as long as the first request of an agent."""
_numbers = itertools.count()


def _find_binary() -> tuple[Path, str]:
    """The folder of an agent, and its program below that."""
    agent = find_installed_agent(_AGENT)
    if agent is None:
        raise PeerFailed(f"{_AGENT} is not there: assay bench agents install {_AGENT}")
    return agent.folder, agent.binary


def _start_in_sandbox(turn: int) -> float:
    """Return the seconds until the agent prints its version, in an open sandbox."""
    del turn
    folder, binary = _find_binary()
    argv = (f"{PROGRAM}/{binary}", "--version")

    async def main() -> float:
        with tempfile.TemporaryDirectory(prefix="assay-perf-agent-") as repo:
            spec = SandboxSpec(
                mounts=(
                    *python_mounts(),
                    Mount(folder, PROGRAM),
                    Mount(Path(repo), "/app/repo", writable=True),
                )
            )
            async with BubblewrapBackend().open(spec) as sandbox:
                began = time.perf_counter()
                for _ in range(_STARTS):
                    end = await sandbox.run(Command(argv=argv, timeout_s=60))
                    if end.exit_code != 0:
                        raise PeerFailed(f"it ended with {end.exit_code}: {end.output!r}")
                return (time.perf_counter() - began) / _STARTS

    try:
        return asyncio.run(main())
    except SandboxUnavailable as error:
        raise PeerFailed(str(error)) from error


def _start_bare(turn: int) -> float:
    del turn
    folder, binary = _find_binary()
    began = time.perf_counter()
    for _ in range(_STARTS):
        subprocess.run([folder / binary, "--version"], check=True, capture_output=True)
    return (time.perf_counter() - began) / _STARTS


START: Final = Topic(
    name="agent-starts",
    unit="start",
    sides=dict(zip(AGENT_SIDES, (_start_in_sandbox, _start_bare), strict=True)),
    rows=(
        Row(
            name="agent-start",
            what=f"start of {_AGENT} in an open sandbox",
            ours=AGENT_SIDES[0],
            peer=AGENT_SIDES[1],
            against="its bare start",
            cost="times its wall time",
            peer_unit="start",
        ),
    ),
    notes=(
        f"`{_AGENT} --version`, mounted read-only, with all limits; compared with the same "
        "program started without a sandbox.",
    ),
)


async def _time_calls(session: aiohttp.ClientSession) -> float:
    """Return the seconds per call, made sequentially."""
    for number in range(_CALLS + 1):
        if number == 1:
            began = time.perf_counter()
        # What an agent asks differs from call to call.
        body = {**_BODY, "user": str(next(_numbers))}
        async with session.post("/v1/chat/completions", data=json.dumps(body)) as answer:
            if answer.status != 200:
                raise PeerFailed(f"answered {answer.status}: {await answer.text()}")
            await answer.read()
    return (time.perf_counter() - began) / _CALLS


class _StubCaller:
    """Calls the stub as a trial does, without a journal."""

    def __init__(self, address: str) -> None:
        pool = ModelPool(load_registry(), base_url=f"{address}/v1")
        self.model = pool.make("stub")

    async def ask(self, messages: Sequence[Message], tools: Encoded) -> ChatReply:
        request = ChatRequest(
            model="stub",
            messages=list(messages),
            tools=tools,
            temperature=0.0,
            max_tokens=1000,
        )
        return await self.model.reply(request)


async def _ignore_action(action: str, came_of_it: str) -> None:
    """Ignore the action."""


def _call_through_proxy(turn: int) -> float:
    del turn
    asks = _StubCaller(start_server("-m", "perf.peers.stub_chat"))
    task = CodingTask(
        folder=Path(), task_id="none", title="", instructions="", repo=RepoSource()
    )
    job = CodingJob(
        task=task,
        sandbox=None,  # type: ignore[arg-type]  # the proxy runs nothing in it
        timeout_s=60,
        call_model=asks.ask,
        record_action=_ignore_action,
        max_turns=10 * _CALLS,
    )

    async def main() -> float:
        folder = Path(tempfile.mkdtemp(prefix="assay-perf-"))
        try:
            async with ModelProxy(job).serve_at(folder / "model.sock"):
                connector = aiohttp.UnixConnector(str(folder / "model.sock"))
                async with aiohttp.ClientSession(
                    "http://localhost", connector=connector
                ) as session:
                    return await _time_calls(session)
        finally:
            await asks.model.close()
            shutil.rmtree(folder)

    return asyncio.run(main())


def _call_directly(turn: int) -> float:
    del turn

    async def main() -> float:
        stub = start_server("-m", "perf.peers.stub_chat")
        async with aiohttp.ClientSession(stub) as session:
            return await _time_calls(session)

    return asyncio.run(main())


PROXY: Final = Topic(
    name="proxy-calls",
    unit="call",
    sides={"proxy": _call_through_proxy, "direct": _call_directly},
    rows=(
        Row(
            name="proxy-call",
            what="call through the proxy of a trial, to a model without latency",
            ours="proxy",
            peer="direct",
            against="the same call straight to the model",
            cost="times its wall time",
            peer_unit="call",
        ),
    ),
    notes=(
        "A chat request of 10 kB, one after the other: to the proxy on its Unix socket, which "
        "counts, limits and asks the model over HTTP, compared with the same bytes sent to "
        "the same model. "
        "The difference is what the proxy adds to a call, independent of the model's latency.",
    ),
)

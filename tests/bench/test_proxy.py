"""The proxy of a trial: three protocols on a Unix socket, counted and limited."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from assay.bench.base import AgentStop, CodingJob
from assay.bench.coders.proxy import AgentProgram, ModelProxy, run_with_proxy
from assay.errors import ModelUnavailable
from assay.models.pool import ModelPool
from assay.models.registry_file import load_registry
from assay.sandboxes.base import REPOSITORY, SHARED, Mount, SandboxBackend, SandboxSpec
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.roots import python_mounts
from assay.types import ChatModel, ChatReply, ChatRequest, Encoded, Message, Usage
from tests.crafter.service.calls import ask
from tests.support import read_line, serve_apart

from .benching import LIMITS, small_task

USAGE = Usage(prompt=100, completion=20, cached=60, reasoning=7)
BODIES: dict[str, Any] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 9},
}


class FakeModel:
    """Answers for the model, and keeps the requests."""

    def __init__(self, *, error: Exception | None = None, wait: bool = False) -> None:
        self.messages: list[Sequence[Message]] = []
        self.acts: list[str] = []
        self._error, self._wait = error, wait

    async def ask(self, messages: Sequence[Message], tools: Encoded) -> ChatReply:
        self.messages.append(messages)
        if self._error is not None:
            raise self._error
        if self._wait:
            await asyncio.sleep(60)
        if tools.value and messages[-1].role != "tool":
            function = {"name": "shell", "arguments": '{"cmd": "ls"}'}
            call = {"id": "call_1", "type": "function", "function": function}
            # Providers may add keys, such as "refusal".
            said = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
            return ChatReply(Message(said), "tool_calls", USAGE)
        return ChatReply(Message({"role": "assistant", "content": "hello"}), "stop", USAGE)

    async def acted(self, action: str, came_of_it: str) -> None:
        self.acts.append(action)


class Client:
    """Calls a model over HTTP with the client that runs use."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    async def ask(self, messages: Sequence[Message], tools: Encoded) -> ChatReply:
        return await self._model.reply(ChatRequest(self._model.name, messages, tools))

    async def acted(self, action: str, came_of_it: str) -> None: ...


def job(asked: FakeModel | Client, folder: Path, **more: Any) -> CodingJob:
    given: dict[str, Any] = {"sandbox": None, "timeout_s": 30.0, **more}
    task = small_task(folder / "task")
    return CodingJob(task=task, call_model=asked.ask, record_action=asked.acted, **given)


@asynccontextmanager
async def client(proxy: ModelProxy, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    path = folder / "s"
    transport = httpx.AsyncHTTPTransport(uds=str(path))
    async with (
        proxy.serve_at(path),
        httpx.AsyncClient(transport=transport, base_url="http://proxy", timeout=120.0) as found,
    ):
        yield found
    assert not path.exists()


def counted(path: str, usage: Any) -> Usage:
    """Convert the token counts of an answer."""
    if "chat" in path:
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        thought = usage["completion_tokens_details"]["reasoning_tokens"]
        return Usage(usage["prompt_tokens"], usage["completion_tokens"], cached, thought)
    if "responses" in path:
        cached = usage["input_tokens_details"]["cached_tokens"]
        thought = usage["output_tokens_details"]["reasoning_tokens"]
        return Usage(usage["input_tokens"], usage["output_tokens"], cached, thought)
    cached = usage["cache_read_input_tokens"]
    # This protocol does not report reasoning tokens.
    return Usage(usage["input_tokens"] + cached, usage["output_tokens"], cached, 7)


@pytest.mark.parametrize("path", BODIES)
def test_each_protocol_counts_the_tokens_that_the_proxy_counts(
    path: str, tmp_path: Path
) -> None:
    async def run() -> None:
        proxy = ModelProxy(job(FakeModel(), tmp_path))
        told = Usage()
        async with client(proxy, tmp_path) as line:
            for _ in range(3):
                got = await line.post(path, json={"model": "any/name", **BODIES[path]})
                assert got.status_code == 200
                assert "hello" in got.text
                told += counted(path, got.json()["usage"])
        assert (proxy.calls, proxy.usage, proxy.stop) == (3, told, None)

    asyncio.run(run())


SCRIPT = """
[[scripts]]
commands = ["cat parser.py", "make"]
reasoning_tokens = 11
"""
COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}}
BASH = {"name": "bash", "parameters": COMMAND}
ARGUMENTS = '{"command": "cat parser.py"}'
SAID: dict[str, Any] = {"role": "user", "content": "Mend the parser."}
CALLED: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "/v1/chat/completions": (
        {"messages": [SAID], "tools": [{"type": "function", "function": BASH}]},
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_0",
                        "type": "function",
                        "function": {"name": "bash", "arguments": ARGUMENTS},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_0", "content": "x = 1"},
        ],
    ),
    "/v1/responses": (
        {"input": [SAID], "tools": [{"type": "function", **BASH}]},
        [
            {
                "type": "function_call",
                "call_id": "call_0",
                "name": "bash",
                "arguments": ARGUMENTS,
            },
            {"type": "function_call_output", "call_id": "call_0", "output": "x = 1"},
        ],
    ),
    "/v1/messages": (
        {
            "messages": [SAID],
            "max_tokens": 99,
            "tools": [{"name": "bash", "input_schema": COMMAND}],
        },
        [
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_use",
                        "id": "call_0",
                        "name": "bash",
                        "input": {"command": "cat parser.py"},
                    }
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_0", "content": "x = 1"}
                ],
            },
        ],
    ),
}
"""The first request of a conversation, and the messages that the second adds."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a process of `assay serve-models`."""
    script = tmp_path_factory.mktemp("script") / "mend.toml"
    script.write_text(SCRIPT, "utf-8")
    with serve_apart("serve-models", "--quiet", "--script", str(script)) as program:
        yield read_line(program).removesuffix("/v1")


@pytest.mark.parametrize("path", CALLED)
def test_the_proxy_counts_the_tokens_that_the_server_behind_it_counts(
    path: str, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_MODELS_URL", served)
    first, more = CALLED[path]
    history = next(key for key in first if key in ("messages", "input"))
    second = {**first, history: [*first[history], *more]}

    async def run() -> ModelProxy:
        model = ModelPool(load_registry()).make("assay/scripted/mend")
        proxy = ModelProxy(job(Client(model), tmp_path))
        async with client(proxy, tmp_path) as line:
            for body in (first, second, {**first, "stream": True}, {**second, "stream": True}):
                got = await line.post(path, json={"model": "any/name", **body})
                assert got.status_code == 200, got.text
                assert "bash" in got.text
        await model.close()
        return proxy

    ask(served, "/stats/reset", {})
    proxy = asyncio.run(run())
    told = ask(served, "/stats").json
    assert proxy.calls == told["calls"] == told["outcomes"]["answered"] == 4
    counted = asdict(proxy.usage)
    assert counted == {kind: told[f"{kind}_tokens"] for kind in counted}
    assert all(counted.values()), "every kind of token is counted"


@pytest.mark.parametrize("path", BODIES)
def test_reached_limit_is_reported_in_the_format_of_the_protocol(
    path: str, tmp_path: Path
) -> None:
    async def run() -> None:
        limits = [None, AgentStop.TOKEN_LIMIT]
        proxy = ModelProxy(job(FakeModel(), tmp_path, find_reached_limit=lambda: limits.pop(0)))
        async with client(proxy, tmp_path) as line:
            body = {"model": "m", **BODIES[path], "stream": True}
            assert (await line.post(path, json=body)).status_code == 200
            assert not proxy.stopped.is_set()
            for _ in range(2):
                got = await line.post(path, json=body)
                assert got.status_code == 400
                assert "token limit" in got.json()["error"]["message"]
                assert ("type" in got.json()) == (path == "/v1/messages")
        assert (proxy.stop, proxy.calls) == (AgentStop.TOKEN_LIMIT, 1)
        assert proxy.stopped.is_set()

    asyncio.run(run())


def test_requests_after_the_last_turn_are_rejected(tmp_path: Path) -> None:
    async def run() -> None:
        proxy = ModelProxy(job(FakeModel(), tmp_path, max_turns=1))
        async with client(proxy, tmp_path) as line:
            codes = [
                (
                    await line.post("/v1/responses", json={"model": "m", "input": "x"})
                ).status_code
                for _ in range(2)
            ]
        assert codes == [200, 400]
        assert proxy.stop is AgentStop.TURN_LIMIT

    asyncio.run(run())


def test_repeated_messages_are_recognized_and_calls_are_recorded(tmp_path: Path) -> None:
    async def run() -> None:
        asked = FakeModel()
        proxy = ModelProxy(job(asked, tmp_path))
        tools = [{"type": "function", "name": "shell", "parameters": {"type": "object"}}]
        history: list[Any] = [{"role": "user", "content": "go"}]
        async with client(proxy, tmp_path) as line:
            for _ in range(2):
                body = {"model": "m", "input": history, "tools": tools}
                answer = (await line.post("/v1/responses", json=body)).json()
                history += answer["output"]
                history.append(
                    {"type": "function_call_output", "call_id": "call_1", "output": "a.py"}
                )
        first, second = asked.messages
        assert second[0] is first[0]
        # The reply as the model gave it, not as the protocol formats it.
        assert "refusal" in second[1].value
        assert [message.role for message in second] == ["user", "assistant", "tool"]
        assert asked.acts == ['shell {"cmd": "ls"}']

    asyncio.run(run())


def test_end_of_a_trial_does_not_wait_for_an_open_call(tmp_path: Path) -> None:
    async def run() -> float:
        proxy = ModelProxy(job(FakeModel(wait=True), tmp_path))
        loop = asyncio.get_running_loop()
        async with client(proxy, tmp_path) as line:
            call = asyncio.ensure_future(
                line.post("/v1/responses", json={"model": "m", "input": "x"})
            )
            await asyncio.sleep(0.2)
            began = loop.time()
            assert not call.done()
        with pytest.raises((httpx.HTTPError, asyncio.CancelledError)):
            (await call).raise_for_status()
        return loop.time() - began

    assert asyncio.run(run()) < 30, "the call would take 60 s"


async def half_sent(path: Path, size: int) -> asyncio.StreamWriter:
    """Send the first bytes of a body of 60 MB, and no more."""
    _, writer = await asyncio.open_unix_connection(path)
    head = f"POST /v1/responses HTTP/1.1\r\nHost: p\r\nContent-Length: {60 << 20}\r\n\r\n"
    writer.write(head.encode() + bytes(size))
    await writer.drain()
    return writer


def test_total_size_of_open_bodies_is_bounded_and_released(tmp_path: Path) -> None:
    async def run() -> None:
        proxy = ModelProxy(job(FakeModel(), tmp_path))
        body = {"model": "m", "input": "x" * (10 << 20)}
        async with client(proxy, tmp_path) as line:
            writers = [await half_sent(tmp_path / "s", 59 << 20) for _ in range(2)]
            got = await line.post("/v1/responses", json=body)
            assert got.status_code == 503
            assert "all open requests together" in got.json()["error"]["message"]
            assert (
                await line.post("/v1/responses", json={"model": "m", "input": "x"})
            ).is_success
            for writer in writers:
                writer.close()
                await writer.wait_closed()
            while (await line.post("/v1/responses", json=body)).status_code == 503:
                await asyncio.sleep(0.01)
        assert proxy.calls == 2

    asyncio.run(run())


def test_bodies_that_wait_for_the_model_count_as_open(tmp_path: Path) -> None:
    async def run() -> None:
        proxy = ModelProxy(job(FakeModel(wait=True), tmp_path))
        body = {"model": "m", "input": "x" * (50 << 20)}
        async with client(proxy, tmp_path) as line:
            calls = [
                asyncio.ensure_future(line.post("/v1/responses", json=body)) for _ in range(3)
            ]
            done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            assert [call.result().status_code for call in done] == [503]
        await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(run())


def test_json_that_would_use_much_memory_is_rejected_before_parsing(tmp_path: Path) -> None:
    async def run() -> None:
        proxy = ModelProxy(job(FakeModel(), tmp_path))
        message = {"role": "user", "content": "x", "more": [[] for _ in range(3_000_000)]}
        async with client(proxy, tmp_path) as line:
            body = {"model": "m", "messages": [message]}
            got = await line.post("/v1/chat/completions", json=body)
        assert got.status_code == 503
        assert proxy.calls == 0

    asyncio.run(run())


def test_kept_messages_of_a_trial_are_bounded(tmp_path: Path) -> None:
    async def run() -> list[int]:
        proxy = ModelProxy(job(FakeModel(), tmp_path, max_turns=9))
        async with client(proxy, tmp_path) as line:
            return [
                (
                    await line.post(
                        "/v1/responses", json={"model": "m", "input": str(n) * (50 << 20)}
                    )
                ).status_code
                for n in (1, 1, 2, 3)
            ]

    assert asyncio.run(run()) == [200, 200, 200, 400]


def test_waiting_calls_are_dropped_when_the_trial_ends(tmp_path: Path) -> None:
    async def run() -> int:
        asked = FakeModel(wait=True)
        proxy = ModelProxy(job(asked, tmp_path))
        async with client(proxy, tmp_path) as line:
            calls = [
                asyncio.ensure_future(
                    line.post("/v1/responses", json={"model": "m", "input": "x"})
                )
                for _ in range(4)
            ]
            while not asked.messages:
                await asyncio.sleep(0.01)
        await asyncio.gather(*calls, return_exceptions=True)
        return len(asked.messages)

    assert asyncio.run(run()) == 1


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://192.0.2.1/?secret"}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "file", "file": {"file_id": "file-of-the-account"}},
        {"type": "input_audio", "input_audio": {"data": "", "format": "mp3"}},
    ],
)
def test_urls_files_and_audio_in_messages_are_rejected(
    part: dict[str, Any], tmp_path: Path
) -> None:
    async def run() -> None:
        asked = FakeModel()
        proxy = ModelProxy(job(asked, tmp_path))
        text = {"type": "text", "text": "what is in it?"}
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
        async with client(proxy, tmp_path) as line:
            for given, code in ((part, 400), (picture, 200)):
                message = {"role": "user", "content": [text, given]}
                body = {"model": "m", "messages": [message]}
                got = await line.post("/v1/chat/completions", json=body)
                assert got.status_code == code
        assert len(asked.messages) == 1
        assert not proxy.stopped.is_set()

    asyncio.run(run())


def test_agent_cannot_choose_model_settings_provider_tools_or_paths(tmp_path: Path) -> None:
    async def run() -> None:
        asked = FakeModel()
        proxy = ModelProxy(job(asked, tmp_path))
        body = {
            "model": "another/expensive-model",
            "input": "x",
            "tools": [{"type": "web_search"}, {"type": "mcp", "server_url": "http://x"}],
            "max_output_tokens": 1_000_000,
            "background": True,
            "store": True,
        }
        async with client(proxy, tmp_path) as line:
            headers = {"Authorization": "Bearer of-another-trial", "Host": "api.openai.com"}
            assert (await line.post("/v1/responses", json=body, headers=headers)).is_success
            for path in ("/v1/files", "/v1/fine_tuning/jobs", "/../x.sock", "http://h/v1/x"):
                assert (await line.get(path)).status_code == 404
            assert (await line.post("/stats/reset")).is_success
        # `ask` takes only messages and functions; the arm decides the rest.
        assert [message.value for message in asked.messages[0]] == [
            {"role": "user", "content": "x"}
        ]
        assert proxy.calls == 1

    asyncio.run(run())


AGENT = """
import json, os, sys, urllib.request
prompt = sys.stdin.read()
for number in range(int(sys.argv[1])):
    body = json.dumps({"model": "m", "input": prompt}).encode()
    line = urllib.request.Request(os.environ["BASE"] + "/responses", body)
    with urllib.request.urlopen(line) as answer:
        print(json.load(answer)["output"][0]["content"][0]["text"], open("/tmp/conf").read())
sys.exit(7)
"""


async def run_agent(
    backend: SandboxBackend, asked: FakeModel, tmp_path: Path, times: int
) -> Any:
    shared, repo = tmp_path / "shared", tmp_path / "repo"
    for folder in (shared, repo):
        folder.mkdir()
    (shared / "agent.py").write_text(AGENT)
    mounts = (*python_mounts(), Mount(shared, SHARED), Mount(repo, REPOSITORY, True))
    spec = SandboxSpec(mounts=mounts, limits=LIMITS)
    async with backend.open(spec) as sandbox:
        given = job(asked, tmp_path, sandbox=sandbox, shared=shared, max_turns=2)
        proxy = ModelProxy(given)
        program = AgentProgram(
            argv=(sys.executable, f"{SHARED}/agent.py", str(times)),
            environment={"BASE": "http://127.0.0.1:@PORT@/v1"},
            files={"/tmp/conf": "port @PORT@"},
            stdin="solve it",
        )
        return await run_with_proxy(given, proxy, program), proxy


@pytest.mark.bench
def test_agent_in_a_sandbox_reaches_only_its_model(tmp_path: Path) -> None:
    asked = FakeModel()
    end, proxy = asyncio.run(run_agent(BubblewrapBackend(), asked, tmp_path, 2))
    assert end.exit_code == 7
    assert end.output.decode().count("hello port ") == 2
    assert (proxy.calls, proxy.usage) == (2, USAGE + USAGE)
    assert asked.messages[0][0].value == {"role": "user", "content": "solve it"}
    assert not any(finding.name == "network_refused" for finding in end.findings)


@pytest.mark.bench
def test_agent_that_exceeds_the_call_limit_gets_an_error(tmp_path: Path) -> None:
    end, proxy = asyncio.run(run_agent(BubblewrapBackend(), FakeModel(), tmp_path, 3))
    assert proxy.stop is AgentStop.TURN_LIMIT
    assert end.exit_code == 1
    assert b"400" in end.output


@pytest.mark.bench
def test_unavailable_model_is_an_infrastructure_error_not_a_failure_of_the_agent(
    tmp_path: Path,
) -> None:
    asked = FakeModel(error=ModelUnavailable("down"))
    with pytest.raises(ModelUnavailable, match="down"):
        asyncio.run(run_agent(BubblewrapBackend(), asked, tmp_path, 1))

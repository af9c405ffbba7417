"""The Responses and Messages APIs: the same models in each protocol."""

import http.client
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI, RateLimitError
from openai.types.responses import ResponseFunctionToolCall

from assay.api.servers import serve_models
from assay.models.serving.app import ModelServerSettings, RunningModels, running
from assay.models.serving.faults import Faults, ServingLimits
from assay.types import ChatReply, ChatRequest, Message, Usage
from tests.crafter.service.test_fuzz import mutated

from .calls import HELLO, post

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
USAGE = Usage(prompt=100, completion=20, cached=60, reasoning=7)
PARAMETERS = {
    "type": "object",
    "properties": {"cmd": {"type": "string"}},
    "required": ["cmd"],
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "shell", "arguments": '{"cmd":"ls -l"}'},
}
ASKED: dict[str, Any] = {
    RESPONSES: {"model": "mine", "input": "hi"},
    MESSAGES: {
        "model": "mine",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "hi"}],
    },
}


class Coder:
    """Calls a tool if one is available and has no result yet; keeps its requests."""

    name, provider = "mine", "me"

    def __init__(self) -> None:
        self.asked: list[ChatRequest] = []

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        if request.tools.value and request.messages[-1].role != "tool":
            name = request.tools.value[0]["function"]["name"]
            given = '{"input":"*** Begin"}' if name == "apply_patch" else '{"cmd":"ls -l"}'
            call = {**CALL, "function": {"name": name, "arguments": given}}
            said = {"role": "assistant", "content": "I look.", "tool_calls": [call]}
            return ChatReply(Message(said), "tool_calls", USAGE)
        return ChatReply(
            Message({"role": "assistant", "content": "Done. " * 30}), "stop", USAGE
        )

    async def close(self) -> None: ...


@pytest.fixture
def coder() -> Coder:
    return Coder()


@pytest.fixture
def served(coder: Coder) -> Iterator[RunningModels]:
    with running(ModelServerSettings(port=0), {"mine": coder}) as server:
        yield server


@pytest.fixture
def client(served: RunningModels) -> Iterator[OpenAI]:
    with OpenAI(base_url=served.base_url, api_key="any", max_retries=0) as client:
        yield client


def events(stream: bytes) -> list[Any]:
    """The events of a stream, each named as its data says."""
    *found, nothing = stream.decode().split("\n\n")
    assert nothing == ""
    told = []
    for event in found:
        name, data = event.split("\n")
        told.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {told[-1]['type']}"
    return told


def test_official_client_calls_a_tool_with_the_responses_api(
    client: OpenAI, coder: Coder
) -> None:
    tools: Any = [
        {"type": "function", "name": "shell", "parameters": PARAMETERS, "strict": True},
        {"type": "web_search"},
    ]
    asked: list[Any] = [{"role": "user", "content": [{"type": "input_text", "text": "go"}]}]
    first = client.responses.create(
        model="mine", instructions="Be brief.", input=asked, tools=tools
    )
    message, call = first.output
    assert first.output_text == "I look."
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.arguments, call.call_id) == ("shell", '{"cmd":"ls -l"}', "call_1")
    asked += [message.to_dict(), call.to_dict()]
    asked.append({"type": "function_call_output", "call_id": "call_1", "output": "a.py"})
    second = client.responses.create(
        model="mine", instructions="Be brief.", input=asked, tools=tools
    )
    assert second.output_text == "Done. " * 30
    assert second.status == "completed"
    said = [dict(message.value) for message in coder.asked[-1].messages]
    assert said == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
    ]
    (offered,) = coder.asked[-1].tools.value
    assert offered["function"] == {"name": "shell", "parameters": PARAMETERS}


def test_streamed_response_equals_the_complete_one(client: OpenAI) -> None:
    tools: Any = [{"type": "function", "name": "shell", "parameters": PARAMETERS}]
    whole = client.responses.create(model="mine", input="go", tools=tools)
    with client.responses.stream(model="mine", input="go", tools=tools) as stream:
        seen = [event.type for event in stream]
        final = stream.get_final_response()
    assert seen[0] == "response.created"
    assert seen[-1] == "response.completed"
    assert {"response.output_text.delta", "response.function_call_arguments.done"} <= set(seen)
    names = {"type", "name", "arguments", "call_id", "role"}
    assert [item.to_dict().keys() & names for item in final.output] == [
        item.to_dict().keys() & names for item in whole.output
    ]
    assert final.output_text == whole.output_text
    assert final.usage == whole.usage


def test_custom_tool_is_called_with_text_input(client: OpenAI, coder: Coder) -> None:
    tools: Any = [{"type": "custom", "name": "apply_patch", "description": "Patches."}]
    first = client.responses.create(model="mine", input="go", tools=tools).to_dict()
    call: Any = first["output"][1]  # type: ignore[index]
    assert (call["type"], call["input"]) == ("custom_tool_call", "*** Begin")
    output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "ok"}
    history: Any = [call, output]
    client.responses.create(model="mine", input=history, tools=tools)
    assistant, tool = (message.value for message in coder.asked[-1].messages)
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {
        "input": "*** Begin"
    }
    assert tool["content"] == "ok"


def test_truncated_response_is_incomplete(client: OpenAI) -> None:
    short = client.responses.create(model="mine", input="go", max_output_tokens=20)
    assert short.status == "incomplete"
    assert short.incomplete_details
    assert short.incomplete_details.reason == "max_output_tokens"
    assert short.output_text == ("Done. " * 30)[:80]


def test_responses_api_reports_the_server_token_counts(
    client: OpenAI, served: RunningModels
) -> None:
    counted = Usage()
    for _ in range(3):
        usage = client.responses.create(model="mine", input="go").usage
        assert usage
        counted += Usage(
            usage.input_tokens,
            usage.output_tokens,
            usage.input_tokens_details.cached_tokens,
            usage.output_tokens_details.reasoning_tokens,
        )
        assert usage.total_tokens == 120
    assert counted == told_by(served)


def told_by(server: RunningModels) -> Usage:
    told = server.stats()
    kinds = ("prompt", "completion", "cached", "reasoning")
    return Usage(*(told[f"{kind}_tokens"] for kind in kinds))


def test_messages_api_calls_a_tool_and_accepts_its_result(
    served: RunningModels, coder: Coder
) -> None:
    asked: dict[str, Any] = {
        "model": "mine",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
        "tools": [
            {"name": "shell", "description": "Runs.", "input_schema": PARAMETERS},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
    }
    first = json.loads(post(served.address, asked, f"{MESSAGES}?beta=true").body)
    assert (first["type"], first["role"], first["stop_reason"]) == (
        "message",
        "assistant",
        "tool_use",
    )
    assert first["content"] == [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "call_1", "name": "shell", "input": {"cmd": "ls -l"}},
    ]
    thinking = {"type": "thinking", "thinking": "hm", "signature": "x"}
    result = {
        "type": "tool_result",
        "tool_use_id": "call_1",
        "content": [{"type": "text", "text": "a.py"}],
    }
    asked["messages"] += [
        {"role": "assistant", "content": [thinking, *first["content"]]},
        {"role": "user", "content": [result]},
    ]
    second = json.loads(post(served.address, asked, MESSAGES).body)
    assert second["stop_reason"] == "end_turn"
    said = [dict(message.value) for message in coder.asked[-1].messages]
    called = said[2].pop("tool_calls")
    assert json.loads(called[0]["function"]["arguments"]) == {"cmd": "ls -l"}
    assert said == [
        {"role": "system", "content": "Be\n\nbrief."},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "I look."},
        {"role": "tool", "tool_call_id": "call_1", "content": "a.py"},
    ]
    (offered,) = coder.asked[-1].tools.value
    assert offered["function"]["description"] == "Runs."


def test_streamed_message_equals_the_complete_one(served: RunningModels) -> None:
    tools = [{"name": "shell", "input_schema": PARAMETERS}]
    asked = {**ASKED[MESSAGES], "tools": tools}
    whole = json.loads(post(served.address, asked, MESSAGES).body)
    got = post(served.address, {**asked, "stream": True}, MESSAGES)
    assert got.headers["content-type"] == "text/event-stream"
    start, *blocks, delta, stop = events(got.body)
    assert (start["type"], stop["type"]) == ("message_start", "message_stop")
    built: list[Any] = []
    for event in blocks:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(built)
                built.append({**event["content_block"], "pieces": ""})
            case "content_block_delta":
                piece = event["delta"]
                built[-1]["pieces"] += piece.get("text", "") + piece.get("partial_json", "")
            case kind:
                assert kind == "content_block_stop"
    text, call = built
    assert [text["pieces"], json.loads(call["pieces"])] == [
        whole["content"][0]["text"],
        whole["content"][1]["input"],
    ]
    assert (call["id"], call["name"], call["input"]) == ("call_1", "shell", {})
    assert delta["delta"]["stop_reason"] == whole["stop_reason"]
    assert delta["usage"] == whole["usage"]


def test_messages_api_reports_the_server_token_counts(served: RunningModels) -> None:
    counted = Usage()
    for stream in (False, True, False):
        got = post(served.address, {**ASKED[MESSAGES], "stream": stream}, MESSAGES)
        usage = (events(got.body)[-2] if stream else json.loads(got.body))["usage"]
        assert usage["cache_creation_input_tokens"] == 0
        read = usage["cache_read_input_tokens"]
        counted += Usage(usage["input_tokens"] + read, usage["output_tokens"], read, 7)
    assert counted == told_by(served)


def test_errors_have_the_shape_of_each_protocol(client: OpenAI, served: RunningModels) -> None:
    with pytest.raises(NotFoundError) as unknown:
        client.responses.create(model="gpt-9", input="hi")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(BadRequestError) as bad:
        client.responses.create(model="mine", input="hi", previous_response_id="resp_1")
    assert bad.value.param == "previous_response_id"
    with pytest.raises(BadRequestError) as odd:
        client.responses.create(model="mine", input=[{"type": "item_reference", "id": "x"}])
    assert odd.value.param == "input[0]"
    for change, status, kind in (
        ({"model": "gpt-9"}, 404, "not_found_error"),
        ({"messages": []}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": [{"type": "x"}]}]}, 400, None),
    ):
        got = post(served.address, {**ASKED[MESSAGES], **change}, MESSAGES)
        told = json.loads(got.body)
        assert (got.status, told["type"]) == (status, "error")
        assert told["error"]["type"] == (kind or "invalid_request_error")
        assert told["error"]["message"]


def test_key_is_accepted_in_the_messages_api_header() -> None:
    hello = {**ASKED[MESSAGES], "model": "builtin/noop"}
    with serve_models(port=0, api_key="secret") as server:
        denied = post(server.address, hello, MESSAGES)
        assert (denied.status, json.loads(denied.body)["type"]) == (401, "error")
        assert json.loads(denied.body)["error"]["type"] == "authentication_error"
        assert post(server.address, hello, MESSAGES, **{"X-Api-Key": "wrong"}).status == 401
        assert post(server.address, hello, MESSAGES, **{"X-Api-Key": "secret"}).status == 200


@pytest.mark.parametrize("path", ASKED)
def test_faults_are_injected_in_every_protocol(path: str) -> None:
    asked = {**ASKED[path], "model": "builtin/noop"}

    def got(server: RunningModels, **more: Any) -> Any:
        try:
            return post(server.address, {**asked, **more}, path)
        except (http.client.HTTPException, ConnectionError):
            return None

    with serve_models(port=0, faults=Faults(error_rate=1.0)) as server:
        failed = got(server)
        assert failed.status >= 500
        assert "on request" in json.loads(failed.body)["error"]["message"]
    with serve_models(port=0, faults=Faults(cut_rate=1.0)) as server:
        assert [got(server, stream=stream) for stream in (True, False)] == [None, None]
        assert server.stats()["outcomes"]["cut"] == 2
    with serve_models(port=0, faults=Faults(malformed_rate=1.0)) as server:
        nonsense = got(server, stream=True)
        assert nonsense.status == 200
        assert b"response.completed" not in nonsense.body
        assert b"message_stop" not in nonsense.body
    limits = ServingLimits(per_minute=1)
    with serve_models(port=0, limits=limits) as server:
        assert got(server).status == 200
        refused = got(server)
        assert (refused.status, refused.headers["retry-after"]) == (429, "60")
        kind = json.loads(refused.body)["error"]["type"]
        assert kind == ("requests" if path == RESPONSES else "rate_limit_error")


def test_official_client_recognises_a_rate_limit_in_the_responses_api() -> None:
    with (
        serve_models(port=0, faults=Faults(busy_rate=1.0)) as server,
        OpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client,
        pytest.raises(RateLimitError),
    ):
        client.responses.create(model="builtin/noop", input="hi")


@pytest.mark.parametrize("path", ASKED)
def test_nearly_valid_requests_are_rejected_or_answered(
    served: RunningModels, path: str
) -> None:
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "x"}
    said = {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    used = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    good: dict[str, Any] = {
        RESPONSES: {
            **ASKED[RESPONSES],
            "input": [said, call, output, {"type": "reasoning", "summary": []}],
            "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "g"}],
            "tool_choice": {"type": "function", "name": "f"},
            "text": {"format": {"type": "text"}},
        },
        MESSAGES: {
            **ASKED[MESSAGES],
            "system": "s",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": [used]},
                {"role": "user", "content": [result]},
            ],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "tool", "name": "f"},
        },
    }[path]
    odd: list[Any] = [
        *(None, True, -1, 0, 2**63, 1e308, "", "x" * 300, [], {}, [[]], {"a": {}}, 0.5),
        *("tool", "user", "\u202e\x00", [None], "custom", "image", "message"),
    ]
    rng, seen = random.Random(7), set()
    for _ in range(300):
        body = json.loads(json.dumps(good))
        for _ in range(rng.randint(1, 3)):
            body = mutated(rng, body, odd)
        got = post(served.address, json.dumps(body).encode(), path)
        seen.add(got.status)
        assert got.status in (200, 400, 404), (body, got)
    assert {200, 400} <= seen
    assert served.stats()["outcomes"]["bug"] == 0


def test_chat_protocol_is_unaffected_by_the_others(served: RunningModels) -> None:
    got = post(served.address, {**HELLO, "model": "mine"})
    assert json.loads(got.body)["choices"][0]["message"]["content"] == "Done. " * 30

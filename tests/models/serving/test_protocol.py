"""The wire protocol: the same replies as in process, whole and streamed, to real clients."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI

from assay.agents.builtin import BUILTIN_MODELS, make_builtin, make_builtin_models
from assay.models.serving.app import ModelServerSettings, RunningModels, running
from assay.types import ChatReply, ChatRequest, Encoded, Message
from tests.crafter.service.calls import ask

from .calls import CHAT, HELLO, body_of, game, post


def chunks(stream: bytes) -> list[Any]:
    """The events of a stream, without the mark at its end."""
    *events, last, nothing = stream.split(b"\n\n")
    assert (last, nothing) == (b"data: [DONE]", b"")
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def added_up(events: list[Any]) -> dict[str, Any]:
    """Return the message made of these chunks."""
    message: dict[str, Any] = {}
    for delta in (choice["delta"] for event in events for choice in event["choices"]):
        for call in delta.pop("tool_calls", ()):
            calls = message.setdefault("tool_calls", [])
            index = call.pop("index")
            if index == len(calls):
                calls.append(call)
            else:
                calls[index]["function"]["arguments"] += call["function"]["arguments"]
        text = delta.pop("content", None)
        message.setdefault("content", None)
        if text is not None:
            message["content"] = (message["content"] or "") + text
        message |= delta
    return message


@pytest.mark.parametrize("model", BUILTIN_MODELS)
@pytest.mark.parametrize("tools", [True, False], ids=["tools", "no tools"])
def test_served_reply_equals_the_in_process_reply(
    address: str, model: str, tools: bool
) -> None:
    for request in game(model, turns=6):
        asked = request if tools else replace(request, tools=Encoded([]))
        expected = asyncio.run(make_builtin(model).reply(asked))
        got = post(address, body_of(asked))
        assert got.status == 200
        assert b'"message":' + expected.message.encoded + b"," in got.body
        value = json.loads(got.body)
        assert value["choices"][0]["finish_reason"] == expected.finish_reason
        assert value["usage"]["prompt_tokens"] == expected.usage.prompt
        assert value["usage"]["completion_tokens"] == expected.usage.completion
        assert value["usage"]["total_tokens"] == expected.usage.total


@pytest.mark.parametrize("model", BUILTIN_MODELS)
@pytest.mark.parametrize("tools", [True, False], ids=["tools", "no tools"])
def test_streamed_chunks_add_up_to_the_reply(address: str, model: str, tools: bool) -> None:
    request = game(model, turns=4)[-1]
    asked = request if tools else replace(request, tools=Encoded([]))
    expected = asyncio.run(make_builtin(model).reply(asked))
    got = post(address, body_of(asked, stream=True))
    assert got.headers["content-type"] == "text/event-stream"
    events = chunks(got.body)
    assert Message(added_up(events)).encoded == expected.message.encoded
    assert events[-1]["choices"][0]["finish_reason"] == expected.finish_reason
    assert not any("usage" in event for event in events)


def test_stream_includes_usage_only_on_request(address: str) -> None:
    asked = {**HELLO, "stream": True, "stream_options": {"include_usage": True}}
    *events, last = chunks(post(address, asked).body)
    assert {event["usage"] for event in events} == {None}
    assert last["choices"] == []
    whole = json.loads(post(address, HELLO).body)
    assert last["usage"] == whole["usage"]


def test_one_model_answers_under_several_names(address: str) -> None:
    request = game("builtin/noop", turns=3)[-1]
    for name in ("six", "builtin/noop"):
        asked = replace(request, model=name)
        expected = asyncio.run(make_builtin("builtin/noop").reply(asked))
        got = post(address, body_of(asked))
        assert expected.message.encoded in got.body
        assert json.loads(got.body)["model"] == name


def test_models_are_listed_and_found_by_name(address: str) -> None:
    listed = ask(address, "/v1/models").json
    assert [row["id"] for row in listed["data"]] == [*BUILTIN_MODELS, "six"]
    for path in ("/v1/models/builtin/noop", "/v1/models/builtin%2Fnoop"):
        assert ask(address, path).json == listed["data"][0]
    missing = ask(address, "/v1/models/builtin/nop")
    assert (missing.status, missing.json["error"]["code"]) == (404, "model_not_found")
    assert "did you mean 'builtin/noop'" in missing.json["error"]["message"]


@pytest.fixture(scope="module")
def client(server: RunningModels) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client:
        yield client


def test_official_client_gets_replies(client: OpenAI) -> None:
    request = game("builtin/forager", turns=3)[-1]
    asked: Any = json.loads(body_of(request))
    expected = asyncio.run(make_builtin("builtin/forager").reply(request))
    (call,) = expected.message.value["tool_calls"]
    (choice,) = client.chat.completions.create(**asked).choices
    assert choice.message.tool_calls
    assert choice.message.tool_calls[0].to_dict() == call
    pieces = ""
    for event in client.chat.completions.create(**asked, stream=True):
        for piece in event.choices[0].delta.tool_calls or ():
            assert piece.function
            pieces += piece.function.arguments or ""
    assert pieces == call["function"]["arguments"]
    assert next(model.id for model in client.models.list()) == "builtin/noop"
    assert client.models.retrieve("six").owned_by == "builtin"


def test_official_client_maps_our_errors(client: OpenAI) -> None:
    with pytest.raises(NotFoundError) as unknown:
        client.chat.completions.create(
            model="gpt-9", messages=[{"role": "user", "content": ""}]
        )
    assert unknown.value.code == "model_not_found"
    with pytest.raises(BadRequestError) as bad:
        client.chat.completions.create(model="builtin/noop", messages=[])
    assert bad.value.param == "messages"
    assert bad.value.type == "invalid_request_error"
    settings = ModelServerSettings(port=0, api_key="right")
    with (
        running(settings, make_builtin_models()) as locked,
        OpenAI(base_url=locked.base_url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(AuthenticationError) as denied,
    ):
        stranger.models.list()
    assert denied.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].tool_call_id"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"n": 2}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ],
    ids=str,
)
def test_invalid_field_is_named_in_the_error(
    address: str, change: dict[str, Any], param: str
) -> None:
    got = post(address, {**HELLO, **change})
    error = json.loads(got.body)["error"]
    assert (got.status, error["param"]) == (400, param)
    assert error["message"].startswith(f"{param}: ")


def test_unused_fields_are_ignored(address: str) -> None:
    plain = post(address, HELLO)
    extra = {"top_p": 0.5, "user": "me", "metadata": {"a": 1}, "logprobs": None, "n": 1}
    more = post(address, {**HELLO, **extra, "max_completion_tokens": 7})
    told = [json.loads(got.body)["choices"] for got in (plain, more)]
    assert told[0] == told[1]


def test_tool_choice_none_prevents_tool_calls(address: str) -> None:
    request = game("builtin/noop", turns=1)[0]
    got = json.loads(post(address, body_of(request, tool_choice="none")).body)
    assert got["choices"][0]["finish_reason"] == "stop"
    assert "tool_calls" not in got["choices"][0]["message"]


def test_failing_custom_model_does_not_stop_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        name, provider = "mine", "me"

        async def reply(self, request: ChatRequest) -> ChatReply:
            raise ZeroDivisionError

        async def close(self) -> None: ...

    with running(ModelServerSettings(port=0), {"mine": Broken()}) as server:
        got = post(server.address, {**HELLO, "model": "mine"})
        assert got.status == 500
        assert json.loads(got.body)["error"]["type"] == "server_error"
        assert server.stats()["outcomes"]["bug"] == 1
        assert ask(server.address, "/v1/models").json["data"][0]["owned_by"] == "me"
    assert "ZeroDivisionError" in caplog.text


def test_wrong_path_or_method_is_reported(address: str) -> None:
    assert ask(address, "/v1/completions", {}).status == 404
    wrong = ask(address, CHAT)
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
    assert "error" in wrong.json


PERSON = {
    "type": "object",
    "required": ["name", "age", "home", "tags"],
    "properties": {
        "name": {"type": "string", "minLength": 6},
        "age": {"type": "integer", "exclusiveMinimum": 17},
        "home": {"$ref": "#/$defs/Home"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2},
        "note": {"type": "string"},
    },
    "$defs": {"Home": {"type": "object", "properties": {}, "required": []}},
}
FITS = {"name": "text..", "age": 18, "home": {}, "tags": ["a", "a"]}
TOOLS = [{"type": "function", "function": {"name": "Person", "parameters": PERSON}}]


@pytest.mark.parametrize(
    "choice",
    ["required", {"type": "function", "function": {"name": "Person"}}],
    ids=["required", "named"],
)
def test_required_tool_is_called_with_valid_arguments(choice: Any, address: str) -> None:
    got = json.loads(post(address, {**HELLO, "tools": TOOLS, "tool_choice": choice}).body)
    assert got["choices"][0]["finish_reason"] == "tool_calls"
    [call] = got["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "Person"
    assert json.loads(call["function"]["arguments"]) == FITS


def test_model_calls_its_known_tool_unchanged(address: str) -> None:
    request = game("builtin/forager")[3]
    plain = json.loads(post(address, body_of(request)).body)
    demanded = json.loads(post(address, body_of(request, tool_choice="required")).body)
    assert demanded["choices"] == plain["choices"]


def test_reply_follows_the_required_schema(address: str) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "Person", "schema": PERSON}}
    got = json.loads(post(address, {**HELLO, "response_format": form}).body)
    assert json.loads(got["choices"][0]["message"]["content"]) == FITS


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "x"}}, {"type": 1}]
)
def test_unknown_required_tool_is_rejected(choice: Any, address: str) -> None:
    got = post(address, {**HELLO, "tool_choice": choice})
    assert got.status == 400
    assert json.loads(got.body)["error"]["param"] == "tool_choice"


def test_reply_is_cut_off_at_max_tokens(address: str) -> None:
    whole = json.loads(post(address, {**HELLO, "max_tokens": 100}).body)["choices"][0]
    got = json.loads(post(address, {**HELLO, "max_tokens": 2}).body)
    cut = got["choices"][0]
    assert (whole["finish_reason"], cut["finish_reason"]) == ("stop", "length")
    assert cut["message"]["content"] == whole["message"]["content"][:8]
    assert got["usage"]["completion_tokens"] == 2

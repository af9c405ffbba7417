"""Replies are repaired for the message history, and no input breaks the parser."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.models.wire import Malformed, RequestWriter, read_reply
from assay.types import Encoded

from .server import completion, entry, request

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def message(said: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps(completion(said)).encode()
    return dict(read_reply(body, after="question").message.value)


def test_unknown_reply_fields_are_dropped() -> None:
    said: dict[str, Any] = {
        "role": "model",
        "content": "hi",
        "audio": None,
        "annotations": [],
        "refusal": None,
    }
    assert message(said) == {"role": "assistant", "content": "hi"}


def test_missing_content_becomes_empty_without_tool_calls() -> None:
    assert message({"content": None}) == {"role": "assistant", "content": ""}
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    assert message({"content": "", "tool_calls": [call]})["content"] is None


def test_content_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "go "}, {"type": "text", "text": "on"}, {"type": "x"}, 3]
    assert message({"content": parts})["content"] == "go on"


def test_tool_calls_without_an_id_get_a_derived_id() -> None:
    call = {"function": {"name": "f", "arguments": "{}"}}
    same = {"id": "1", **call}
    first = message({"tool_calls": [call, {"id": "", **call}, same, same]})["tool_calls"]
    again = message({"tool_calls": [call, {"id": "", **call}, same, same]})["tool_calls"]
    assert first == again
    assert len({call["id"] for call in first}) == 4
    assert first[2]["id"] == "1"
    assert all(call["type"] == "function" for call in first)


def test_arguments_are_kept_verbatim() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": '{"actions": ["do"'}}
    [repaired] = message({"tool_calls": [call]})["tool_calls"]
    assert repaired["function"]["arguments"] == '{"actions": ["do"'


def test_arguments_sent_as_an_object_become_text() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": {"actions": ["do"]}}}
    [repaired] = message({"tool_calls": [call]})["tool_calls"]
    assert json.loads(repaired["function"]["arguments"]) == {"actions": ["do"]}


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": 5},
        {"prompt_tokens": "5", "completion_tokens": 1},
        {"prompt_tokens": -5, "completion_tokens": 1},
        {"prompt_tokens": True, "completion_tokens": 1},
        {"prompt_tokens": 10**30, "completion_tokens": 1},
    ],
)
def test_implausible_token_counts_are_ignored(usage: Any) -> None:
    assert read_reply(json.dumps(completion(usage=usage)).encode()).usage is None


def test_lone_surrogate_does_not_break_a_reply() -> None:
    body = b'{"choices": [{"message": {"content": "a \\ud800 b"}}]}'
    assert read_reply(body).message.text == "a \ufffd b"


@given(said=JSON, finish=JSON, usage=JSON, calls=JSON, function=JSON)
def test_random_reply_is_parsed_or_malformed(
    said: Any, finish: Any, usage: Any, calls: Any, function: Any
) -> None:
    inner = {"content": said, "tool_calls": [calls, {"id": said, "function": function}]}
    named = {"function": {"name": said, "arguments": function}}
    for message in (said, inner, {"tool_calls": [named]}):
        choice = {"message": message, "finish_reason": finish}
        body = json.dumps({"choices": [choice], "usage": usage}).encode()
        try:
            reply = read_reply(body)
        except Malformed:
            continue
        assert reply.message.role == "assistant"
        assert isinstance(reply.message.value["content"], str | None)


@given(st.binary(max_size=50))
def test_random_bytes_are_parsed_or_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        read_reply(body)


def test_request_contains_the_encoded_messages_unchanged() -> None:
    question = request("ünï", temperature=0.5, seed=3)
    body = RequestWriter(entry()).write(question)
    assert b",".join(sent.encoded for sent in question.messages) in body
    assert json.loads(body)["messages"] == [sent.value for sent in question.messages]


@pytest.mark.parametrize("row", [entry(tools=False), entry()], ids=["cannot", "none asked"])
def test_request_without_tools_omits_the_field(row: Any) -> None:
    tools = request().tools if not row.tools else Encoded([])
    assert "tools" not in json.loads(RequestWriter(row).write(request(tools=tools)))

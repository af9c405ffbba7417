import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from assay.agents.builtin import (
    BUILTIN_MODELS,
    BuiltinModel,
    Choice,
    draw_numbers,
    make_builtin,
    read_max_actions,
    read_notes,
)
from assay.agents.options import AgentOptions
from assay.crafter import ACTIONS
from assay.errors import UsageError
from assay.types import ChatRequest, Encoded, Message

from .play import play

SIMPLE = ["builtin/noop", "builtin/random", "builtin/forager"]


def user(content: Any) -> Message:
    return Message({"role": "user", "content": content})


def make_request(*messages: Message, tools: Any = (), seed: int | None = 0) -> ChatRequest:
    return ChatRequest(model="m", messages=messages, tools=Encoded(list(tools)), seed=seed)


def make_model(name: str) -> BuiltinModel:
    model = make_builtin(name)
    assert isinstance(model, BuiltinModel)
    return model


@pytest.mark.parametrize("name", SIMPLE)
def test_a_request_gets_the_same_reply_in_any_order(name: str) -> None:
    game = play(name, 2, turns=12)
    again = [make_model(name).answer(request) for request in reversed(game.requests)]
    assert again[::-1] == game.replies


@pytest.mark.parametrize("name", SIMPLE)
def test_a_reply_is_one_tool_call_within_the_action_limit(name: str) -> None:
    game = play(name, 2, turns=12, options=AgentOptions(actions_per_turn=3))
    for reply, decision in zip(game.replies, game.decisions, strict=True):
        (call,) = reply.message.value["tool_calls"]
        assert call["function"]["name"] == "interact"
        assert 1 <= len(decision.actions) <= 3
        assert (decision.unknown, decision.cut, decision.malformed) == ((), 0, None)
        assert reply.finish_reason == "tool_calls"
    ids = [reply.message.value["tool_calls"][0]["id"] for reply in game.replies]
    assert len({*ids}) == len(ids)


@pytest.mark.parametrize("name", SIMPLE)
def test_a_reply_without_tools_is_json_that_the_agent_can_parse(name: str) -> None:
    request = replace(play(name, 2, turns=3).requests[-1], tools=Encoded([]))
    reply = asyncio.run(make_builtin(name).reply(request))
    assert reply.finish_reason == "stop"
    assert "tool_calls" not in reply.message.value
    assert set(json.loads(reply.message.text)["actions"]) <= set(ACTIONS)


def test_a_token_is_four_bytes_rounded_up() -> None:
    request = make_request(user("a"), user("bc"))
    reply = make_model("builtin/noop").answer(request)
    sent = sum(len(message.encoded) for message in request.messages)
    assert reply.usage.prompt == -(-sent // 4)
    assert reply.usage.completion == -(-len(reply.message.encoded) // 4)
    assert reply.cost_usd == 0.0


def test_the_noop_model_waits() -> None:
    game = play("builtin/noop", 1, turns=4)
    assert {action for decision in game.decisions for action in decision.actions} == {"noop"}
    assert game.world.steps == 20


def test_random_draws_follow_the_seed_and_the_last_message_and_are_even() -> None:
    drawn = [draw_numbers(make_request(user(str(i))), 17, 50) for i in range(340)]
    counts = [sum(row.count(action) for row in drawn) for action in range(17)]
    # A count is binomial with a mean of 1,000 and a deviation of 31.
    assert all(845 < count < 1155 for count in counts)
    assert draw_numbers(make_request(user("1"), seed=1), 17, 50) != drawn[1]
    assert draw_numbers(make_request(user("0"), user("1")), 17, 50) == drawn[1]


@pytest.mark.parametrize(
    ("tools", "allowed"),
    [
        ([], 1),
        ([{"function": {"name": "search"}}], 1),
        ([{"function": {"name": "interact"}}], 1),
        ([7, {"function": 7}, {}], 1),
    ]
    + [
        (
            [
                {
                    "function": {
                        "name": "interact",
                        "parameters": {"properties": {"actions": {"maxItems": given}}},
                    }
                }
            ],
            allowed,
        )
        for given, allowed in [(4, 4), (0, 1), (10**9, 50), ("9", 1), (True, 1), (None, 1)]
    ],
)
def test_the_action_limit_is_read_from_the_tool_and_bounded(tools: Any, allowed: int) -> None:
    assert read_max_actions(make_request(user("x"), tools=tools)) == allowed


@pytest.mark.parametrize("name", SIMPLE)
@pytest.mark.parametrize(
    "messages",
    [
        pytest.param((), id="none"),
        pytest.param((user("hello"),), id="no observation"),
        pytest.param((user(None),), id="no text"),
        pytest.param((user([{"type": "text", "text": "hi"}]),), id="parts"),
        pytest.param((Message({"role": "assistant", "tool_calls": [5]}), user("x")), id="odd"),
    ],
)
def test_a_malformed_request_gets_a_reply(name: str, messages: tuple[Message, ...]) -> None:
    reply = make_model(name).answer(make_request(*messages))
    assert set(json.loads(reply.message.text)["actions"]) <= set(ACTIONS)


def test_notes_are_read_from_the_last_reply_with_and_without_tools() -> None:
    def decide(request: ChatRequest) -> Choice:
        return Choice(("noop",), "because", f"{read_notes(request)}+")

    model = BuiltinModel("test", decide)
    for tools in ([], [{"function": {"name": "interact"}}]):
        first = model.answer(make_request(user("1"), tools=tools)).message
        second = model.answer(make_request(user("1"), first, user("2"), tools=tools)).message
        assert read_notes(make_request(first, second, user("3"))) == "++"


@pytest.mark.parametrize("arguments", ["{", "[]", '{"notes": 5}', "[" * 60_000, 5, "x" * 10**6])
def test_unreadable_notes_are_treated_as_empty(arguments: Any) -> None:
    call = {"function": {"name": "interact", "arguments": arguments}}
    reply = Message({"role": "assistant", "content": None, "tool_calls": [call]})
    assert read_notes(make_request(reply, user("x"))) == ""


def test_models_are_created_by_name_and_closed() -> None:
    assert BUILTIN_MODELS[:3] == tuple(SIMPLE)
    for name in SIMPLE:
        model = make_builtin(name)
        assert (model.name, model.provider) == (name, "builtin")
        asyncio.run(model.close())


def test_an_unknown_built_in_model_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="'builtin/forrager'; did you mean 'builtin/forager'"):
        make_builtin("builtin/forrager")

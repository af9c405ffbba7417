import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.agents.replies import Decision, find_actions, read_reply
from assay.crafter import ACTIONS
from assay.types import Message


def called(name: object, arguments: object, id: object = "a") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def by_tool(*calls: Any) -> Decision:
    reply = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    return read_reply(reply, 5).decision


def by_text(content: Any) -> Decision:
    return read_reply({"role": "assistant", "content": content}, 5).decision


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param('{"actions": ["move_left", "do"]}', id="as asked"),
        pytest.param({"actions": ["move_left", "do"]}, id="an object"),
        pytest.param('{"actions": "[\\"move_left\\", \\"do\\"]"}', id="a list in a string"),
        pytest.param('{"actions": "move_left, do"}', id="commas"),
        pytest.param('["move_left", "do"]', id="a bare list"),
        pytest.param('{"actions": [1, 5]}', id="ids"),
        pytest.param('{"actions": ["1", "5"]}', id="ids in strings"),
        pytest.param('{"actions": ["Move Left", " DO "]}', id="case and spaces"),
        pytest.param('{"actions": ["move-left", "`do`"]}', id="hyphens and quotes"),
        pytest.param(
            '{"actions": [{"action": "move_left"}, {"name": "do"}]}', id="objects in the list"
        ),
        pytest.param(json.dumps('{"actions": ["move_left", "do"]}'), id="encoded twice"),
    ],
)
def test_an_interact_call_is_parsed_in_every_argument_format(arguments: object) -> None:
    decision = by_tool(called("interact", arguments))
    assert decision == Decision(asked=("move_left", "do"), actions=("move_left", "do"))


@pytest.mark.parametrize("actions", ["do", 5])
def test_a_single_action_needs_no_list(actions: object) -> None:
    assert by_tool(called("interact", {"actions": actions})).actions == ("do",)
    assert by_tool(called("interact", {"action": actions})).actions == ("do",)


def test_actions_of_several_calls_are_joined_in_order() -> None:
    first, second = ({"actions": [name]} for name in ("do", "sleep"))
    reply = {"tool_calls": [called("interact", first), called("interact", second, "b")]}
    reading = read_reply(reply, 5)
    assert reading.decision.actions == ("do", "sleep")
    assert reading.calls == ("a", "b")


def test_an_unknown_action_is_recorded_but_not_played() -> None:
    decision = by_tool(called("interact", {"actions": ["do", "fly", 17, True, None, 1.5]}))
    assert decision.asked == ("do", "fly", "17", "true", "null")
    assert decision.unknown == ("fly", "17", "true", "null")
    assert decision.actions == ("do",)
    assert decision.cut == 1


def test_actions_beyond_the_limit_are_dropped_and_counted_as_cut() -> None:
    decision = by_tool(called("interact", {"actions": ["do"] * 12}))
    assert decision.asked == decision.actions == ("do",) * 5
    assert decision.cut == 7


def test_terminate_ends_the_episode_after_the_actions_before_it() -> None:
    stop = called("terminate", '{"reason": "I have\\nenough"}', "b")
    after = called("interact", {"actions": ["do"]}, "c")
    decision = by_tool(called("interact", {"actions": ["sleep"]}), stop, after)
    assert decision.actions == ("sleep",)
    assert decision.terminate == "I have\\nenough"


@pytest.mark.parametrize("arguments", ["{}", '{"reason": 5}', "null", '{"reason": " "}'])
def test_terminate_needs_no_reason(arguments: str) -> None:
    assert by_tool(called("terminate", arguments)).terminate == "none"


def test_the_reason_to_terminate_is_truncated() -> None:
    assert len(by_tool(called("terminate", {"reason": "x" * 60_000})).terminate or "") < 210


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        pytest.param(called("interact", "{"), "not valid JSON", id="cut off"),
        pytest.param(
            called("interact", '{"actions": []}'), "list of actions is empty", id="[]"
        ),
        pytest.param(called("interact", "{}"), "without actions", id="nothing"),
        pytest.param(called("interact", '{"actions": 1.5}'), "must be a list", id="a number"),
        pytest.param(called("interact", '{"actions": {}}'), "must be a list", id="an object"),
        pytest.param(called("fly", "{}"), "no tool 'fly'; call interact or", id="other tool"),
        pytest.param(called(None, None), "no tool 'null'", id="no name"),
        pytest.param({"id": "a"}, "no function", id="no function"),
        pytest.param(7, "no function", id="no call at all"),
        pytest.param(called("interact", "[" * 60_000), "not valid JSON", id="deep"),
        pytest.param(called("interact", " " * 70_000), "longer than 65,536", id="long"),
    ],
)
def test_an_unreadable_call_is_malformed_with_a_reason(call: Any, reason: str) -> None:
    decision = by_tool(call)
    assert reason in (decision.malformed or "")
    assert decision.asked == ()


def test_a_bad_call_next_to_a_good_one_is_a_problem_but_not_malformed() -> None:
    good, bad = called("interact", {"actions": ["do"]}), called("fly", "{}", "b")
    reading = read_reply({"tool_calls": [bad, good]}, 5)
    assert reading.decision.actions == ("do",)
    assert reading.decision.malformed is None
    assert "no tool 'fly'" in reading.problems[0]
    assert reading.calls == ("b", "a")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"actions": ["do", "move_up"]}', id="bare"),
        pytest.param('Sure!\n```json\n{"actions": ["do", "move_up"]}\n```', id="fenced"),
        pytest.param('I see a tree [1]. {"actions": ["do", "move_up"]} Done.', id="in prose"),
        pytest.param('{"tool": "interact", "args": {"actions": [5, 3]}}', id="tool and args"),
        pytest.param(
            '<tool_call>{"name": "interact", "arguments": {"actions": ["do"]}}</tool_call>\n'
            '<tool_call>\n{"name": "interact", "arguments": {"actions": ["move_up"]}}\n'
            "</tool_call>",
            id="tags",
        ),
        pytest.param('[{"action": "do"}, {"action": "move_up"}]', id="a list of objects"),
        pytest.param('["do", "move_up"]', id="a list of names"),
        pytest.param(
            '<think>{"actions": ["noop"]}</think>{"action": "do, move up"}', id="think"
        ),
        pytest.param("Action: do, move_up", id="a line"),
        pytest.param("I am thirsty.\n**Action:** `do`\nAction: Move Up\n", id="two lines"),
        pytest.param("Thought: I do not know.\nactions: do; move_up.", id="after a thought"),
        pytest.param("Actions:\n- do\n- move_up\n\nThat is all.", id="bullets"),
        pytest.param("1. do\n2. move_up", id="nothing but a numbered list"),
        pytest.param("do move_up", id="nothing but names"),
        pytest.param("Do, Move Up.", id="nothing but names with commas"),
        pytest.param(
            "Action: do\nAction: move_up\nObservation: grass\nAction: sleep", id="invented"
        ),
    ],
)
def test_the_text_is_parsed_if_there_is_no_tool_call(text: str) -> None:
    assert by_text(text).actions == ("do", "move_up")


def test_a_terminate_call_in_the_text_ends_the_episode() -> None:
    text = '{"name": "terminate", "arguments": {"reason": "lost"}}'
    assert by_text(text).terminate == "lost"


@pytest.mark.parametrize(
    "text",
    [
        "I do not know what to do.",
        "Let me sleep on it and do something later",
        "do you see the tree?",
        "5",
        "[5]",
        "The action is clear: nothing, really, that one could do about it all in one line.",
        '{"thought": "do"}',
        '{"actions": ["do", "mo',
    ],
)
def test_prose_is_malformed_even_if_it_contains_action_words(text: str) -> None:
    decision = by_text(text)
    assert decision.asked == ()
    assert "names no actions" in (decision.malformed or "")


@pytest.mark.parametrize("content", [None, "", " \n", 5, ["do"]])
def test_a_reply_without_text_is_malformed(content: object) -> None:
    assert by_text(content).malformed == "it is empty"


def test_a_line_that_announces_an_action_may_name_an_unknown_one() -> None:
    assert by_text("Action: jump").unknown == ("jump",)


def test_a_huge_reply_is_malformed_and_not_searched() -> None:
    assert "longer than" in (by_text("do " * 4_000_000).malformed or "")
    many = [called("interact", '{"actions": ["do"]}')] * 1_000
    assert "1,000 tool calls" in (by_tool(*many).malformed or "")


def test_a_lone_surrogate_in_a_name_is_escaped() -> None:
    decision = by_tool(called("interact", '{"actions": ["\\ud800", "\\u001b[31m"]}'))
    assert decision.unknown == ("\\ud800", "\\x1b[31m")
    Message({"role": "user", "content": "".join(decision.unknown)})


nasty_text = st.text(st.characters(), max_size=40) | st.sampled_from(
    ["do", "interact", "terminate", "Action: do", '{"actions":', "[" * 5_000, "```json", "NaN"]
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | nasty_text,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["actions", "action", "name", "function", "arguments", "id"])
            | nasty_text,
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150)
@given(values, values, values, st.booleans(), st.integers(1, 50))
def test_no_reply_raises_and_every_played_action_exists(
    content: Any, name: Any, arguments: Any, encode: bool, limit: int
) -> None:
    calls: Any = [called(name, json.dumps(arguments) if encode else arguments), arguments]
    for reply in (
        {"content": content, "tool_calls": calls},
        {"content": content, "tool_calls": [called("interact", arguments)]},
        {"content": content, "tool_calls": content},
        {"content": json.dumps(content)},
        {"content": content},
    ):
        decision, _, _ = read_reply(reply, limit)
        assert set(decision.actions) <= set(ACTIONS)
        assert len(decision.asked) == len(decision.actions) + len(decision.unknown) <= limit
        nothing = not decision.asked and decision.terminate is None
        assert nothing == (decision.malformed is not None)
        texts = [*decision.asked, decision.malformed or "", decision.terminate or ""]
        assert all(len(text) < 700 and text.isprintable() for text in texts)


@settings(max_examples=200)
@given(st.text(st.sampled_from("do move_left,;:-*1.\n `actionACTION→>"), max_size=200))
def test_plain_text_never_raises(text: str) -> None:
    find_actions(text)

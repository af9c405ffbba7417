"""The grammar of a tool call follows from the schema of the tool."""

import json
import random
from typing import Any

import pytest

from assay.errors import UsageError
from assay.finetune.local.grammar import CALL_END, CALL_START, Grammar, make_call_grammar


def tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


PLAY = tool(
    "play",
    {
        "type": "object",
        "properties": {
            "actions": {
                "type": "array",
                "items": {"type": "string", "enum": ["do", "don't", "move_left"]},
                "minItems": 1,
                "maxItems": 2,
            },
            "notes": {"type": "string", "maxLength": 5},
            "times": {"type": "integer"},
            "share": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "place": {
                "type": "object",
                "properties": {"sure": {"type": "boolean"}},
                "required": ["sure"],
            },
        },
        "required": ["actions"],
    },
)
STOP = tool("stop", {})


def fits(text: str, *, tools: list[Any] | None = None, choice: Any = None) -> bool:
    grammar = make_call_grammar(tools or [PLAY, STOP], choice)
    return grammar.is_complete(grammar.step(grammar.start, text))


def call(arguments: str, name: str = "play") -> str:
    return CALL_START.format(name=json.dumps(name)) + arguments + CALL_END


@pytest.mark.parametrize(
    "arguments",
    [
        '{"actions":["do"]}',
        '{"actions":["do","don\'t"],"notes":"a\\"b"}',
        '{"notes":"","actions":["move_left"]}',
        '{"actions":["do"],"times":-120}',
        '{"actions":["do"],"share":0.5}',
        '{"actions":["do"],"share":null}',
        '{"actions":["do"],"place":{"sure":true}}',
    ],
)
def test_calls_that_the_schema_allows_can_be_generated(arguments: str) -> None:
    assert fits(call(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        "{}",
        '{"actions":[]}',
        '{"actions":["do","do","do"]}',
        '{"actions":["fly"]}',
        '{"actions":["do"],"notes":"abcdef"}',
        '{"actions":["do"],"notes":"a\nb"}',
        '{"actions":["do"],"actions":["do"]}',
        '{"actions":["do"],"times":01}',
        '{"actions":["do"],"place":{}}',
        '{"actions":["do"],"else":1}',
        '{"actions":["do"]',
    ],
)
def test_calls_that_the_schema_forbids_cannot_be_generated(arguments: str) -> None:
    assert not fits(call(arguments))


def test_a_required_tool_is_the_only_one_that_can_be_called() -> None:
    demanded = {"type": "function", "function": {"name": "stop"}}
    assert fits(call("{}", "stop"), choice=demanded)
    assert not fits(call('{"actions":["do"]}'), choice=demanded)
    with pytest.raises(UsageError, match="stopp"):
        make_call_grammar([PLAY], {"function": {"name": "stopp"}})


def test_an_unknown_json_type_is_rejected_by_name() -> None:
    with pytest.raises(UsageError, match="'float'"):
        make_call_grammar([tool("x", {"properties": {"a": {"type": "float"}}})])


def characters(grammar: Grammar, state: Any) -> list[str]:
    return [c for c in map(chr, range(9, 127)) if grammar.step(state, c)]


def test_every_random_prefix_can_be_completed_to_json() -> None:
    grammar, draw = make_call_grammar([PLAY, STOP]), random.Random(3)
    for length in range(0, 160, 4):
        text, state = "", grammar.start
        while len(text) < length and not grammar.is_complete(state):
            character = draw.choice(characters(grammar, state))
            text, state = text + character, grammar.step(state, character)
        if not grammar.is_complete(state):
            text += grammar.find_completion(state)
        assert fits(text)
        parsed = json.loads(text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
        assert parsed["name"] in ("play", "stop")

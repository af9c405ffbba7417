"""The scripted model of `--script`: choice of script, turn and tool, and its end."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from assay.agents.builtin import make_builtin_models
from assay.errors import UsageError
from assay.models.serving.app import ModelServerSettings, running
from assay.models.serving.scripted import ScriptedModel, read_scripts
from assay.types import ChatReply, ChatRequest, Encoded, Message

from .calls import CHAT, post
from .test_other_protocols import MESSAGES, RESPONSES

FILE = """
[[scripts]]
when = "parser.py"
commands = ["ls", "make 'it'"]
say = "The parser works."
reasoning_tokens = 5

[[scripts]]
when = "lexer.py"
commands = ["cat lexer.py"]
"""
USER: dict[str, Any] = {"role": "user", "content": "Mend parser.py."}
MINI: dict[str, Any] = {
    "role": "system",
    "content": "When you are done, run echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "solve.toml"
    path.write_text(FILE, "utf-8")
    return path


@pytest.fixture
def model(file: Path) -> ScriptedModel:
    return read_scripts(file)


def tool(name: str, argument: str = "command", **schema: Any) -> dict[str, Any]:
    properties = {argument: {"type": "string", **schema}}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def result(turn: int) -> list[dict[str, Any]]:
    """Return a tool call and its result as messages."""
    function = {"name": "bash", "arguments": "{}"}
    calls = [{"id": f"call_{turn}", "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"call_{turn}", "content": "failed: lexer.py"},
    ]


def answer(model: ScriptedModel, *messages: Any, tools: Any = None) -> ChatReply:
    told = [Message(message) for message in messages]
    return asyncio.run(model.reply(ChatRequest("any", told, Encoded(tools or [tool("bash")]))))


def called(reply: ChatReply) -> tuple[str, dict[str, str]]:
    assert reply.finish_reason == "tool_calls"
    (call,) = reply.message.value["tool_calls"]
    return call["function"]["name"], json.loads(call["function"]["arguments"])


def test_scripted_model_runs_all_commands_and_then_finishes(
    model: ScriptedModel,
) -> None:
    assert model.name == "scripted/solve"
    assert called(answer(model, USER)) == ("bash", {"command": "ls"})
    second = answer(model, USER, *result(0))
    assert called(second) == ("bash", {"command": "make 'it'"})
    last = answer(model, USER, *result(0), *result(1))
    assert (last.message.text, last.finish_reason) == ("The parser works.", "stop")
    assert answer(model, USER, *result(0)) == second, "it remembers nothing"


@pytest.mark.parametrize(
    ("name", "argument"), [("exec_command", "cmd"), ("Bash", "command"), ("bash", "command")]
)
def test_scripted_model_finds_the_shell_tool(
    model: ScriptedModel, name: str, argument: str
) -> None:
    others = [
        {"type": "function", "function": {"name": "bare"}},
        tool("read", "path"),
        tool("editor", "command", enum=["view", "create"]),
    ]
    reply = answer(model, USER, tools=[*others, tool(name, argument)])
    assert called(reply) == (name, {argument: "ls"})
    assert "takes a command line" in answer(model, USER, tools=others).message.text


def test_first_script_matching_the_prompt_is_used(model: ScriptedModel) -> None:
    parts = [{"type": "text", "text": "Mend lexer.py."}, {"type": "image_url"}]
    in_parts = answer(model, {"role": "user", "content": parts})
    assert called(in_parts)[1] == {"command": "cat lexer.py"}
    both = answer(model, {"role": "system", "content": "lexer.py"}, USER)
    assert called(both)[1] == {"command": "ls"}
    neither = answer(model, {"role": "user", "content": "hi"}, *result(0))
    assert "None of the scripts of scripted/solve" in neither.message.text


def test_scripted_model_finishes_with_the_agent_protocol(model: ScriptedModel) -> None:
    done = [USER, *result(0), *result(1)]
    submitted = answer(model, *done, tools=[tool("bash"), tool("submit", "notes")])
    assert called(submitted) == ("submit", {"notes": "The parser works."})
    line = {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}
    assert called(answer(model, MINI, *done)) == ("bash", line)


def test_prompt_before_the_last_reply_counts_as_cached(model: ScriptedModel) -> None:
    first, second = answer(model, USER).usage, answer(model, USER, *result(0)).usage
    assert (first.cached, second.cached) == (0, first.prompt)
    assert second.prompt > first.prompt
    assert (first.reasoning, second.reasoning) == (5, 5)
    assert first.completion > 5


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
def test_scripted_model_is_served_by_every_protocol(path: str, file: Path) -> None:
    parameters = tool("bash")["function"]["parameters"]
    bodies: dict[str, Any] = {
        CHAT: {"messages": [USER], "tools": [tool("bash")]},
        RESPONSES: {
            "input": [USER],
            "tools": [{"type": "function", "name": "bash", "parameters": parameters}],
        },
        MESSAGES: {
            "messages": [USER],
            "max_tokens": 100,
            "tools": [{"name": "bash", "input_schema": parameters}],
        },
    }
    settings = ModelServerSettings(port=0, script=file, aliases={"gpt": "scripted/solve"})
    with running(settings, make_builtin_models()) as server:
        assert server.names[-2:] == ("scripted/solve", "gpt")
        for model in server.names[-2:]:
            got = post(server.address, {"model": model, **bodies[path]}, path)
            assert got.status == 200
            assert b"call_0" in got.body
            assert b"ls" in got.body


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("", ["has no script", "[[scripts]]"]),
        ("scripts = 3", ["has no script"]),
        ("scripts = [3]", ["script 1", "not a table"]),
        ("[[script]]\ncommands = ['ls']", ["'script'", "did you mean 'scripts'"]),
        ("[[scripts]]\ncommand = ['ls']", ["script 1", "'command'", "did you mean 'commands'"]),
        ("[[scripts]]\nwhen = 'x'", ["script 1", "has no commands"]),
        ("[[scripts]]\ncommands = []", ["script 1", "commands: []", "one or more"]),
        ("[[scripts]]\ncommands = ['ls', ' ']", ["script 1", "one or more"]),
        ("[[scripts]]\ncommands = 'ls'", ["commands: 'ls'", "one or more"]),
        ("[[scripts]]\ncommands = ['ls']\nwhen = ''", ["when: ''", "not empty"]),
        ("[[scripts]]\ncommands = ['ls']\nreasoning_tokens = -1", ["-1", "from 0"]),
        ("[[scripts]", ["not valid TOML"]),
    ],
)
def test_invalid_script_file_is_rejected(
    content: str, parts: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "solve.toml"
    file.write_text(content, "utf-8")
    with pytest.raises(UsageError) as caught:
        read_scripts(file)
    assert [part for part in ["solve.toml", *parts] if part not in str(caught.value)] == []


def test_unreadable_script_file_is_rejected(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    for file, reason in (
        (tmp_path, "directory"),
        (binary, "UTF-8"),
        (tmp_path / "a\nb", "printable"),
    ):
        with pytest.raises(UsageError, match=reason):
            read_scripts(file)

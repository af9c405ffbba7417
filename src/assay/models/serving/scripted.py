"""A scripted model, which runs shell commands one after another, then sends a final message.

Like every built-in model, it is a pure function of the request. It uses the first script whose
text occurs in the system and user messages, and the turn is the number of tool results. It
calls the first tool that takes a command line, so that any coding agent can be tested with it.

`example` makes a value that matches a JSON schema, for required tools and formats. It uses the
first allowed option and omits optional parts. Schemas come from clients: for one that is nested
too deeply or contradicts itself, the value may not match. Patterns are ignored.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay.core.text import shown, unknown_name
from assay.core.values import ValueType, file_text, label, text, value_type, whole
from assay.errors import UsageError
from assay.models.wire import token_count
from assay.types import ChatReply, ChatRequest, Message, Usage

_PROMPT_ROLES: Final = ("system", "developer", "user")
_ARGUMENTS: Final = ("command", "cmd")
"""Argument names of tools that take a command line."""
_SUBMIT: Final = "submit"
"""Tool of some agents that ends the task."""
_SUBMIT_LINE: Final = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""Command that ends the task in mini-swe-agent, where a message alone does not."""
_LONGEST_REPLY: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Script:
    """Commands for one kind of conversation."""

    commands: tuple[str, ...]
    when: str = ""
    """Text that must occur in the conversation; an empty text always does."""
    say: str = "Done."
    """The final message."""
    reasoning_tokens: int = 0
    """Reasoning tokens that each reply reports, for clients that count them."""


class ScriptedModel:
    """A `ChatModel` that runs the commands of its scripts.

    A token is four bytes, as with the other built-in models. Messages before the last reply
    count as cached.
    """

    provider = "builtin"

    def __init__(self, name: str, scripts: Sequence[_Script]) -> None:
        self.name = name
        self._scripts = scripts

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Return the next command, or a message why there is none."""
        prompts = (part for part in request.messages if part.role in _PROMPT_ROLES)
        prompt = "\n".join(map(_get_text, prompts))
        script = next((script for script in self._scripts if script.when in prompt), None)
        if script is None:
            message = _make_text(
                f"None of the scripts of {self.name} is for this conversation."
            )
        else:
            message = _choose_message(script, request, prompt)
        sizes = [len(part.encoded) for part in request.messages]
        replies = [at for at, part in enumerate(request.messages) if part.role == "assistant"]
        thought = script.reasoning_tokens if script else 0
        return ChatReply(
            message=message,
            finish_reason="tool_calls" if "tool_calls" in message.value else "stop",
            usage=Usage(
                prompt=token_count(sum(sizes)),
                completion=token_count(len(message.encoded)) + thought,
                cached=token_count(sum(sizes[: replies[-1]])) if replies else 0,
                reasoning=thought,
            ),
            cost_usd=0.0,
        )

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _choose_message(script: _Script, request: ChatRequest, prompt: str) -> Message:
    """Return the next command; after the last one, end the task in the agent's way."""
    functions = [tool["function"] for tool in request.tools.value]
    shell = _find_shell(functions)
    if shell is None:
        return _make_text("None of the tools that I am offered takes a command line.")
    tool, argument = shell
    turn = sum(message.role == "tool" for message in request.messages)
    if turn < len(script.commands):
        return _make_call(turn, tool, {argument: script.commands[turn]})
    if any(function["name"] == _SUBMIT for function in functions):
        return _make_call(turn, _SUBMIT, {"notes": script.say})
    if _SUBMIT_LINE in prompt:
        return _make_call(turn, tool, {argument: _SUBMIT_LINE})
    return _make_text(script.say)


def _find_shell(functions: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Find the first tool that takes a command line, and its argument."""
    for function in functions:
        properties = (function.get("parameters") or {}).get("properties")
        for argument in _ARGUMENTS:
            match properties.get(argument) if isinstance(properties, Mapping) else None:
                # The "command" of an editor tool is an enum.
                case {"type": "string", **rest} if "enum" not in rest:
                    return function["name"], argument
    return None


def _get_text(message: Message) -> str:
    content = message.value.get("content")
    parts = content if isinstance(content, list) else ()
    return message.text or "\n".join(str(part.get("text") or "") for part in parts)


def _make_text(words: str) -> Message:
    return Message({"role": "assistant", "content": words})


def _make_call(turn: int, tool: str, arguments: Mapping[str, str]) -> Message:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    return Message({"role": "assistant", "content": None, "tool_calls": [call]})


@value_type('one or more command lines, such as ["ls", "cat README.md"]')
def _read_commands(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    return tuple(text(_LONGEST_REPLY).read(line) for line in value)


_KEYS: Final[Mapping[str, ValueType]] = {
    "when": text(_LONGEST_REPLY),
    "commands": _read_commands,
    "say": text(_LONGEST_REPLY),
    "reasoning_tokens": whole(0, 1_000_000),
}
"""Keys of a script, and their types."""


def read_scripts(file: Path) -> ScriptedModel:
    """Read the scripted model of a TOML file; its name is `scripted/` and the file's stem.

    Raises:
        UsageError: The file is invalid or cannot be read.
    """
    try:
        name = label.read(f"scripted/{file.stem}")
    except ValueError as error:
        raise UsageError(
            f"{str(file)!r} is not a valid model name; give the file a short printable name"
        ) from error
    try:
        document = tomllib.loads(file_text(file).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not valid TOML: {error}; see https://toml.io") from error
    for key in document:
        if key != "scripts":
            raise UsageError(f"{file}: {unknown_name('key', key, ['scripts'])}")
    tables = document.get("scripts")
    if not isinstance(tables, list) or not tables:
        raise UsageError(f"{file} has no script; add [[scripts]] with commands")
    scripts = [
        _make_script(table, f"{file}: script {at}") for at, table in enumerate(tables, 1)
    ]
    return ScriptedModel(name, scripts)


def _make_script(table: Any, where: str) -> _Script:
    if not isinstance(table, Mapping):
        raise UsageError(f"{where} is not a table; write [[scripts]], and its keys below it")
    values = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise UsageError(f"{where}: {unknown_name('key', key, _KEYS)}")
        try:
            values[key] = _KEYS[key].read(value)
        except ValueError as error:
            raise UsageError(
                f"{where}: {key}: {shown(value)} is not allowed; give {_KEYS[key].allowed}"
            ) from error
    if "commands" not in values:
        raise UsageError(f"{where} has no commands; give {_read_commands.allowed}")
    return _Script(**values)


_DEEPEST: Final = 20
_LONGEST_EXAMPLE: Final = 1000
_FORMATS: Final = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "someone@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def example(schema: Any, root: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """Make a value that a schema allows.

    Args:
        schema: The schema.
        root: The schema that contains the targets of references (default: `schema`).
        depth: Nesting depth in the root.
    """
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    root = schema if root is None else root
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if isinstance(schema.get("$ref"), str):
        return example(_resolve(schema["$ref"], root), root, depth + 1)
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return example(schema[name][0], root, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match kind or ("object" if "properties" in schema else None):
        case "object":
            return _make_object(schema, root, depth)
        case "array":
            count = min(_as_count(schema.get("minItems")), _LONGEST_EXAMPLE)
            return [example(schema.get("items"), root, depth + 1) for _ in range(count)]
        case "string":
            text = _FORMATS.get(str(schema.get("format")), "text")
            return text.ljust(min(_as_count(schema.get("minLength")), _LONGEST_EXAMPLE), ".")
        case "integer" | "number":
            return _make_number(schema)
        case "boolean":
            return False
    return None


def _make_object(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if required else []
    return {
        name: example(properties.get(name), root, depth + 1)
        for name in names[:_LONGEST_EXAMPLE]
    }


def _make_number(schema: Mapping[str, Any]) -> float:
    for name, step in (("minimum", 0), ("exclusiveMinimum", 1)):
        if (low := _as_number(schema.get(name))) is not None:
            return low + step
    for name, step in (("maximum", 0), ("exclusiveMaximum", -1)):
        if (high := _as_number(schema.get(name))) is not None:
            return min(high + step, 0)
    return 0


def _as_number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found

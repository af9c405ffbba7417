"""A model that works by a script: shell commands one after another, then a closing message.

Like every built-in model it is a function of the request. The script is the first whose text
occurs in what the conversation was told, and the turn is the number of results of tools in it.
It calls whatever tool takes a command line, so that any coding agent can be tried with it.

A value that fits a JSON schema: what a built-in model hands to a tool that is not its own.

Takes the first of what is allowed, and leaves out what is optional. Schemas come from clients:
one that goes too deep, or contradicts itself, gets a value that may not fit. Patterns are not
looked at.
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

_TOLD: Final = ("system", "developer", "user")
_ARGUMENTS: Final = ("command", "cmd")
"""What tools call the command line that they take."""
_SUBMIT: Final = "submit"
"""The tool that says that the work is done, where an agent has one."""
_SUBMIT_LINE: Final = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""What mini-swe-agent tells a model to run when it is done; words alone do not end it."""
_LONGEST_REPLY: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Script:
    """What to run in one kind of conversation."""

    commands: tuple[str, ...]
    when: str = ""
    """A text that occurs in the conversation; every conversation has the empty one."""
    say: str = "Done."
    """The closing message."""
    reasoning_tokens: int = 0
    """What each reply claims to have thought, for clients that count it."""


class ScriptedModel:
    """A `ChatModel` that runs what its scripts say.

    A token is four bytes, as with the other built-in models. What was sent before the last
    reply counts as read from a cache.
    """

    provider = "builtin"

    def __init__(self, name: str, scripts: Sequence[_Script]) -> None:
        self.name = name
        self._scripts = scripts

    async def reply(self, request: ChatRequest) -> ChatReply:
        """Call the shell, or say why not."""
        told = "\n".join(_text(part) for part in request.messages if part.role in _TOLD)
        script = next((script for script in self._scripts if script.when in told), None)
        if script is None:
            message = _said(f"None of the scripts of {self.name} is for this conversation.")
        else:
            message = _next(script, request, told)
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
        """Nothing is held open."""


def _next(script: _Script, request: ChatRequest, told: str) -> Message:
    """The command whose turn it is; after the last one, the end in the agent's own way."""
    functions = [tool["function"] for tool in request.tools.value]
    shell = _shell(functions)
    if shell is None:
        return _said("None of the tools that I am offered takes a command line.")
    tool, argument = shell
    turn = sum(message.role == "tool" for message in request.messages)
    if turn < len(script.commands):
        return _call(turn, tool, {argument: script.commands[turn]})
    if any(function["name"] == _SUBMIT for function in functions):
        return _call(turn, _SUBMIT, {"notes": script.say})
    if _SUBMIT_LINE in told:
        return _call(turn, tool, {argument: _SUBMIT_LINE})
    return _said(script.say)


def _shell(functions: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return the first tool that takes a command line, and the argument that takes it."""
    for function in functions:
        properties = (function.get("parameters") or {}).get("properties")
        for argument in _ARGUMENTS:
            match properties.get(argument) if isinstance(properties, Mapping) else None:
                # An editor's "command" is one of a few words.
                case {"type": "string", **rest} if "enum" not in rest:
                    return function["name"], argument
    return None


def _text(message: Message) -> str:
    content = message.value.get("content")
    parts = content if isinstance(content, list) else ()
    return message.text or "\n".join(str(part.get("text") or "") for part in parts)


def _said(words: str) -> Message:
    return Message({"role": "assistant", "content": words})


def _call(turn: int, tool: str, arguments: Mapping[str, str]) -> Message:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    return Message({"role": "assistant", "content": None, "tool_calls": [call]})


@value_type('one or more command lines, such as ["ls", "cat README.md"]')
def _commands(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    return tuple(text(_LONGEST_REPLY).read(line) for line in value)


_KEYS: Final[Mapping[str, ValueType]] = {
    "when": text(_LONGEST_REPLY),
    "commands": _commands,
    "say": text(_LONGEST_REPLY),
    "reasoning_tokens": whole(0, 1_000_000),
}
"""The keys of a script, and what each takes."""


def read_scripts(file: Path) -> ScriptedModel:
    """The model of a TOML file, called `scripted/` and the name of the file without its end.

    Raises:
        UsageError: The file cannot be read or is not in order.
    """
    try:
        name = label.read(f"scripted/{file.stem}")
    except ValueError as error:
        raise UsageError(
            f"{str(file)!r} cannot name a model; give the file a short printable name"
        ) from error
    try:
        said = tomllib.loads(file_text(file).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}: not valid TOML: {error}; see https://toml.io") from error
    for key in said:
        if key != "scripts":
            raise UsageError(f"{file}: {unknown_name('key', key, ['scripts'])}")
    tables = said.get("scripts")
    if not isinstance(tables, list) or not tables:
        raise UsageError(f"{file} has no script; add [[scripts]] with commands")
    scripts = [_script(table, f"{file}: script {at}") for at, table in enumerate(tables, 1)]
    return ScriptedModel(name, scripts)


def _script(table: Any, where: str) -> _Script:
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
        raise UsageError(f"{where} has no commands; give {_commands.allowed}")
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
    """Return a value that a schema allows; references lead into `root`, or the schema."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    root = schema if root is None else root
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if isinstance(schema.get("$ref"), str):
        return example(_target(schema["$ref"], root), root, depth + 1)
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return example(schema[name][0], root, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    match kind or ("object" if "properties" in schema else None):
        case "object":
            return _object(schema, root, depth)
        case "array":
            count = min(_whole(schema.get("minItems")), _LONGEST_EXAMPLE)
            return [example(schema.get("items"), root, depth + 1) for _ in range(count)]
        case "string":
            text = _FORMATS.get(str(schema.get("format")), "text")
            return text.ljust(min(_whole(schema.get("minLength")), _LONGEST_EXAMPLE), ".")
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return False
    return None


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if required else []
    return {
        name: example(properties.get(name), root, depth + 1)
        for name in names[:_LONGEST_EXAMPLE]
    }


def _number(schema: Mapping[str, Any]) -> float:
    for name, step in (("minimum", 0), ("exclusiveMinimum", 1)):
        if (low := _real(schema.get(name))) is not None:
            return low + step
    for name, step in (("maximum", 0), ("exclusiveMaximum", -1)):
        if (high := _real(schema.get(name))) is not None:
            return min(high + step, 0)
    return 0


def _real(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _target(reference: str, root: Mapping[str, Any]) -> Any:
    """What a reference within a schema leads to."""
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found

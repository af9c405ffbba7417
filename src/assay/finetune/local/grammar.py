"""Grammars that restrict a reply to tool calls that conform to their JSON schemas.

A grammar reads character by character. Its state is the set of all possible continuations, so
that a sampler can test for every token whether it fits. JSON is written without white space,
with the properties of an object in any order, and only those that the schema names. Number
ranges and string patterns are not enforced.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from assay.core.text import unknown_name
from assay.errors import UsageError

CALL_START: Final = '<tool_call>\n{{"name": {name}, "arguments": '
CALL_END: Final = "}\n</tool_call>"
_MAX_DIGITS: Final = 15
"""Number of digits that a float can represent."""
_MAX_DEPTH: Final = 20


class _Rule(Protocol):
    """A nonterminal of the grammar."""

    def expand(self) -> "Iterable[tuple[_Symbol, ...]]":
        """Return the sequences that the rule may expand to."""
        ...

    def find_shortest(self) -> str:
        """Return a shortest or nearly shortest text that the rule matches."""
        ...


_Symbol = str | frozenset[str] | _Rule
"""Literal text, one character of a set (`_PLAIN`: any character not in it), or a rule."""
_ESCAPED: Final = frozenset('"\\') | frozenset(map(chr, range(32)))
"""Characters that must be escaped in a JSON string; as a symbol it matches all others."""
_DIGIT: Final = frozenset("0123456789")
_Config = tuple[_Symbol, ...]
State = frozenset[_Config]


@dataclass(frozen=True, slots=True)
class _Choice:
    """One of several sequences."""

    options: tuple[_Config, ...]

    def expand(self) -> Iterable[_Config]:
        return self.options

    def find_shortest(self) -> str:
        return min(map(_find_shortest, self.options), key=len)


@dataclass(frozen=True, slots=True)
class _Text:
    """The rest of a JSON string, including the closing quote."""

    least: int = 0
    most: int | None = None

    def expand(self) -> Iterable[_Config]:
        if self.least == 0:
            yield ('"',)
        if self.most != 0:
            most = None if self.most is None else self.most - 1
            rest = _Text(max(0, self.least - 1), most)
            yield (_ESCAPED, rest)
            yield ("\\", frozenset('"\\/bfnrt'), rest)

    def find_shortest(self) -> str:
        return "x" * self.least + '"'


@dataclass(frozen=True, slots=True)
class _Digits:
    """Up to `left` more digits."""

    left: int = _MAX_DIGITS

    def expand(self) -> Iterable[_Config]:
        yield ()
        if self.left:
            yield (_DIGIT, _Digits(self.left - 1))

    def find_shortest(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class _Items:
    """The rest of an array, after `count` items."""

    item: _Symbol
    least: int
    most: int | None
    count: int = 0

    def expand(self) -> Iterable[_Config]:
        if self.count >= self.least:
            yield ("]",)
        if self.most is None or self.count < self.most:
            yield (*self._get_separator(), self.item, self._advance())

    def _get_separator(self) -> tuple[str, ...]:
        return (",",) if self.count else ()

    def _advance(self) -> "_Items":
        # If no bound remains to be checked, the count is irrelevant.
        count = self.count + 1
        return _Items(self.item, self.least, self.most, count if self._is_bounded else 1)

    @property
    def _is_bounded(self) -> bool:
        return self.most is not None or self.count < self.least

    def find_shortest(self) -> str:
        if self.count >= self.least:
            return "]"
        return _find_shortest((*self._get_separator(), self.item, self._advance()))


@dataclass(frozen=True, slots=True)
class _Properties:
    """The rest of an object: required and optional properties that may still follow."""

    required: tuple[tuple[str, _Symbol], ...]
    optional: tuple[tuple[str, _Symbol], ...]
    first: bool = True

    def expand(self) -> Iterable[_Config]:
        if not self.required:
            yield ("}",)
        for name, value in (*self.required, *self.optional):
            yield self._expand_property(name, value)

    def _expand_property(self, name: str, value: _Symbol) -> _Config:
        rest = _Properties(
            tuple(entry for entry in self.required if entry[0] != name),
            tuple(entry for entry in self.optional if entry[0] != name),
            first=False,
        )
        return (f"{'' if self.first else ','}{_format_json(name)}:", value, rest)

    def find_shortest(self) -> str:
        return (
            _find_shortest(self._expand_property(*self.required[0])) if self.required else "}"
        )


def _find_shortest(symbols: _Config) -> str:
    text = ""
    for symbol in symbols:
        if isinstance(symbol, str):
            text += symbol
        elif isinstance(symbol, frozenset):
            text += "x" if symbol is _ESCAPED else min(symbol)
        else:
            text += symbol.find_shortest()
    return text


def _format_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _convert_schema(schema: Any, depth: int = 0) -> _Symbol:
    """Convert a JSON schema to a symbol."""
    if depth > _MAX_DEPTH:
        raise UsageError(f"a tool's parameters are nested deeper than {_MAX_DEPTH} levels")
    if not isinstance(schema, Mapping):
        schema = {}
    for keyword in ("enum", "const"):
        if keyword in schema:
            values = schema[keyword] if keyword == "enum" else [schema[keyword]]
            return _Choice(tuple((_format_json(value),) for value in values))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return _Choice(
                tuple((_convert_schema(option, depth + 1),) for option in schema[keyword])
            )
    kind = schema.get("type", "string")
    if isinstance(kind, list):
        return _Choice(
            tuple((_convert_schema({**schema, "type": option}, depth),) for option in kind)
        )
    return _convert_type(kind, schema, depth)


def _convert_type(kind: str, schema: Mapping[str, Any], depth: int) -> _Symbol:
    match kind:
        case "string":
            text = _Text(schema.get("minLength", 0), schema.get("maxLength"))
            return _Choice((('"', text),))
        case "boolean":
            return _Choice((("true",), ("false",)))
        case "null":
            return "null"
        case "integer" | "number":
            integer: _Config = (_Choice((("0",), (frozenset("123456789"), _Digits()))),)
            options: list[_Config] = [integer, ("-", *integer)]
            if kind == "number":
                options += [(*option, ".", _DIGIT, _Digits()) for option in list(options)]
            return _Choice(tuple(options))
        case "array":
            item = _convert_schema(schema.get("items"), depth + 1)
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            return _Choice((("[", _Items(item, least, most)),))
        case "object":
            values = {
                name: _convert_schema(inner, depth + 1)
                for name, inner in (schema.get("properties") or {}).items()
            }
            required = [name for name in schema.get("required") or () if name in values]
            rest = _Properties(
                tuple((name, values[name]) for name in required),
                tuple(option for option in values.items() if option[0] not in required),
            )
            return _Choice((("{", rest),))
    raise UsageError(
        f"a tool's parameters have the unknown type {kind!r}; JSON schema has string, "
        "boolean, null, integer, number, array and object"
    )


class Grammar:
    """Set of allowed texts, read character by character from `start`."""

    def __init__(self, options: Iterable[_Config]) -> None:
        self.start = self._expand_rules(options)
        """State before the first character."""
        self._transitions: dict[tuple[State, str], State] = {}

    def step(self, state: State, text: str) -> State:
        """Return the state after some text; empty if the text does not fit."""
        for character in text:
            key = (state, character)
            following = self._transitions.get(key)
            if following is None:
                following = self._transitions[key] = self._step(state, character)
            state = following
            if not state:
                break
        return state

    def _step(self, state: State, character: str) -> State:
        following: list[_Config] = []
        for config in state:
            if not config:
                continue
            first, rest = config[0], config[1:]
            if isinstance(first, str):
                if first[0] == character:
                    following.append((first[1:], *rest) if len(first) > 1 else rest)
            elif isinstance(first, frozenset) and (character in first) != (first is _ESCAPED):
                following.append(rest)
        return self._expand_rules(following)

    @staticmethod
    def _expand_rules(configs: Iterable[_Config]) -> State:
        """Expand all rules that are at the front of a configuration."""
        expanded: set[_Config] = set()
        pending = list(configs)
        while pending:
            config = pending.pop()
            if not config or isinstance(config[0], (str, frozenset)):
                expanded.add(config)
            else:
                pending += [(*option, *config[1:]) for option in config[0].expand()]
        return frozenset(expanded)

    @staticmethod
    def is_complete(state: State) -> bool:
        """Return whether the text may end here."""
        return () in state

    @staticmethod
    def find_completion(state: State) -> str:
        """Return a short text that completes the text so far."""
        return min(
            (_find_shortest(config) for config in state), key=lambda text: (len(text), text)
        )


def make_call_grammar(tools: Sequence[Mapping[str, Any]], tool_choice: Any = None) -> Grammar:
    """Build the grammar of exactly one call to one of the tools, or to the demanded one.

    Raises:
        UsageError: The demanded tool is not offered, or a schema cannot be read.
    """
    return Grammar(_list_calls(tools, tool_choice))


def _list_calls(tools: Sequence[Mapping[str, Any]], choice: Any) -> Iterable[_Config]:
    offered = {
        str(tool["function"]["name"]): tool["function"].get("parameters") for tool in tools
    }
    if isinstance(choice, Mapping):
        name = str(choice.get("function", {}).get("name"))
        if name not in offered:
            raise UsageError(unknown_name("tool", name, list(offered)))
        offered = {name: offered[name]}
    for name, parameters in offered.items():
        schema = {"type": "object", **(parameters or {})}
        yield (CALL_START.format(name=_format_json(name)), _convert_schema(schema), CALL_END)

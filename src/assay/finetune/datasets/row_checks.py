"""Checks of rows in a single pass over the file.

Rows share most of their messages, so results are cached: for tools, for messages with these
tools, and for sequences of roles.
"""

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from assay.core.text import shown
from assay.errors import UsageError
from assay.finetune.datasets.formats import read_row
from assay.finetune.datasets.message_checks import (
    CheckedMessage,
    Problem,
    RowFault,
    RowFindings,
    TokenCounter,
    check_message,
    get_tool_schemas,
)

_MAX_CACHED: Final = 100_000
_MAX_TOOL_SETS: Final = 64
_ROLE_ORDER: Final = frozenset(
    {
        *(("", role) for role in ("system", "developer", "user")),
        *((role, "user") for role in ("system", "developer", "user", "assistant", "tool")),
        *((role, "assistant") for role in ("system", "developer", "user", "tool")),
        *((role, "tool") for role in ("assistant", "tool")),
    }
)
"""Allowed pairs of consecutive roles."""
_ROW_START: Final = re.compile(rb'\{"messages":( ?)\[\{"(?:content|role)": ?')
_SEPARATORS: Final = {b"": b"},", b" ": b"}, "}
_TOOLS_START: Final = {b"": b'],"tools":', b" ": b'], "tools": '}
_ZERO_WEIGHT: Final = b',"weight":0'
_BRACE: Final = ord("}")


class _ToolCache:
    """Tools, with the checked messages of rows that have them."""

    def __init__(self, tools: list[Any] | None, count: TokenCounter) -> None:
        self.schemas = get_tool_schemas(tools or ())
        self.tokens = count(str(tools)) if tools else 0
        self.messages: dict[bytes, CheckedMessage] = {}


class _CheckedRoles(NamedTuple):
    """Result of checking a sequence of roles."""

    problem: Problem | None
    results: tuple[tuple[int, int | None], ...]
    """Positions of tool results, each with the position of the answer before it."""


class RowChecks:
    """State of the checks while a file is read."""

    def __init__(self, count: TokenCounter, max_tokens: int | None) -> None:
        self.findings = RowFindings()
        self.lengths = array("I")
        self.trained = 0
        self.forms: Counter[str] = Counter()
        self.actions: Counter[str] = Counter()
        self.answers = self.untrained = 0
        self.hashes = array("q")
        self.rows = 0
        self._count = count
        self._max_tokens = max_tokens
        self._tool_caches: dict[bytes, _ToolCache] = {}
        self._last_end = b""
        self._roles: dict[tuple[str, ...], _CheckedRoles] = {}

    def check_line(self, line: int, content: bytes) -> None:
        """Check one line of JSON."""
        if not self._check_by_pieces(line, content):
            try:
                value = from_json(content, allow_inf_nan=False, cache_strings="keys")
            except ValueError as error:
                self._add_parse_error(line, content, error)
            else:
                self.check_row(line, value)

    def check_row(self, line: int, value: Any) -> None:
        """Check one parsed row."""
        try:
            row = read_row(value)
        except UsageError as error:
            self._add_invalid_row(line, RowFault.SHAPE, str(error))
            return
        self.rows += 1
        self.forms[row.form] += 1
        key = str(row.tools).encode("utf-8", "replace")
        cache = self._tool_caches.get(key) or self._cache_tools(key, row.tools)
        checked = [
            check_message(message, cache.schemas, self._count) for message in row.messages
        ]
        self._check_sequence(
            line, checked, cache.tokens, row.prompt, is_prompt=row.form == "prompts"
        )

    def _add_parse_error(self, line: int, content: bytes, error: ValueError) -> None:
        if not content.strip():
            self.findings.add(RowFault.BLANK, line, "it is empty")
            self.hashes.append(-line)
            return
        reason = str(error).partition(" at line ")[0]
        if not content.endswith(b"\n"):
            reason += "; the file ends here, so it is incomplete"
        self._add_invalid_row(line, RowFault.JSON, reason)

    def _add_invalid_row(self, line: int, kind: RowFault, description: str) -> None:
        self.rows += 1
        self.findings.add(kind, line, description)
        self.hashes.append(-line)

    def _check_by_pieces(self, line: int, content: bytes) -> bool:
        """Check a row message by message without parsing it whole; return False if that fails.

        Quotation marks inside JSON text are escaped, so a separator matches only between
        messages. If it matches elsewhere, the pieces are invalid JSON and False is returned.
        Because histories repeat, nearly every piece is in the cache.
        """
        start = _ROW_START.match(content)
        if start is None:
            return False
        end = self._last_end
        if not end or not content.endswith(end):
            position = content.rfind(_TOOLS_START[start[1]])
            end = self._last_end = content[position if position > 0 else content.rfind(b"]") :]
        if content[-len(end) - 1] != _BRACE:
            return False
        cache = self._tool_caches.get(end)
        first = start[0][start.end(1) + 1 :]
        try:
            if cache is None:
                # The text after the messages: the tools, and the end of the row.
                fields = from_json(b"{" + end[1:].lstrip(b", "))
                if fields.keys() - {"tools"}:
                    return False
                cache = self._cache_tools(end, fields.get("tools"))
            messages = cache.messages
            row = [
                messages.get(piece) or self._check_piece(first, piece, cache)
                for piece in content[start.end() : -len(end) - 1].split(
                    _SEPARATORS[start[1]] + first
                )
            ]
        except (ValueError, TypeError, AttributeError):
            return False
        self.rows += 1
        self.forms["openai"] += 1
        self._check_sequence(line, row, cache.tokens, 0)
        return True

    def _check_piece(self, start: bytes, piece: bytes, cache: _ToolCache) -> CheckedMessage:
        """Check a message that was cut out of its row, without its first key."""
        messages = cache.messages
        if len(messages) >= _MAX_CACHED:
            messages.clear()
        plain = piece.removesuffix(_ZERO_WEIGHT)
        checked = messages.get(plain)
        if checked is None:
            message = from_json(start + plain + b"}", allow_inf_nan=False)
            checked = messages[plain] = check_message(message, cache.schemas, self._count)
        if len(plain) < len(piece):
            checked = messages[piece] = checked._replace(trained=False)
        return checked

    def _cache_tools(self, key: bytes, tools: Any) -> _ToolCache:
        if tools is not None and not isinstance(tools, list):
            raise TypeError
        if len(self._tool_caches) >= _MAX_TOOL_SETS:
            self._tool_caches.clear()
        cache = self._tool_caches[key] = _ToolCache(tools, self._count)
        return cache

    def _check_sequence(
        self,
        line: int,
        row: Sequence[CheckedMessage],
        tools: int,
        prompt: int,
        *,
        is_prompt: bool = False,
    ) -> None:
        """Check the messages of a row as a sequence.

        Args:
            line: Line number of the row.
            row: Its messages.
            tools: Number of tokens of its tools.
            prompt: Number of leading messages that are never trained.
            is_prompt: Whether the row is a prompt without an answer to train.
        """
        if not row:
            self.findings.add(RowFault.SHAPE, line, "has no messages")
            self.hashes.append(hash(()))
            self.lengths.append(tools)
            return
        roles, sizes, problems, secrets, trained_flags, keys, *_ = zip(*row, strict=True)
        tokens = tools + sum(sizes)
        self.hashes.append(hash(keys))
        self.lengths.append(min(tokens, 2**32 - 1))
        if prompt:
            trained_flags = (*[False] * prompt, *trained_flags[prompt:])
        trained = trained_flags.count(True)
        self.answers += trained
        self.untrained += roles.count("assistant") - trained
        self.trained += sum(compress(sizes, trained_flags))
        if True in secrets:
            for index in compress(range(len(row)), secrets):
                self.findings.add(RowFault.SECRET, line, f"message {index + 1}")
        if self._max_tokens is not None and tokens > self._max_tokens:
            description = f"about {tokens:,} tokens; the limit is {self._max_tokens:,}"
            self.findings.add(RowFault.LONG, line, description)
        checked_roles = self._roles.get(roles) or self._check_roles(roles)
        problem = checked_roles.problem
        if checked_roles.results or problems.count(None) < len(problems):
            problem = _find_first_problem(row, problems, checked_roles.results) or problem
        if problem is None and (is_prompt or not trained or roles[-1] != "assistant"):
            problem = _find_end_problem(roles[-1], trained, is_prompt=is_prompt)
        if problem is not None:
            self.findings.add(problem[0], line, problem[1])
        if trained and row[-1].trained:
            self.actions[row[-1].action] += 1

    def _check_roles(self, roles: tuple[str, ...]) -> _CheckedRoles:
        if len(self._roles) >= _MAX_CACHED:
            self._roles.clear()
        problem: Problem | None = None
        results: list[tuple[int, int | None]] = []
        previous, answer = "", None
        for index, role in enumerate(roles):
            if problem is None and (previous, role) not in _ROLE_ORDER:
                description = (
                    f"message {index + 1}: {role or 'nothing'} after {previous or 'nothing'}"
                )
                problem = (RowFault.ORDER, description)
            if role == "assistant":
                answer = index
            elif role == "tool":
                results.append((index, answer))
            previous = role
        checked = self._roles[roles] = _CheckedRoles(problem, tuple(results))
        return checked


def _find_first_problem(
    row: Sequence[CheckedMessage],
    problems: tuple[Problem | None, ...],
    results: tuple[tuple[int, int | None], ...],
) -> Problem | None:
    """Return the problem of the first invalid message or of the first unmatched tool result."""
    invalid = (index for index, problem in enumerate(problems) if problem is not None)
    first = next(invalid, len(row))
    for index, answer in results:
        if index > first:
            break
        ids = None if answer is None else row[answer].ids
        if ids is None:
            description = f"message {index + 1}: a tool result without a tool call"
            return RowFault.ORDER, description
        called = row[index].answered
        if called is not None and called not in ids and ids != {"None"}:
            description = f"message {index + 1}: no call has the id {shown(called, 40)}"
            return RowFault.ORDER, description
    problem = None if first == len(row) else problems[first]
    return None if problem is None else (problem[0], f"message {first + 1}: {problem[1]}")


def _find_end_problem(last: str, trained: int, *, is_prompt: bool) -> Problem | None:
    """Return the problem with the last message of a row, if any."""
    if is_prompt:
        if last == "assistant":
            return RowFault.ORDER, "ends with an answer instead of a request"
        return None
    if last != "assistant":
        return RowFault.ORDER, f"ends with {last} instead of an answer"
    if not trained:
        return RowFault.NOTHING, "every answer has weight 0"
    return None

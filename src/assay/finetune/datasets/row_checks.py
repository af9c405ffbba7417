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
    Count,
    Problem,
    RowFault,
    RowFindings,
    check_message,
    tool_schemas,
)

_REMEMBERED: Final = 100_000
_MOST_TOOLS: Final = 64
_FOLLOWS: Final = frozenset(
    {
        *(("", role) for role in ("system", "developer", "user")),
        *((role, "user") for role in ("system", "developer", "user", "assistant", "tool")),
        *((role, "assistant") for role in ("system", "developer", "user", "tool")),
        *((role, "tool") for role in ("assistant", "tool")),
    }
)
"""Allowed pairs of consecutive roles."""
_START: Final = re.compile(rb'\{"messages":( ?)\[\{"(?:content|role)": ?')
_BETWEEN: Final = {b"": b"},", b" ": b"}, "}
_TOOLS: Final = {b"": b'],"tools":', b" ": b'], "tools": '}
_UNTRAINED: Final = b',"weight":0'
_BRACE: Final = ord("}")


class _Known:
    """Tools, with the checked messages of rows that have them."""

    def __init__(self, tools: list[Any] | None, count: Count) -> None:
        self.schemas = tool_schemas(tools or ())
        self.tokens = count(str(tools)) if tools else 0
        self.messages: dict[bytes, CheckedMessage] = {}


class _Roles(NamedTuple):
    """Result of checking a sequence of roles."""

    problem: Problem | None
    results: tuple[tuple[int, int | None], ...]
    """Positions of tool results, each with the position of the answer before it."""


class RowChecks:
    """State of the checks while a file is read."""

    def __init__(self, count: Count, most_tokens: int | None) -> None:
        self.findings = RowFindings()
        self.lengths = array("I")
        self.trained = 0
        self.forms: Counter[str] = Counter()
        self.actions: Counter[str] = Counter()
        self.answers = self.untrained = 0
        self.hashes = array("q")
        self.rows = 0
        self._count = count
        self._most = most_tokens
        self._known: dict[bytes, _Known] = {}
        self._end = b""
        self._roles: dict[tuple[str, ...], _Roles] = {}

    def line(self, line: int, content: bytes) -> None:
        """Check one line of JSON."""
        if not self._by_pieces(line, content):
            try:
                value = from_json(content, allow_inf_nan=False, cache_strings="keys")
            except ValueError as error:
                self._no_json(line, content, error)
            else:
                self.row(line, value)

    def row(self, line: int, value: Any) -> None:
        """Check one parsed row."""
        try:
            row = read_row(value)
        except UsageError as error:
            self._refused(line, RowFault.SHAPE, str(error))
            return
        self.rows += 1
        self.forms[row.form] += 1
        key = str(row.tools).encode("utf-8", "replace")
        known = self._known.get(key) or self._remember(key, row.tools)
        checked = [
            check_message(message, known.schemas, self._count) for message in row.messages
        ]
        self._sequence(line, checked, known.tokens, row.prompt, asks=row.form == "prompts")

    def _no_json(self, line: int, content: bytes, error: ValueError) -> None:
        if not content.strip():
            self.findings.add(RowFault.BLANK, line, "it says nothing")
            self.hashes.append(-line)
            return
        said = str(error).partition(" at line ")[0]
        if not content.endswith(b"\n"):
            said += "; the file ends here, so it was not written to its end"
        self._refused(line, RowFault.JSON, said)

    def _refused(self, line: int, kind: RowFault, words: str) -> None:
        self.rows += 1
        self.findings.add(kind, line, words)
        self.hashes.append(-line)

    def _by_pieces(self, line: int, content: bytes) -> bool:
        """Check a row message by message without parsing it whole; return False if that fails.

        Quotation marks inside JSON text are escaped, so a separator matches only between
        messages. If it matches elsewhere, the pieces are invalid JSON and False is returned.
        Because histories repeat, nearly every piece is in the cache.
        """
        start = _START.match(content)
        if start is None:
            return False
        end = self._end
        if not end or not content.endswith(end):
            place = content.rfind(_TOOLS[start[1]])
            end = self._end = content[place if place > 0 else content.rfind(b"]") :]
        if content[-len(end) - 1] != _BRACE:
            return False
        known = self._known.get(end)
        first = start[0][start.end(1) + 1 :]
        try:
            if known is None:
                # The text after the messages: the tools, and the end of the row.
                about = from_json(b"{" + end[1:].lstrip(b", "))
                if about.keys() - {"tools"}:
                    return False
                known = self._remember(end, about.get("tools"))
            messages = known.messages
            row = [
                messages.get(piece) or self._piece(first, piece, known)
                for piece in content[start.end() : -len(end) - 1].split(
                    _BETWEEN[start[1]] + first
                )
            ]
        except (ValueError, TypeError, AttributeError):
            return False
        self.rows += 1
        self.forms["openai"] += 1
        self._sequence(line, row, known.tokens, 0)
        return True

    def _piece(self, start: bytes, piece: bytes, known: _Known) -> CheckedMessage:
        """Check a message that was cut out of its row, without its first key."""
        messages = known.messages
        if len(messages) >= _REMEMBERED:
            messages.clear()
        plain = piece.removesuffix(_UNTRAINED)
        checked = messages.get(plain)
        if checked is None:
            message = from_json(start + plain + b"}", allow_inf_nan=False)
            checked = messages[plain] = check_message(message, known.schemas, self._count)
        if len(plain) < len(piece):
            checked = messages[piece] = checked._replace(trained=False)
        return checked

    def _remember(self, key: bytes, tools: Any) -> _Known:
        if tools is not None and not isinstance(tools, list):
            raise TypeError
        if len(self._known) >= _MOST_TOOLS:
            self._known.clear()
        known = self._known[key] = _Known(tools, self._count)
        return known

    def _sequence(
        self,
        line: int,
        row: Sequence[CheckedMessage],
        tools: int,
        prompt: int,
        *,
        asks: bool = False,
    ) -> None:
        """Check the messages of a row as a sequence.

        Args:
            line: Line number of the row.
            row: Its messages.
            tools: Number of tokens of its tools.
            prompt: Number of leading messages that are never trained.
            asks: Whether the row is a prompt without an answer to train.
        """
        if not row:
            self.findings.add(RowFault.SHAPE, line, "has no messages")
            self.hashes.append(hash(()))
            self.lengths.append(tools)
            return
        roles, sizes, problems, secrets, weighed, keys, *_ = zip(*row, strict=True)
        tokens = tools + sum(sizes)
        self.hashes.append(hash(keys))
        self.lengths.append(min(tokens, 2**32 - 1))
        if prompt:
            weighed = (*[False] * prompt, *weighed[prompt:])
        trained = weighed.count(True)
        self.answers += trained
        self.untrained += roles.count("assistant") - trained
        self.trained += sum(compress(sizes, weighed))
        if True in secrets:
            for place in compress(range(len(row)), secrets):
                self.findings.add(RowFault.SECRET, line, f"message {place + 1}")
        if self._most is not None and tokens > self._most:
            words = f"about {tokens:,} tokens, and {self._most:,} may be"
            self.findings.add(RowFault.LONG, line, words)
        known = self._roles.get(roles) or self._remember_roles(roles)
        problem = known.problem
        if known.results or problems.count(None) < len(problems):
            problem = _first_problem(row, problems, known.results) or problem
        if problem is None and (asks or not trained or roles[-1] != "assistant"):
            problem = _end_problem(roles[-1], trained, asks=asks)
        if problem is not None:
            self.findings.add(problem[0], line, problem[1])
        if trained and row[-1].trained:
            self.actions[row[-1].action] += 1

    def _remember_roles(self, roles: tuple[str, ...]) -> _Roles:
        if len(self._roles) >= _REMEMBERED:
            self._roles.clear()
        problem: Problem | None = None
        results: list[tuple[int, int | None]] = []
        before, answer = "", None
        for place, role in enumerate(roles):
            if problem is None and (before, role) not in _FOLLOWS:
                words = f"message {place + 1}: {role or 'nothing'} after {before or 'nothing'}"
                problem = (RowFault.ORDER, words)
            if role == "assistant":
                answer = place
            elif role == "tool":
                results.append((place, answer))
            before = role
        known = self._roles[roles] = _Roles(problem, tuple(results))
        return known


def _first_problem(
    row: Sequence[CheckedMessage],
    problems: tuple[Problem | None, ...],
    results: tuple[tuple[int, int | None], ...],
) -> Problem | None:
    """Return the problem of the first invalid message or of the first unmatched tool result."""
    places = (place for place, problem in enumerate(problems) if problem is not None)
    first = next(places, len(row))
    for place, answer in results:
        if place > first:
            break
        ids = None if answer is None else row[answer].ids
        if ids is None:
            words = f"message {place + 1}: the result of a tool that nobody called"
            return RowFault.ORDER, words
        called = row[place].answered
        if called is not None and called not in ids and ids != {"None"}:
            words = f"message {place + 1}: no call has the id {shown(called, 40)}"
            return RowFault.ORDER, words
    problem = None if first == len(row) else problems[first]
    return None if problem is None else (problem[0], f"message {first + 1}: {problem[1]}")


def _end_problem(last: str, trained: int, *, asks: bool) -> Problem | None:
    """Return the problem with the last message of a row, if any."""
    if asks:
        if last == "assistant":
            return RowFault.ORDER, "ends with an answer, and should ask for one"
        return None
    if last != "assistant":
        return RowFault.ORDER, f"ends with {last}, not with an answer"
    if not trained:
        return RowFault.NOTHING, "every answer has weight 0"
    return None

"""Checks of a data file, line by line, whatever wrote it.

One pass in bounded memory. Rows share most of their messages, so what was checked once is
not checked again as long as it is remembered. A problem has a kind; of each kind the number
of rows and the first places are told. Counts of tokens are estimates, four characters each,
unless somebody who knows better counts.
"""

import re
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from pydantic_core import from_json

from assay._util.redact import has_secret
from assay._util.text import cut, shown
from assay.errors import UsageError
from assay.exchange.parquet import parquet_rows

from .formats import RowContent, read_row
from .manifest import read_lineage
from .schemas import argument_problem, tool_schemas

__all__ = [
    "Lengths",
    "RowFault",
    "RowFinding",
    "RowMask",
    "ValidationReport",
    "calls_problem",
    "mask_of",
    "read_values",
    "validate_file",
]

_MAX_LINE: Final = 64 << 20
_PLACES: Final = 3
_REMEMBERED: Final = 100_000
_PER_TOKEN: Final = 4
_ONE_SIDED: Final = 0.5
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_FOLLOWS: Final = frozenset(
    {
        *(("", role) for role in ("system", "developer", "user")),
        *((role, "user") for role in ("system", "developer", "user", "assistant", "tool")),
        *((role, "assistant") for role in ("system", "developer", "user", "tool")),
        *((role, "tool") for role in ("assistant", "tool")),
    }
)
"""Which role may follow which."""
_START: Final = re.compile(rb'\{"messages":( ?)\[(\{"(?:content|role)": ?)')
_BETWEEN: Final = {b"": b"},", b" ": b"}, "}
_TOOLS: Final = {b"": b'],"tools":', b" ": b'], "tools": '}
_MOST_TOOLS: Final = 64
_UNTRAINED: Final = b',"weight":0'


class RowFault(StrEnum):
    """What can be wrong with a row."""

    JSON = "not JSON"
    SHAPE = "not the shape of a row"
    ROLE = "an unknown role"
    ORDER = "roles in a wrong order"
    CONTENT = "a message without content"
    CALL = "a tool call that cannot be read"
    SCHEMA = "a tool call that its tool does not allow"
    NOTHING = "nothing to train"
    LONG = "too long"
    SECRET = "what looks like a secret"
    LEAK = "a world that is held out"
    DUPLICATE = "the same as a row before"
    BLANK = "an empty line"
    ONE_SIDED = "one action in most rows"
    CHANGED = "not what the manifest says"


_WARNINGS: Final = frozenset(
    {RowFault.DUPLICATE, RowFault.BLANK, RowFault.ONE_SIDED, RowFault.CHANGED}
)


@dataclass(slots=True)
class RowFinding:
    """One kind of problem."""

    kind: RowFault
    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)
    """The first places: a line, counted from 1, and what is wrong there."""

    @property
    def is_error(self) -> bool:
        """Whether the file should not be trained on as it is."""
        return self.kind not in _WARNINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long rows are, in tokens."""

    total: int
    trained: int
    """Tokens of the answers to learn from."""
    shortest: int
    median: int
    p95: int
    longest: int
    histogram: tuple[tuple[int, int], ...]
    """Upper bounds, and how many rows are above the bound before and up to this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """What was found in a file."""

    path: Path
    rows: int
    forms: Mapping[str, int]
    """Rows by their format."""
    findings: tuple[RowFinding, ...]
    """The errors first, each kind once."""
    lengths: Lengths | None
    """None where no row could be read."""
    tokenizer: str | None
    """Who counted; None where tokens are estimates."""
    actions: Mapping[str, int]
    """The first actions that trained answers ask for."""
    answers: int
    """Messages that are trained."""
    untrained_answers: int
    seconds: float
    checked_against: tuple[int, ...]
    """The seeds that were looked for because they are held out."""

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not any(finding.is_error for finding in self.findings)


Count = Callable[[str], int]


def estimated(text: str) -> int:
    """About how many tokens a text has."""
    return len(text) // _PER_TOKEN + 1


def read_values(path: Path) -> Iterator[tuple[int, Any, str | None]]:
    """Each row of a file: its line, its value, and what is wrong with it if it has none.

    Raises:
        UsageError: There is no such file, or it cannot be read.
    """
    if path.suffix == ".parquet" and path.is_file():
        for number, value in enumerate(parquet_rows(path), start=1):
            yield number, value, None
        return
    for number, line in _lines(path):
        try:
            yield number, from_json(line, allow_inf_nan=False), None
        except ValueError as error:
            yield number, None, str(error)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}; 'assay sft filter' writes one")
    try:
        with path.open("rb") as stream:
            yield from enumerate(iter(partial(stream.readline, _MAX_LINE), b""), start=1)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error


class _Said(NamedTuple):
    """One message, once it was looked at."""

    role: str
    tokens: int
    problem: tuple[RowFault, str] | None
    """What is wrong with it wherever it stands."""
    secret: bool
    trained: bool
    """Whether it is an answer whose weight is not 0."""
    action: str
    """The first action that an answer asks for."""
    ids: frozenset[str] | None
    """The ids of the calls of an answer; None where it calls nothing."""
    answered: str | None
    """The id of the call that it is the result of."""
    key: int
    """A hash of what it says."""


class _Known:
    """Tools, and the messages that were looked at beside them."""

    def __init__(self, tools: list[Any] | None, count: Count) -> None:
        self.schemas = tool_schemas(tools or ())
        self.tokens = count(str(tools)) if tools else 0
        self.said: dict[bytes, _Said] = {}


class _Checks:
    """All that is remembered while a file is checked."""

    def __init__(self, count: Count, most_tokens: int | None) -> None:
        self.findings: dict[RowFault, RowFinding] = {}
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
        self._in_order: set[tuple[str, ...]] = set()

    def found(self, kind: RowFault, line: int, words: str) -> None:
        """Count a problem, and keep its place if it is among the first."""
        finding = self.findings.setdefault(kind, RowFinding(kind))
        finding.count += 1
        if len(finding.first) < _PLACES:
            finding.first.append((line, words))

    def line(self, line: int, content: bytes) -> None:
        """Check one line of JSON."""
        if not self._by_pieces(line, content):
            try:
                value = from_json(content, allow_inf_nan=False, cache_strings="keys")
            except ValueError as error:
                self._no_json(line, content, error)
            else:
                self.row(line, value)

    def _no_json(self, line: int, content: bytes, error: ValueError) -> None:
        if not content.strip():
            self.found(RowFault.BLANK, line, "it says nothing")
            self.hashes.append(-line)
            return
        said = str(error).partition(" at line ")[0]
        if not content.endswith(b"\n"):
            said += "; the file ends here, so it was not written to its end"
        self._refused(line, RowFault.JSON, said)

    def _refused(self, line: int, kind: RowFault, words: str) -> None:
        self.rows += 1
        self.found(kind, line, words)
        self.hashes.append(-line)

    def _by_pieces(self, line: int, content: bytes) -> bool:
        """Check a row of messages and tools message by message, if it can be cut like that.

        A quotation mark within a text of JSON has a backslash before it, so that the marks
        cut for stand between messages, or the pieces are no JSON and nothing comes of it.
        Histories repeat themselves: nearly every piece was there before.
        """
        start = _START.match(content)
        if start is None:
            return False
        if self._end and content.endswith(self._end):
            end = self._end
        else:
            place = content.rfind(_TOOLS[start[1]])
            end = self._end = content[place if place > 0 else content.rfind(b"]") :]
        body = content[start.end() : -len(end) - 1]
        if content[-len(end) - 1 : -len(end)] != b"}":
            return False
        known = self._known.get(end)
        try:
            if known is None:
                # What stands behind the messages: the tools, and the end of the row.
                about = from_json(b"{" + end[1:].lstrip(b", "))
                if about.keys() - {"tools"}:
                    return False
                known = self._remember(end, about.get("tools"))
            said = []
            for piece in body.split(_BETWEEN[start[1]] + start[2]):
                one = known.said.get(piece)
                if one is None:
                    one = self._piece(start[2], piece, known)
                said.append(one)
        except (ValueError, TypeError, AttributeError):
            return False
        self.rows += 1
        self.forms["openai"] += 1
        self._sequence(line, said, known.tokens, 0)
        return True

    def _piece(self, start: bytes, piece: bytes, known: _Known) -> _Said:
        """Look at a message that was cut out of its row, without its first key."""
        if len(known.said) >= _REMEMBERED:
            known.said.clear()
        plain = piece.removesuffix(_UNTRAINED)
        one = known.said.get(plain)
        if one is None:
            message = from_json(start + plain + b"}", allow_inf_nan=False)
            one = known.said[plain] = self._message(message, known.schemas)
        if len(plain) < len(piece):
            one = known.said[piece] = one._replace(trained=False)
        return one

    def _remember(self, key: bytes, tools: Any) -> _Known:
        if tools is not None and not isinstance(tools, list):
            raise TypeError
        if len(self._known) >= _MOST_TOOLS:
            self._known.clear()
        known = self._known[key] = _Known(tools, self._count)
        return known

    def row(self, line: int, value: Any) -> None:
        """Check one row that was parsed."""
        try:
            row = read_row(value)
        except UsageError as error:
            self._refused(line, RowFault.SHAPE, str(error))
            return
        self.rows += 1
        self.forms[row.form] += 1
        key = str(row.tools).encode("utf-8", "replace")
        known = self._known.get(key) or self._remember(key, row.tools)
        said = [self._message(message, known.schemas) for message in row.messages]
        self._sequence(line, said, known.tokens, row.prompt, asks=row.form == "prompts")

    def _message(
        self, message: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]]
    ) -> _Said:
        """Look at one message by itself."""
        role, content, calls = (message.get(name) for name in ("role", "content", "tool_calls"))
        text = _text(content)
        problem: tuple[RowFault, str] | None = None
        action, ids = "", None
        tokens = self._count(text) if text else 0
        secret, key = has_secret(text), hash((str(role), text))
        if not isinstance(role, str) or role not in _ROLES:
            problem = (RowFault.ROLE, shown(role, 40))
        elif role != "assistant" and not isinstance(content, str | list):
            problem = (RowFault.CONTENT, role)
        elif role == "assistant" and calls:
            problem, action = calls_problem(calls, schemas)
            if problem is None:
                functions = [call["function"] for call in calls]
                said = [str(function["arguments"]) for function in functions]
                ids = frozenset(str(call.get("id")) for call in calls)
                tokens += sum(map(self._count, said))
                secret = secret or any(map(has_secret, said))
                key = hash((key, *said, *(function["name"] for function in functions)))
        elif role == "assistant" and not text:
            problem = (RowFault.CONTENT, "an answer says and calls nothing")
        answered = message.get("tool_call_id")
        return _Said(
            role if isinstance(role, str) else "",
            tokens,
            problem,
            secret,
            role == "assistant" and message.get("weight") != 0,
            action,
            ids,
            answered if isinstance(answered, str) else None,
            key,
        )

    def _sequence(
        self, line: int, row: Sequence[_Said], tools: int, prompt: int, *, asks: bool = False
    ) -> None:
        """Check the messages of a row as they follow one another.

        Args:
            line: Where it stands.
            row: Its messages.
            tools: The tokens of its tools.
            prompt: How many of the messages are never trained.
            asks: Whether it asks for an answer, and has none to learn from.
        """
        tokens = tools + sum([said.tokens for said in row])
        key = hash(tuple([said.key for said in row]))
        before = row[-1].role if row else ""
        problem: tuple[RowFault, str] | None = None
        trained = trained_tokens = 0
        ids: frozenset[str] | None = None
        for place, said in enumerate(row):
            role = said.role
            if role == "assistant":
                ids = said.ids
                if said.trained and place >= prompt:
                    trained += 1
                    trained_tokens += said.tokens
                else:
                    self.untrained += 1
            elif role == "tool" and problem is None:
                problem = _result_problem(place, said, ids)
            if said.problem is not None and problem is None:
                problem = (said.problem[0], f"message {place + 1}: {said.problem[1]}")
            if said.secret:
                self.found(RowFault.SECRET, line, f"message {place + 1}")
        problem = problem or self._order_problem(row)
        self.hashes.append(key)
        self.lengths.append(min(tokens, 2**32 - 1))
        self.trained += trained_tokens
        self.answers += trained
        if self._most is not None and tokens > self._most:
            self.found(
                RowFault.LONG, line, f"about {tokens:,} tokens, and {self._most:,} may be"
            )
        if problem is None and not row:
            problem = (RowFault.SHAPE, "has no messages")
        if problem is None and asks and before == "assistant":
            problem = (RowFault.ORDER, "ends with an answer, and should ask for one")
        if problem is None and before != "assistant" and not asks:
            problem = (RowFault.ORDER, f"ends with {before}, not with an answer")
        if problem is None and not trained and not asks:
            problem = (RowFault.NOTHING, "every answer has weight 0")
        if problem is not None:
            self.found(problem[0], line, problem[1])
        if trained and row[-1].trained:
            self.actions[row[-1].action] += 1

    def _order_problem(self, row: Sequence[_Said]) -> tuple[RowFault, str] | None:
        """What is wrong with the order of roles; what was right once is remembered."""
        roles = tuple([said.role for said in row])
        if roles in self._in_order:
            return None
        before = ""
        for place, role in enumerate(roles):
            if (before, role) not in _FOLLOWS:
                words = f"message {place + 1}: {role or 'nothing'} after {before or 'nothing'}"
                return RowFault.ORDER, words
            before = role
        if len(self._in_order) < _REMEMBERED:
            self._in_order.add(roles)
        return None


def _text(content: Any) -> str:
    """What a content says, whether it is a text or a list of parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _result_problem(
    place: int, said: _Said, ids: frozenset[str] | None
) -> tuple[RowFault, str] | None:
    """What is wrong with the result of a tool; `ids` are those of the calls before it."""
    if ids is None:
        return RowFault.ORDER, f"message {place + 1}: the result of a tool that nobody called"
    if said.answered is not None and said.answered not in ids and ids != {"None"}:
        words = f"message {place + 1}: no call has the id {shown(said.answered, 40)}"
        return RowFault.ORDER, words
    return None


def calls_problem(
    calls: Any, schemas: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[RowFault, str] | None, str]:
    """What is wrong with tool calls, and the first action that they ask for."""
    if not isinstance(calls, list):
        return (RowFault.CALL, "tool_calls is no list"), ""
    action = ""
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            return (RowFault.CALL, "a call has no function, or no name"), ""
        value = function.get("arguments")
        if isinstance(value, str):
            try:
                value = from_json(value)
            except ValueError:
                return (RowFault.CALL, f"{cut(name, 40)}: arguments are no JSON"), ""
        if not isinstance(value, dict):
            return (RowFault.CALL, f"{cut(name, 40)}: arguments are no object"), ""
        if schemas and name not in schemas:
            return (RowFault.SCHEMA, f"there is no tool {cut(name, 40)!r}"), ""
        problem = argument_problem(value, schemas.get(name, {}))
        if problem is not None:
            return (RowFault.SCHEMA, f"{cut(name, 40)}: {cut(problem, 120)}"), ""
        if not action:
            actions = value.get("actions")
            first = actions[0] if isinstance(actions, list) and actions else name
            action = cut(str(first), 60)
    return None, action


def validate_file(
    path: Path,
    *,
    most_tokens: int | None = None,
    holdout_seeds: Sequence[int] = (),
    count: Count = estimated,
    tokenizer: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ValidationReport:
    """Check a data file of any format that is written here.

    Args:
        path: JSON Lines or Parquet.
        most_tokens: A row that is longer is an error.
        holdout_seeds: Worlds that must not be in it, beside those its manifest names.
        count: Counts the tokens of a text.
        tokenizer: Whose count that is; None for an estimate.
        progress: Told how many rows are done.

    Raises:
        UsageError: The file cannot be read.
    """
    started = time.perf_counter()
    checks = _Checks(count, most_tokens)
    if path.suffix == ".parquet":
        for number, value, _ in read_values(path):
            checks.row(number, value)
    else:
        for number, line in _lines(path):
            checks.line(number, line)
            if not number % 1000:
                progress(number, 0)
    _add_duplicates(checks)
    seeds = _add_lineage(checks, path, holdout_seeds)
    trained = sum(checks.actions.values())
    for action, times in checks.actions.most_common(1):
        if action and trained >= 20 and times > _ONE_SIDED * trained:
            words = f"{action!r} comes first in {times / trained:.0%} of the answers"
            checks.found(RowFault.ONE_SIDED, 0, f"{words}; --balance-actions evens them out")
    order = list(RowFault)
    findings = sorted(checks.findings.values(), key=lambda each: order.index(each.kind))
    return ValidationReport(
        path=path,
        rows=checks.rows,
        forms=dict(checks.forms),
        findings=tuple(sorted(findings, key=lambda each: not each.is_error)),
        lengths=_lengths(checks),
        tokenizer=tokenizer,
        actions=dict(checks.actions.most_common()),
        answers=checks.answers,
        untrained_answers=checks.untrained,
        seconds=time.perf_counter() - started,
        checked_against=seeds,
    )


def _add_duplicates(checks: _Checks) -> None:
    hashes = np.frombuffer(checks.hashes, np.int64) if checks.hashes else np.empty(0, np.int64)
    order = np.argsort(hashes, kind="stable")
    again = order[1:][hashes[order][1:] == hashes[order][:-1]]
    for place in np.sort(again)[:_PLACES]:
        first = int(np.flatnonzero(hashes == hashes[place])[0])
        checks.found(RowFault.DUPLICATE, int(place) + 1, f"line {first + 1} is the same")
    if len(again):
        checks.findings[RowFault.DUPLICATE].count = len(again)


def _add_lineage(checks: _Checks, path: Path, holdout_seeds: Sequence[int]) -> tuple[int, ...]:
    """Look for held-out worlds among those of the file; returns what was looked for."""
    about = read_lineage(path)
    if about is None:
        return ()
    split = "holdout" if path.stem.endswith(".holdout") else "train"
    rows = about.get("files", {}).get(split, {}).get("rows")
    if rows != checks.rows:
        words = f"the manifest has {rows:,} rows, and the file {checks.rows:,}"
        checks.found(RowFault.CHANGED, 0, f"{words}; it was changed since")
    if split == "holdout":
        return ()
    held = {*holdout_seeds, *about.get("holdout_seeds", ())}
    for task, seed in about.get("worlds", {}).get("train", ()):
        if seed in held:
            checks.found(RowFault.LEAK, 0, f"{task}, seed {seed}")
    return tuple(sorted(held))


def _lengths(checks: _Checks) -> Lengths | None:
    if not checks.lengths:
        return None
    sizes = np.frombuffer(checks.lengths, np.uint32).astype(np.int64)
    top = 1 << max(4, int(sizes.max() - 1).bit_length())
    bounds = [top >> shift for shift in range(7, -1, -1)]
    places = np.searchsorted(bounds, sizes)
    counted = np.bincount(places, minlength=len(bounds))
    quantiles = np.quantile(sizes, [0, 0.5, 0.95, 1], method="inverted_cdf").astype(int)
    return Lengths(
        total=int(sizes.sum()),
        trained=checks.trained,
        shortest=int(quantiles[0]),
        median=int(quantiles[1]),
        p95=int(quantiles[2]),
        longest=int(quantiles[3]),
        histogram=tuple(zip(bounds, map(int, counted), strict=True)),
    )


@dataclass(frozen=True, slots=True)
class RowMask:
    """One message of a row, and whether it is trained."""

    role: str
    text: str
    """What it says, and what it calls."""
    trained: bool
    tokens: int


def mask_of(row: RowContent, count: Count = estimated) -> list[RowMask]:
    """The messages of a row, and which of them are trained."""
    masks = []
    for place, message in enumerate(row.messages):
        content = message.get("content")
        parts = [content if isinstance(content, str) else ""]
        if isinstance(content, list):
            texts = [part.get("text", "") for part in content if isinstance(part, Mapping)]
            parts = [text for text in texts if isinstance(text, str)]
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            about = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(about, Mapping):
                parts.append(f"{about.get('name')}({about.get('arguments')})")
        text = "\n".join(filter(None, parts))
        role = str(message.get("role"))
        trained = role == "assistant" and message.get("weight") != 0 and place >= row.prompt
        masks.append(RowMask(role, text, trained, count(text)))
    return masks

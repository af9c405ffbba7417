"""Rendering of rows with a model's chat template, and the parts of the text that are trained.

Only the trained parts count in the loss. If a template marks answers with `{% generation %}`,
these marks are used. If not, the conversation is rendered again for each answer, with the
answer replaced by a blank: the text that differs is the answer. The marker that ends an answer
is trained too, because the model has to write it. It is found as the text after the blank when
the conversation ends there. Templates and tokenizers are read from local files only. Templates
are Jinja and run in its sandbox.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay.errors import UsageError
from assay.finetune.datasets.formats import RowContent, get_message_text
from assay.finetune.datasets.message_checks import TokenCounter, estimate_tokens


@dataclass(frozen=True, slots=True)
class RowMask:
    """A message of a row, or a part of its rendered text, and whether it is trained."""

    role: str
    text: str
    """Content and tool calls."""
    trained: bool
    tokens: int


def mask_messages(row: RowContent, count: TokenCounter = estimate_tokens) -> list[RowMask]:
    """Return the messages of a row, each with a flag for whether it is trained."""
    masks = []
    for index, message in enumerate(row.messages):
        parts = [get_message_text(message)]
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                parts.append(f"{function.get('name')}({function.get('arguments')})")
        text = "\n".join(filter(None, parts))
        masks.append(
            RowMask(str(message.get("role")), text, row.is_trained(index), count(text))
        )
    return masks


_INSTALL: Final = "pip install jinja2"
_TEMPLATE_FILES: Final = ("chat_template.jinja", "tokenizer_config.json")
_MAX_FILE: Final = 16 << 20
_MARK_CHARACTERS: Final = tuple(map(chr, range(0xFDD0, 0xFDF0)))
"""Unicode noncharacters, which do not occur in text; used as marks."""

Span = tuple[int, int]
"""Index of the first character, and the index after the last."""


class _Marks(NamedTuple):
    """Characters that do not occur in the row."""

    begin: str
    end: str
    blank: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedRow:
    """A row as rendered by the template, and the trained parts of its text."""

    text: str
    trained: tuple[Span, ...]
    marked: bool
    """Whether the template marks answers; if not, each was found by blanking it."""

    def split_parts(
        self,
        find_offsets: Callable[[str], Sequence[Span]] | None = None,
        count: TokenCounter = estimate_tokens,
    ) -> list[RowMask]:
        """Split the text into trained and untrained parts, with token counts.

        Args:
            find_offsets: Returns the token offsets of a text; a token that is partly trained is
                trained.
            count: Counts the tokens of a part if `find_offsets` is None.
        """
        spans = self.trained
        tokens = None if find_offsets is None else find_offsets(self.text)
        if tokens is not None:
            spans = _extend_to_tokens(spans, tokens)
        bounds = [0, *(bound for span in spans for bound in span), len(self.text)]
        parts = []
        for index, (first, last) in enumerate(pairwise(bounds)):
            if first < last:
                text = self.text[first:last]
                size = (
                    count(text)
                    if tokens is None
                    else sum(first <= begin < last for begin, _ in tokens)
                )
                parts.append(RowMask("", text, index % 2 == 1, size))
        return parts


def _extend_to_tokens(spans: Sequence[Span], tokens: Sequence[Span]) -> tuple[Span, ...]:
    """Extend spans to whole tokens."""
    extended = []
    for first, last in spans:
        overlapping = [token for token in tokens if token[0] < last and token[1] > first]
        if overlapping:
            extended.append((overlapping[0][0], overlapping[-1][1]))
    return _merge_spans(extended)


def _merge_spans(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Sort spans, merge those that touch or overlap, and drop empty ones."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        elif first < last:
            joined.append((first, last))
    return tuple(joined)


def has_jinja() -> bool:
    """Return whether Jinja is installed."""
    return find_spec("jinja2") is not None


def find_template(tokenizer: Path) -> Path | None:
    """Return the file next to a tokenizer that has its chat template, or None."""
    for name in _TEMPLATE_FILES:
        path = tokenizer.parent / name
        if path.is_file() and (
            path.suffix != ".json" or _read_settings(path).get("chat_template")
        ):
            return path
    return None


def _read_settings(path: Path) -> Mapping[str, Any]:
    try:
        settings = json.loads(_read_text(path))
    except ValueError as error:
        raise UsageError(f"{str(path)!r} is not valid JSON: {error}") from error
    if not isinstance(settings, dict):
        raise UsageError(
            f"{str(path)!r} is not a JSON object, as tokenizer_config.json must be"
        )
    return settings


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_FILE).decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(path)!r} is not UTF-8 text") from error


class ChatTemplate:
    """A chat template, from a Jinja file or from a `tokenizer_config.json`.

    Raises:
        UsageError: The file has no template or is invalid, or Jinja is not installed.
    """

    def __init__(self, path: Path) -> None:
        if not has_jinja():
            raise UsageError(
                f"a chat template needs the library jinja2, which is not installed: {_INSTALL}"
            )
        self.path = path
        config = path if path.suffix == ".json" else path.parent / "tokenizer_config.json"
        settings = _read_settings(config) if config.is_file() or config == path else {}
        self._tokens = {
            name: value.get("content") if isinstance(value, dict) else value
            for name, value in settings.items()
            if name.endswith("_token")
        }
        template = settings.get("chat_template") if path.suffix == ".json" else _read_text(path)
        if isinstance(template, list):
            self._sources = {
                str(entry.get("name")): str(entry.get("template"))
                for entry in template
                if isinstance(entry, dict)
            }
        else:
            self._sources = {"default": template} if isinstance(template, str) else {}
        if not self._sources:
            raise UsageError(
                f"{str(path)!r} has no chat template; name the chat_template.jinja of your "
                "model, or the tokenizer_config.json that contains 'chat_template'"
            )

    def render(self, row: RowContent) -> RenderedRow:
        """Render a row, and find the parts of the text that are trained.

        Raises:
            UsageError: The template does not accept the row; the message has the reason.
        """
        row_text = json.dumps([row.messages, row.tools], ensure_ascii=False, default=str)
        unused_characters = [char for char in _MARK_CHARACTERS if char not in row_text]
        if len(unused_characters) < len(_Marks._fields):
            raise UsageError("the row contains too many Unicode noncharacters")
        marks = _Marks(*unused_characters[: len(_Marks._fields)])
        render = self._make_renderer(row.tools, marks)
        marked_text = render(row.messages)
        text = marked_text.replace(marks.begin, "").replace(marks.end, "")
        marked = marks.begin in marked_text
        answers = [
            index
            for index, message in enumerate(row.messages)
            if message.get("role") == "assistant"
        ]
        if marked:
            spans = _find_marked_spans(marked_text, marks)
            for index in answers:
                if not row.is_trained(index):
                    untrained_span = _find_answer_span(text, row.messages, index, render, marks)
                    spans = [span for span in spans if not _spans_overlap(span, untrained_span)]
        else:
            spans = [
                _find_answer_span(text, row.messages, index, render, marks)
                for index in answers
                if row.is_trained(index)
            ]
        return RenderedRow(text=text, trained=_merge_spans(spans), marked=marked)

    def _make_renderer(
        self, tools: list[Any] | None, marks: _Marks
    ) -> Callable[[Sequence[Mapping[str, Any]]], str]:
        jinja: Any = import_module("jinja2")
        name = "tool_use" if tools and "tool_use" in self._sources else "default"
        source = self._sources.get(name) or next(iter(self._sources.values()))
        template: Any = None

        def render_messages(messages: Sequence[Mapping[str, Any]]) -> str:
            nonlocal template
            try:
                template = template or _make_environment(marks).from_string(source)
                text: str = template.render(
                    messages=messages, tools=tools, add_generation_prompt=False, **self._tokens
                )
            except (
                jinja.TemplateError,
                ArithmeticError,
                AttributeError,
                LookupError,
                RecursionError,
                TypeError,
                ValueError,
            ) as error:
                raise UsageError(f"{self.path.name} rejects this row: {error}") from error
            return text

        return render_messages


def _make_environment(marks: _Marks) -> Any:
    """Set up Jinja as model libraries do for chat templates, with marks around answers."""
    jinja: Any = import_module("jinja2")
    extensions: Any = import_module("jinja2.ext")
    sandbox: Any = import_module("jinja2.sandbox")

    def parse_block(self: Any, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("marked")
        return jinja.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def mark_answer(self: Any, caller: Callable[[], str]) -> str:
        return f"{marks.begin}{caller()}{marks.end}"

    def raise_template_error(message: str) -> None:
        raise jinja.TemplateError(message)

    def format_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    generation = type(
        "Generation",
        (extensions.Extension,),
        {"tags": {"generation"}, "parse": parse_block, "marked": mark_answer},
    )
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[generation, extensions.loopcontrols]
    )
    environment.filters["tojson"] = format_json
    environment.globals["raise_exception"] = raise_template_error
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _find_marked_spans(text: str, marks: _Marks) -> list[Span]:
    """Return the spans of the text between marks, with the marks removed from the text."""
    spans, length = [], 0
    for index, part in enumerate(text.split(marks.begin)):
        marked_part, _, rest = part.partition(marks.end) if index else ("", "", part)
        spans.append((length, length + len(marked_part)))
        length += len(marked_part) + len(rest)
    return spans


def _find_answer_span(
    text: str,
    messages: Sequence[Mapping[str, Any]],
    index: int,
    render: Callable[[Sequence[Mapping[str, Any]]], str],
    marks: _Marks,
) -> Span:
    """Return the span of an answer: the text that blanking changes, and its end marker."""
    blank = {"role": "assistant", "content": marks.blank}

    def split_at_blank(messages_with_blank: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
        rendered = render(messages_with_blank).replace(marks.begin, "").replace(marks.end, "")
        if marks.blank not in rendered:
            return rendered, rendered
        before, _, after = rendered.partition(marks.blank)
        return before, after

    before, after = split_at_blank([*messages[:index], blank, *messages[index + 1 :]])
    _, closing = split_at_blank([*messages[:index], blank])
    first = _count_common_prefix(text, before)
    common_end = _count_common_prefix(text[first:][::-1], after[::-1])
    last = len(text) - common_end
    closing = closing.rstrip()
    if common_end == len(after) and after.startswith(closing):
        last += len(closing)
    return first, last


def _spans_overlap(span: Span, other: Span) -> bool:
    return span[0] < other[1] and other[0] < span[1]


def _count_common_prefix(text: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = enumerate(zip(text, other, strict=False))
    differs = (index for index, (a, b) in pairs if a != b)
    return next(differs, min(len(text), len(other)))


class TokenizerFile:
    """The `tokenizer.json` of a model.

    Raises:
        UsageError: The file is missing or invalid, or `tokenizers` is not installed.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise UsageError(
                f"--tokenizer {str(path)!r} is not a file; name the tokenizer.json of your "
                "model"
            )
        try:
            library: Any = import_module("tokenizers")
        except ImportError:
            raise UsageError(
                "--tokenizer needs the library tokenizers, which is not installed: "
                "pip install tokenizers; without --tokenizer, tokens are estimated"
            ) from None
        try:
            self._tokenizer = library.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises no narrower error
            raise UsageError(
                f"--tokenizer {str(path)!r} is not a readable tokenizer.json: {error}"
            ) from error

    def count(self, text: str) -> int:
        """TokenCounter the tokens of a text, without special tokens."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def find_offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Return the start and end of each token, in characters."""
        offsets: Sequence[tuple[int, int]] = self._tokenizer.encode(
            text, add_special_tokens=False
        ).offsets
        return offsets

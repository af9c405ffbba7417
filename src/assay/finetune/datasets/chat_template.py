"""What a model's chat template makes of a row, and which of its text is trained.

A template that marks answers with `{% generation %}` says it itself. Most have no such marks.
Then the conversation is rendered once more for each answer, with the answer blanked: what
stands before and after the blank is not the answer, and the rest is. The mark that ends an
answer is trained too, since the model has to write it; it is what follows the blank where
the conversation ends with it. Templates are Jinja, run in its sandbox, from local files.

The tokenizer of a user's model: a local file, and never the network.

Which messages of a row are trained.
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
from assay.finetune.datasets.formats import RowContent, message_text
from assay.finetune.datasets.message_checks import Count, estimated


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
        parts = [message_text(message)]
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            about = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(about, Mapping):
                parts.append(f"{about.get('name')}({about.get('arguments')})")
        text = "\n".join(filter(None, parts))
        masks.append(
            RowMask(str(message.get("role")), text, row.is_trained(place), count(text))
        )
    return masks


_INSTALL: Final = "pip install jinja2"
_BESIDE: Final = ("chat_template.jinja", "tokenizer_config.json")
_MAX_FILE: Final = 16 << 20
_UNUSED: Final = tuple(map(chr, range(0xFDD0, 0xFDF0)))
"""Characters that Unicode keeps out of all text; what is looked for is marked with them."""

Span = tuple[int, int]
"""The first character, and the one after the last."""


class _Marks(NamedTuple):
    """Characters that the row does not have."""

    begin: str
    end: str
    blank: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedRow:
    """A row as the template writes it, and what of it is trained."""

    text: str
    trained: tuple[Span, ...]
    marked: bool
    """Whether the template marks answers itself; if not, each was blanked in turn."""

    def parts(
        self, places: Callable[[str], Sequence[Span]] | None = None, count: Count = estimated
    ) -> list[RowMask]:
        """The text in parts that are trained or not, each with its tokens.

        Args:
            places: Where the tokens of a text are; one that is trained in part is trained.
            count: Counts the tokens of a part where `places` is None.
        """
        spans = self.trained
        tokens = None if places is None else places(self.text)
        if tokens is not None:
            spans = _whole_tokens(spans, tokens)
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


def _whole_tokens(spans: Sequence[Span], tokens: Sequence[Span]) -> tuple[Span, ...]:
    """Spans made wider, to whole tokens."""
    wide = []
    for first, last in spans:
        within = [place for place in tokens if place[0] < last and place[1] > first]
        if within:
            wide.append((within[0][0], within[-1][1]))
    return _joined(wide)


def _joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Spans in order, those that touch made one, and empty ones left out."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        elif first < last:
            joined.append((first, last))
    return tuple(joined)


def has_jinja() -> bool:
    """Whether the library that runs templates is installed."""
    return find_spec("jinja2") is not None


def find_template(tokenizer: Path) -> Path | None:
    """The file beside a tokenizer that holds its chat template; None where there is none."""
    for name in _BESIDE:
        path = tokenizer.parent / name
        if path.is_file() and (path.suffix != ".json" or _settings(path).get("chat_template")):
            return path
    return None


def _settings(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(_content(path))
    except ValueError as error:
        raise UsageError(f"{str(path)!r} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{str(path)!r} is no JSON object, as a tokenizer_config.json is")
    return found


def _content(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_FILE).decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(path)!r} is no text in UTF-8") from error


class ChatTemplate:
    """A chat template: a file of Jinja, or the `tokenizer_config.json` that holds one.

    Raises:
        UsageError: There is none in the file, it is not valid, or Jinja is not installed.
    """

    def __init__(self, path: Path) -> None:
        if not has_jinja():
            raise UsageError(
                f"a chat template needs the library jinja2, which is not installed: {_INSTALL}"
            )
        self.path = path
        config = path if path.suffix == ".json" else path.parent / "tokenizer_config.json"
        settings = _settings(config) if config.is_file() or config == path else {}
        self._tokens = {
            name: value.get("content") if isinstance(value, dict) else value
            for name, value in settings.items()
            if name.endswith("_token")
        }
        found = settings.get("chat_template") if path.suffix == ".json" else _content(path)
        if isinstance(found, list):
            self._sources = {
                str(each.get("name")): str(each.get("template"))
                for each in found
                if isinstance(each, dict)
            }
        else:
            self._sources = {"default": found} if isinstance(found, str) else {}
        if not self._sources:
            raise UsageError(
                f"{str(path)!r} holds no chat template; name the chat_template.jinja of your "
                "model, or the tokenizer_config.json that has 'chat_template'"
            )

    def render(self, row: RowContent) -> RenderedRow:
        """What the template makes of a row, and what of it is trained.

        Raises:
            UsageError: The template does not take it; says why.
        """
        said = json.dumps([row.messages, row.tools], ensure_ascii=False, default=str)
        free = [char for char in _UNUSED if char not in said]
        if len(free) < len(_Marks._fields):
            raise UsageError("the row has characters in it that Unicode allows in no text")
        marks = _Marks(*free[: len(_Marks._fields)])
        write = self._writer(row.tools, marks)
        whole = write(row.messages)
        text = whole.replace(marks.begin, "").replace(marks.end, "")
        marked = marks.begin in whole
        answers = [
            place
            for place, message in enumerate(row.messages)
            if message.get("role") == "assistant"
        ]
        if marked:
            spans = _marked(whole, marks)
            for place in answers:
                if not row.is_trained(place):
                    hole = _blanked(text, row.messages, place, write, marks)
                    spans = [span for span in spans if not _overlap(span, hole)]
        else:
            spans = [
                _blanked(text, row.messages, place, write, marks)
                for place in answers
                if row.is_trained(place)
            ]
        return RenderedRow(text=text, trained=_joined(spans), marked=marked)

    def _writer(
        self, tools: list[Any] | None, marks: _Marks
    ) -> Callable[[Sequence[Mapping[str, Any]]], str]:
        jinja: Any = import_module("jinja2")
        name = "tool_use" if tools and "tool_use" in self._sources else "default"
        source = self._sources.get(name) or next(iter(self._sources.values()))
        template: Any = None

        def write(messages: Sequence[Mapping[str, Any]]) -> str:
            nonlocal template
            try:
                template = template or _environment(marks).from_string(source)
                written: str = template.render(
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
                raise UsageError(f"{self.path.name} does not take this row: {error}") from error
            return written

        return write


def _environment(marks: _Marks) -> Any:
    """Jinja as model libraries set it up for chat templates, with marks around answers."""
    jinja: Any = import_module("jinja2")
    extensions: Any = import_module("jinja2.ext")
    sandbox: Any = import_module("jinja2.sandbox")

    def parse(self: Any, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("marked")
        return jinja.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def marked(self: Any, caller: Callable[[], str]) -> str:
        return f"{marks.begin}{caller()}{marks.end}"

    def refuse(words: str) -> None:
        raise jinja.TemplateError(words)

    def as_json(value: Any, ensure_ascii: bool = False, **more: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **more)

    generation = type(
        "Generation",
        (extensions.Extension,),
        {"tags": {"generation"}, "parse": parse, "marked": marked},
    )
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[generation, extensions.loopcontrols]
    )
    environment.filters["tojson"] = as_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _marked(whole: str, marks: _Marks) -> list[Span]:
    """Where the text between marks stands once they are taken out."""
    spans, length = [], 0
    for place, part in enumerate(whole.split(marks.begin)):
        inside, _, rest = part.partition(marks.end) if place else ("", "", part)
        spans.append((length, length + len(inside)))
        length += len(inside) + len(rest)
    return spans


def _blanked(
    text: str,
    messages: Sequence[Mapping[str, Any]],
    place: int,
    write: Callable[[Sequence[Mapping[str, Any]]], str],
    marks: _Marks,
) -> Span:
    """Where an answer stands: what is not the same once it is blanked, and its end."""
    blank = {"role": "assistant", "content": marks.blank}

    def around(those: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
        written = write(those).replace(marks.begin, "").replace(marks.end, "")
        if marks.blank not in written:
            return written, written
        before, _, after = written.partition(marks.blank)
        return before, after

    before, after = around([*messages[:place], blank, *messages[place + 1 :]])
    _, closing = around([*messages[:place], blank])
    first = _alike(text, before)
    same = _alike(text[first:][::-1], after[::-1])
    last = len(text) - same
    closing = closing.rstrip()
    if same == len(after) and after.startswith(closing):
        last += len(closing)
    return first, last


def _overlap(span: Span, other: Span) -> bool:
    return span[0] < other[1] and other[0] < span[1]


def _alike(text: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    pairs = enumerate(zip(text, other, strict=False))
    differs = (place for place, (one, two) in pairs if one != two)
    return next(differs, min(len(text), len(other)))


class TokenizerFile:
    """The `tokenizer.json` of a model.

    Raises:
        UsageError: The file is no such tokenizer, or the library that reads it is not there.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise UsageError(
                f"--tokenizer {str(path)!r} is no file; name the tokenizer.json of your model"
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
        except Exception as error:  # the library raises nothing narrower
            raise UsageError(
                f"--tokenizer {str(path)!r} is no tokenizer.json that can be read: {error}"
            ) from error

    def count(self, text: str) -> int:
        """How many tokens a text has, without those that the tokenizer would add."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def places(self, text: str) -> Sequence[tuple[int, int]]:
        """Where each token of a text begins and ends, in characters."""
        found: Sequence[tuple[int, int]] = self._tokenizer.encode(
            text, add_special_tokens=False
        ).offsets
        return found

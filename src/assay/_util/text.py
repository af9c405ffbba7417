"""Text from outside, made safe to show."""

import re
from collections.abc import Callable

from assay.errors import UsageError

__all__ = ["check_unicode", "counted", "cut", "escaped_markdown", "printable", "shown"]

_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$])")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"})


def printable(text: str) -> str:
    r"""Return `text` as one line, with everything a terminal might obey made visible.

    Control characters, line ends, and marks that turn the direction of writing become
    `\x1b`, `\n` and the like.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def cut(text: str, longest: int) -> str:
    """Return `text` as one printable line of at most `longest` letters; `…` says it went on."""
    line = printable(text[: longest + 1])
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def escaped_markdown(text: str) -> str:
    """Text in one line in which nothing is read as Markdown, HTML, a formula or a mention."""
    return _MARKDOWN.sub(r"\\\1", printable(text)).translate(_ENTITIES)


def shown(value: object, longest: int = 80, write: Callable[[object], str] = repr) -> str:
    """A value from anywhere for a message, as Python writes it, `cut` to a length."""
    try:
        text = write(value)
    except Exception:  # too deep, too long a number, or the class of somebody else
        text = f"<{type(value).__name__}>"
    return cut(text, longest)


def counted(number: int, thing: str, things: str | None = None) -> str:
    """A number and what it counts; `things` where an s does not make many of it."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def check_unicode(what: str, text: str) -> None:
    """Refuse half of a pair of surrogates, which JSON can write and nothing can store."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise UsageError(
            f"{what} {shown(text, 60)} has {half}, which is no letter; take it out"
        ) from error

"""Safe display of external text, and lookup of names with suggestions."""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from assay.errors import AmbiguousName, UsageError

_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$])")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"})


def printable(text: str) -> str:
    r"""Return `text` as one line, with all control characters made visible.

    Control characters, line ends, and bidirectional marks become `\x1b`, `\n` and the like.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def visible(text: str) -> str:
    """Return `text` with its lines and tabs, and all other control characters made visible."""
    return "".join(
        char
        if char.isprintable() or char in "\n\t"
        else char.encode("unicode_escape").decode("ascii")
        for char in text
    )


def cut(text: str, longest: int) -> str:
    """Return `text` as one printable line of at most `longest` characters, cut with `…`."""
    line = printable(text[: longest + 1])
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def escape_markdown(text: str) -> str:
    """Escape text as one line without Markdown, HTML, formulas or mentions."""
    return _MARKDOWN.sub(r"\\\1", printable(text)).translate(_ENTITIES)


def shown(value: object, longest: int = 80, write: Callable[[object], str] = repr) -> str:
    """Format any value for a message with `write`, cut to a length."""
    try:
        text = write(value)
    except Exception:  # too deep, too long a number, or a custom class that raises
        text = f"<{type(value).__name__}>"
    return cut(text, longest)


def counted(number: int, thing: str, things: str | None = None) -> str:
    """Format a number with its noun; `things` is the plural if it is irregular."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


def format_install_command(extra: str) -> str:
    """Return how to install an extra. No package index has assay."""
    return f"pip install '.[{extra}]' in a clone of assay"


def check_unicode(label: str, text: str) -> None:
    """Raise UsageError for a lone surrogate, which JSON can contain but nothing can store."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        surrogate = ascii(text[error.start])
        raise UsageError(
            f"{label} {shown(text, 60)} contains {surrogate}, which is not a valid character; "
            "remove it"
        ) from error


_MAX_KNOWN = 12
"""Maximum number of names in a message about an unknown name."""
_MAX_AMBIGUOUS = 5
"""Maximum number of names in a message about an ambiguous name."""


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> str:
    """Return a message about an unknown name, with the closest one and all allowed ones."""
    names = [str(name) for name in allowed]
    closest = get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {closest[0]!r}? " if closest else ""
    return f"unknown {kind} {name!r}; {hint}choose from: {', '.join(names)}"


def natural_key(name: str) -> tuple[tuple[str | tuple[int, str], ...], str]:
    """Return a sort key for natural order: run2 before run10."""
    parts = re.split(r"([0-9]+)", name)
    # Digits are at every second index; their length comes first, as they may be any number.
    numbers = (digits.lstrip("0") for digits in parts[1::2])
    parts_and_numbers: list[str | tuple[int, str]] = [*parts]
    parts_and_numbers[1::2] = [(len(number), number) for number in numbers]
    return tuple(parts_and_numbers), name


class NameMatch(NamedTuple):
    """The object that a name identifies."""

    kind: str
    """session, experiment or run."""
    id: str
    rank: int
    """Quality of the match: 0 for a whole id, 1 for a whole name, more for a prefix."""


def resolve_name(
    kind: str,
    name: str,
    candidates: Iterable[tuple[str, str]],
    starts: Callable[[str, str], bool] = lambda text, start: (
        bool(start) and text.startswith(start)
    ),
) -> NameMatch | None:
    """Return the candidate that a name identifies, or None.

    Args:
        kind: The kind of candidates, for messages.
        name: An id, a name, or the beginning of one.
        candidates: Ids and names; the id twice without a name.
        starts: Function that returns whether its first argument begins with the second.

    Raises:
        AmbiguousName: Several candidates match.
    """
    pairs = list(candidates)
    for rank, (part, matches) in enumerate(
        ((0, str.__eq__), (1, str.__eq__), (0, starts), (1, starts))
    ):
        matching = dict(pair for pair in pairs if matches(pair[part], name))
        if len(matching) == 1:
            return NameMatch(kind, next(iter(matching)), rank)
        if matching:
            labels = [
                printable(label if label == key else f"{label} ({key})")
                for key, label in matching.items()
            ]
            more = ", …" if len(labels) > _MAX_AMBIGUOUS else ""
            raise AmbiguousName(
                f"{kind} {name!r} is ambiguous: {', '.join(labels[:_MAX_AMBIGUOUS])}{more}; "
                "give a longer part of it"
            )
    return None


def unknown_name_error(
    kind: str, name: str, names: Sequence[str], *, empty: str = "", see: str = ""
) -> UsageError:
    """Return the error for an unknown name, with the closest one and some known ones."""
    if not names:
        empty = empty or "the database is empty, start with 'assay run'"
        return UsageError(f"unknown {kind} {name!r}; {empty}")
    # Close matches come first, so that they are among the listed names.
    ordered = dict.fromkeys([*get_close_matches(name.lower(), names, n=3), *names])
    message = unknown_name(kind, name, [printable(label) for label in [*ordered][:_MAX_KNOWN]])
    more = f", … ({len(names)} in all)" if len(names) > _MAX_KNOWN else ""
    return UsageError(f"{message}{more}{see and f'; see {see!r}'}")

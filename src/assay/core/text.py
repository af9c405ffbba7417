"""Text from outside, made safe to show, and which of the known things a name means."""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from assay.errors import AmbiguousName, UsageError

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


_SHOWN = 12
"""How many candidates a message about an unknown name gives at most."""
_AMBIGUOUS = 5
"""And one about an ambiguous name."""


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> str:
    """Say that there is no such `kind`, which name was perhaps meant, and which there are."""
    names = [str(each) for each in allowed]
    near = get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}; {hint}choose from: {', '.join(names)}"


def natural_key(name: str) -> tuple[tuple[str | tuple[int, str], ...], str]:
    """What names are sorted by so that they come as people count: run2 before run10."""
    parts = re.split(r"([0-9]+)", name)
    # Digits stand at every second place; their count comes first, as they may be any number.
    numbers = (digits.lstrip("0") for digits in parts[1::2])
    parts_and_numbers: list[str | tuple[int, str]] = [*parts]
    parts_and_numbers[1::2] = [(len(number), number) for number in numbers]
    return tuple(parts_and_numbers), name


class Meaning(NamedTuple):
    """What a name stands for."""

    kind: str
    """session, experiment or run."""
    id: str
    rank: int
    """How well it fits: 0 for a whole id, 1 for a whole name, more for a start."""


def choose(
    kind: str,
    name: str,
    candidates: Iterable[tuple[str, str]],
    starts: Callable[[str, str], bool] = lambda text, start: (
        bool(start) and text.startswith(start)
    ),
) -> Meaning | None:
    """The candidate that a name means; None if it means none of them.

    Args:
        kind: What the candidates are, for a message.
        name: An id, a name, or the start of one.
        candidates: Ids and names; the same twice where there is only an id.
        starts: Whether the first begins with the second, in whatever sense.

    Raises:
        AmbiguousName: It means several.
    """
    known = list(candidates)
    for rank, (part, fits) in enumerate(
        ((0, str.__eq__), (1, str.__eq__), (0, starts), (1, starts))
    ):
        near = dict(pair for pair in known if fits(pair[part], name))
        if len(near) == 1:
            return Meaning(kind, next(iter(near)), rank)
        if near:
            labels = [
                printable(label if label == key else f"{label} ({key})")
                for key, label in near.items()
            ]
            more = ", …" if len(labels) > _AMBIGUOUS else ""
            raise AmbiguousName(
                f"{kind} {name!r} is ambiguous: {', '.join(labels[:_AMBIGUOUS])}{more}; "
                "give more of it"
            )
    return None


def unknown(
    kind: str, name: str, names: Sequence[str], *, empty: str = "", see: str = ""
) -> UsageError:
    """The error of a name that means nothing: the near one, and some of those there are."""
    if not names:
        empty = empty or "the store is empty, start with 'assay run'"
        return UsageError(f"unknown {kind} {name!r}; {empty}")
    # What was perhaps meant is among those that are named, however many there are.
    first = dict.fromkeys([*get_close_matches(name.lower(), names, n=3), *names])
    said = unknown_name(kind, name, [printable(label) for label in [*first][:_SHOWN]])
    more = f", … ({len(names)} in all)" if len(names) > _SHOWN else ""
    return UsageError(f"{said}{more}{see and f'; see {see!r}'}")

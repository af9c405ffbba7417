"""Actions in plain text: lines that announce them, or a text of nothing but names."""

import re
from functools import lru_cache
from typing import Final

from assay.crafter.rules import ACTIONS

__all__ = ["actions_in_text", "known_action"]

_GAPS: Final = re.compile(r"[\s_-]+")
_AROUND: Final = " \t\r\n\"'`*.,;:!()[]{}<>"
_MAX_LINES: Final = 2_000
_MAX_LINE: Final = 2_000
_ANNOUNCED: Final = re.compile(
    r"[\s*_#>-]{0,8}(?:next |my |final )?actions?[\s*_]{0,4}[:=](.*)", re.IGNORECASE
)
_BULLET: Final = re.compile(r"\s{0,8}(?:[-*•]|\d{1,2}[.)])\s{1,8}")
_WORDS: Final = re.compile(r"[A-Za-z]{1,20}(?:[ _-][A-Za-z]{1,20}){0,3}|\d{1,2}")
_SEPARATORS: Final = re.compile(r"[,;\n]|->|→| then ")


@lru_cache(maxsize=16)
def _by_name(actions: tuple[str, ...]) -> dict[str, str]:
    numbers = {str(index): name for index, name in enumerate(actions)}
    return numbers | {_plain(name): name for name in actions} | {name: name for name in actions}


def _plain(text: str) -> str:
    return _GAPS.sub("_", text.strip(_AROUND).lower())


def known_action(text: str, actions: tuple[str, ...] = ACTIONS) -> str | None:
    """The action that a text names, if it names one; case, spaces and quotes are forgiven."""
    names = _by_name(actions)
    return names.get(text) or names.get(_plain(text))


def actions_in_text(text: str, actions: tuple[str, ...] = ACTIONS) -> list[str]:
    """The actions that a text announces or consists of; none where it is prose."""
    lines = [line[:_MAX_LINE] for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]]
    return _announced(lines, actions) or _nothing_but_names(lines, actions)


def _announced(lines: list[str], actions: tuple[str, ...]) -> list[str]:
    """What lines like `Action: do` say, up to where a model invents an observation."""
    found: list[str] = []
    listing = False
    for line in lines:
        announced = _ANNOUNCED.match(line)
        if announced:
            said = announced[1].strip(_AROUND)
            listing = not said
            found += _names(said) if said else []
        elif listing and line.strip():
            bullet = _BULLET.match(line)
            name = known_action(line[bullet.end() :] if bullet else line, actions)
            listing = name is not None
            found += [name] if name else []
        elif found and line.lower().lstrip(_AROUND).startswith("observation"):
            break
    return found


def _names(said: str) -> list[str]:
    """The names in a list; nothing if one of its parts cannot be a name at all."""
    parts = [part.strip(_AROUND) for part in _SEPARATORS.split(said)]
    parts = [part for part in parts if part]
    return parts if all(_WORDS.fullmatch(part) for part in parts) else []


def _nothing_but_names(lines: list[str], actions: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for line in lines:
        bullet = _BULLET.match(line)
        said = line[bullet.end() :] if bullet else line
        for part in _SEPARATORS.split(said):
            if not part.strip(_AROUND):
                continue
            known = known_action(part, actions)
            # Ids alone are no answer: a number may be anything.
            names = [known] if known else [known_action(word, actions) for word in part.split()]
            if None in names or part.strip(_AROUND).isdigit():
                return []
            found += [name for name in names if name]
    return found

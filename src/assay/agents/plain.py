"""Actions in plain text: lines that announce them, or a text of nothing but names."""

import re
from typing import Final

from assay.crafter.rules import ACTIONS

__all__ = ["actions_in_text", "known_action"]

_BY_NAME: Final = {name: name for name in ACTIONS} | {str(i): n for i, n in enumerate(ACTIONS)}
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


def known_action(text: str) -> str | None:
    """The action that a text names, if it names one; case, spaces and quotes are forgiven."""
    return _BY_NAME.get(text) or _BY_NAME.get(_GAPS.sub("_", text.strip(_AROUND).lower()))


def actions_in_text(text: str) -> list[str]:
    """The actions that a text announces or consists of; none where it is prose."""
    lines = [line[:_MAX_LINE] for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]]
    return _announced(lines) or _nothing_but_names(lines)


def _announced(lines: list[str]) -> list[str]:
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
            name = known_action(line[bullet.end() :] if bullet else line)
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


def _nothing_but_names(lines: list[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        bullet = _BULLET.match(line)
        said = line[bullet.end() :] if bullet else line
        for part in _SEPARATORS.split(said):
            if not part.strip(_AROUND):
                continue
            known = known_action(part)
            # Ids alone are no answer: a number may be anything.
            names = [known] if known else [known_action(word) for word in part.split()]
            if None in names or part.strip(_AROUND).isdigit():
                return []
            found += [name for name in names if name]
    return found

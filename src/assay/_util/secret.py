"""A text that must not be shown, and all such texts that this process knows."""

import os
import re
from collections.abc import Collection
from functools import cache

__all__ = ["Secret", "known_secrets"]

_LONG = 8
"""A shorter one may be a part of ordinary words, in texts that do not concern it."""
_VARIABLES = re.compile(r"(.*_)?(API_?KEY|TOKEN|SECRET|PASSWORD)", re.IGNORECASE)
"""The names of variables that hold secrets, for code of users too."""
_PATHS = ("/", "./", "../", "~")
_known: set[str] = set()


class Secret:
    """A text that is shown nowhere; only `reveal` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) >= _LONG:
            _known.add(text)

    def reveal(self) -> str:
        """The text itself, for the one place that has to send it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def known_secrets() -> Collection[str]:
    """The texts of all secrets there were in this process, but for very short ones.

    Those are the keys that it was given, and what variables hold that are named after secrets.
    """
    return _known | _in_environment()


@cache
def _in_environment() -> frozenset[str]:
    return frozenset(
        text.strip()
        for name, text in os.environ.items()
        if _VARIABLES.fullmatch(name)
        and len(text.strip()) >= _LONG
        and not text.strip().startswith(_PATHS)
    )

"""Secrets: texts that must not be shown, and how they are taken out of other texts."""

import json
import os
import re
from collections.abc import Collection, Iterable
from functools import cache
from urllib.parse import quote

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


MARK = "[redacted]"
"""What stands where a secret was."""

_PART = 12
"""So many characters of a secret give too much of it away."""
_SHAPES = re.compile(
    # The name and password of an address, and what its query says.
    r"(?P<scheme>\w://)[^\s/@'\"]+@"
    r"|(?P<query>[?&][\w.~-]+=)[^\s&'\"#]+"
    # Keys, as providers make them.
    r"|\b(?:(?:sk|pk|rk|gsk|xai|hf|ghp|gho|glpat)[-_]|AIza|AKIA)[-_A-Za-z0-9]{12,}"
    r"|(?P<bearer>\bBearer )[^\s'\"]{8,}",
)


def redact(text: str, secrets: Iterable[str | None] = ()) -> str:
    """`text` without these and all known secrets, as they are and as JSON and URLs write them.

    Of a secret, any twelve characters that stand together are taken out too. One of fewer
    than eight is replaced only where it stands by itself, because it may also be a part of
    ordinary words.
    """
    # The longest first: one secret may be the beginning of another.
    hidden = {secret for secret in (*secrets, *known_secrets()) if secret}
    for secret in sorted(hidden, key=lambda secret: (-len(secret), secret)):
        for form in _forms(secret):
            if len(secret) >= _LONG:
                text = _without(text.replace(form, MARK), form)
            elif form in text:
                text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MARK, text)
    return text


@cache
def _forms(secret: str) -> tuple[str, ...]:
    """How a text may have it: as it is, and as JSON and URLs write it."""
    written = (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret))
    return tuple(dict.fromkeys(written))


def _without(text: str, secret: str) -> str:
    """A text without parts of a secret."""
    half = _PART // 2
    # Any part that is long enough has one of these in it, which is quickly looked up.
    if not any(secret[at : at + half] in text for at in range(0, len(secret) - half + 1, half)):
        return text
    spans: list[tuple[int, int]] = []
    for at in range(len(secret) - _PART + 1):
        part, found = secret[at : at + _PART], -1
        while (found := text.find(part, found + 1)) >= 0:
            spans.append((found, found + _PART))
    kept: list[str] = []
    end = 0
    for first, last in sorted(spans):
        if first > end or not kept:
            kept += [text[end:first], MARK]
        end = max(end, last)
    return "".join([*kept, text[end:]])


_KEYS = re.compile(
    r"\b(?:(?:sk|pk|rk|gsk|xai|hf|ghp|gho|glpat)[-_]|AIza|AKIA)[-_A-Za-z0-9]{12,}"
    r"|\bBearer [^\s'\"]{8,}|\w://[^\s/@:'\"]+:[^\s/@'\"]+@"
)


def has_secret(text: str) -> bool:
    """Whether `text` has what looks like a key, a bearer token or a password in an address."""
    # Without one of these no text has any of it. They are written out because a loop takes
    # three times as long; a single letter is found many times as fast as a word.
    hinted = (
        ("k-" in text or "k_" in text or "xai" in text or "hf" in text)
        or ("ghp" in text or "gho" in text or "glpat" in text)
        or ("A" in text and ("AIza" in text or "AKIA" in text))
        or ("B" in text and "Bearer " in text)
        or ("/" in text and "://" in text)
    )
    return hinted and _KEYS.search(text) is not None


def mask(text: str) -> str:
    """`text` without known secrets and what looks like one: passwords, queries, keys.

    For errors and what is printed beside results: a reply, which is data, may look like this.
    """
    return _SHAPES.sub(_masked, redact(text))


def _masked(found: re.Match[str]) -> str:
    kept = found["scheme"] or found["query"] or found["bearer"] or ""
    return f"{kept}{MARK}{'@' if found['scheme'] else ''}"

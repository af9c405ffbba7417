"""Secrets: texts that must not be shown, and their removal from other texts."""

import json
import os
import re
from collections.abc import Collection, Iterable
from functools import cache
from urllib.parse import quote

_MIN_LENGTH = 8
"""Minimum length; shorter secrets may occur in unrelated words."""
_SECRET_VARIABLES = re.compile(r"(.*_)?(API_?KEY|TOKEN|SECRET|PASSWORD)", re.IGNORECASE)
"""Names of environment variables with secrets, including those for user code."""
_PATH_PREFIXES = ("/", "./", "../", "~")
_registered: set[str] = set()


class Secret:
    """A text that is never shown; only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) >= _MIN_LENGTH:
            _registered.add(text)

    def reveal(self) -> str:
        """Return the text itself, for the code that has to send it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def list_secrets() -> Collection[str]:
    """Return the texts of all secrets of this process, except very short ones.

    They are the keys it was given, and the values of variables with names of secrets.
    """
    return _registered | _read_environment_secrets()


@cache
def _read_environment_secrets() -> frozenset[str]:
    return frozenset(
        text.strip()
        for name, text in os.environ.items()
        if _SECRET_VARIABLES.fullmatch(name)
        and len(text.strip()) >= _MIN_LENGTH
        and not text.strip().startswith(_PATH_PREFIXES)
    )


MARK = "[redacted]"
"""Replacement for a secret."""

_PART_LENGTH = 12
"""Length of a part of a secret that reveals too much of it."""
_SECRET_PATTERNS = re.compile(
    # User name and password of an address, and the values of its query.
    r"(?P<scheme>\w://)[^\s/@'\"]+@"
    r"|(?P<query>[?&][\w.~-]+=)[^\s&'\"#]+"
    # Keys in the formats of providers.
    r"|\b(?:(?:sk|pk|rk|gsk|xai|hf|ghp|gho|glpat)[-_]|AIza|AKIA)[-_A-Za-z0-9]{12,}"
    r"|(?P<bearer>\bBearer )[^\s'\"]{8,}"
)


def redact(text: str, secrets: Iterable[str | None] = ()) -> str:
    """Remove these and all known secrets from `text`, also as written in JSON and URLs.

    Any twelve consecutive characters of a secret are removed, too. A secret of fewer than eight
    characters is replaced only as a whole word, because it may be a part of ordinary words.
    """
    # The longest first: one secret may be a prefix of another.
    hidden = {secret for secret in (*secrets, *list_secrets()) if secret}
    for secret in sorted(hidden, key=lambda secret: (-len(secret), secret)):
        for form in _list_forms(secret):
            if len(secret) >= _MIN_LENGTH:
                text = _remove_parts(text.replace(form, MARK), form)
            elif form in text:
                text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MARK, text)
    return text


@cache
def _list_forms(secret: str) -> tuple[str, ...]:
    """Return the forms of a secret in texts: literal, and as written in JSON and URLs."""
    forms = (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret))
    return tuple(dict.fromkeys(forms))


def _remove_parts(text: str, secret: str) -> str:
    """Remove parts of a secret from a text."""
    half = _PART_LENGTH // 2
    # Any part that is long enough contains one of these, which are quick to find.
    if not any(
        secret[start : start + half] in text for start in range(0, len(secret) - half + 1, half)
    ):
        return text
    spans: list[tuple[int, int]] = []
    for start in range(len(secret) - _PART_LENGTH + 1):
        part, position = secret[start : start + _PART_LENGTH], -1
        while (position := text.find(part, position + 1)) >= 0:
            spans.append((position, position + _PART_LENGTH))
    pieces: list[str] = []
    end = 0
    for first, last in sorted(spans):
        if first > end or not pieces:
            pieces += [text[end:first], MARK]
        end = max(end, last)
    return "".join([*pieces, text[end:]])


_KEY_PATTERNS = re.compile(
    r"\b(?:(?:sk|pk|rk|gsk|xai|hf|ghp|gho|glpat)[-_]|AIza|AKIA)[-_A-Za-z0-9]{12,}"
    r"|\bBearer [^\s'\"]{8,}|\w://[^\s/@:'\"]+:[^\s/@'\"]+@"
)


def has_secret(text: str) -> bool:
    """Return whether `text` seems to contain a key, a bearer token or a password in a URL."""
    # Without one of these, nothing can match. They are written out because a loop takes three
    # times as long; a single letter is found much faster than a word.
    may_match = (
        ("k-" in text or "k_" in text or "xai" in text or "hf" in text)
        or ("ghp" in text or "gho" in text or "glpat" in text)
        or ("A" in text and ("AIza" in text or "AKIA" in text))
        or ("B" in text and "Bearer " in text)
        or ("/" in text and "://" in text)
    )
    return may_match and _KEY_PATTERNS.search(text) is not None


def mask(text: str) -> str:
    """Remove known secrets and everything that looks like one: passwords, queries, keys.

    For errors and messages only: replies are data, and may look like this.
    """
    return _SECRET_PATTERNS.sub(_mask_match, redact(text))


def _mask_match(match: re.Match[str]) -> str:
    prefix = match["scheme"] or match["query"] or match["bearer"] or ""
    return f"{prefix}{MARK}{'@' if match['scheme'] else ''}"

"""Secrets taken out of text that others wrote."""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote

__all__ = ["MARK", "redact"]

MARK = "[redacted]"
"""What stands where a secret was."""

_LONG = 8


def redact(text: str, secrets: Iterable[str | None]) -> str:
    """`text` without the secrets, as they are and as JSON and URLs write them.

    One of fewer than eight characters is replaced only where it stands by itself, because it
    may also be a part of ordinary words.
    """
    # The longest first: one secret may be the beginning of another.
    for secret in sorted({one for one in secrets if one}, key=lambda one: (-len(one), one)):
        written = (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret))
        for form in dict.fromkeys(written):
            if form not in text:
                continue
            if len(secret) >= _LONG:
                text = text.replace(form, MARK)
            else:
                text = re.sub(rf"(?<!\w){re.escape(form)}(?!\w)", MARK, text)
    return text

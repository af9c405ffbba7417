"""One way to write a value as JSON, so that equal values have equal bytes and one hash."""

import json
import re
from hashlib import blake2b
from typing import Any

__all__ = ["canonical_json", "content_hash", "derived_id"]

_SURROGATES = re.compile("[\ud800-\udfff]")
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


def canonical_json(value: Any) -> bytes:
    """A value as compact JSON with sorted keys, in UTF-8.

    Half a surrogate pair, which has no UTF-8, becomes U+FFFD.
    """
    text = _encode(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text).encode()


def content_hash(content: bytes) -> str:
    """The name of a content: 128 bits of BLAKE2b in hexadecimal."""
    return blake2b(content, digest_size=16).hexdigest()


def derived_id(*parts: str | int) -> str:
    """An id of 20 hexadecimal digits that follows from its parts, in any process."""
    return blake2b(canonical_json(list(parts)), digest_size=10).hexdigest()

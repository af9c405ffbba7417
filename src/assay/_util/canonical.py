"""One way to write a value as JSON, so that equal values have equal bytes and one hash."""

import json
import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

__all__ = [
    "canonical_encoder",
    "canonical_json",
    "content_hash",
    "derived_id",
    "parse_json",
    "well_formed",
]

_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(rb"\\u[dD][89a-fA-F]")


def canonical_encoder(default: Callable[[Any], Any] | None) -> Callable[[Any], bytes]:
    """A `canonical_json` that asks `default` for the JSON form of what has none."""
    encode = json.JSONEncoder(
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
        default=default,
    ).encode

    def encoded(value: Any) -> bytes:
        text = encode(value)
        try:
            return text.encode()
        except UnicodeEncodeError:
            # Read back, because keys that were mended may have another order.
            return encode(json.loads(well_formed(text))).encode()

    return encoded


_canonical = canonical_encoder(None)


def canonical_json(value: Any) -> bytes:
    """A value as compact JSON with sorted keys, in UTF-8.

    Half a surrogate pair, which has no UTF-8, becomes U+FFFD.

    Raises:
        ValueError: A number in it is not finite.
    """
    return _canonical(value)


def well_formed(text: str) -> str:
    """The text with U+FFFD for every half of a surrogate pair, which has no UTF-8."""
    return _SURROGATES.sub("\ufffd", text)


def parse_json(content: bytes) -> Any:
    """The value of a JSON text in UTF-8, with `well_formed` texts in it.

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    value = json.loads(content.decode())
    if _ESCAPED.search(content):
        # Only an escape can stand for half a pair; most texts have none.
        value = json.loads(well_formed(json.dumps(value, ensure_ascii=False)))
    return value


def content_hash(content: bytes) -> str:
    """The name of a content: 128 bits of BLAKE2b in hexadecimal."""
    return blake2b(content, digest_size=16).hexdigest()


def derived_id(*parts: str | int) -> str:
    """An id of 20 hexadecimal digits that follows from its parts, in any process."""
    return blake2b(canonical_json(list(parts)), digest_size=10).hexdigest()

"""Canonical JSON, so that equal values have equal hashes, and indented JSON for people."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def make_canonical_encoder(default: Callable[[Any], Any] | None) -> Callable[[Any], bytes]:
    """Return a `canonical_json` that calls `default` for values that are not serialisable."""
    encode = json.JSONEncoder(
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
        default=default,
    ).encode

    def encode_bytes(value: Any) -> bytes:
        text = encode(value)
        try:
            return text.encode()
        except UnicodeEncodeError:
            # Parsed again, because replaced characters may change the order of keys.
            return encode(json.loads(fix_surrogates(text))).encode()

    return encode_bytes


_encode_canonical = make_canonical_encoder(None)


def canonical_json(value: Any) -> bytes:
    """Encode a value as compact JSON with sorted keys, in UTF-8.

    A lone surrogate, which UTF-8 cannot encode, becomes U+FFFD.

    Raises:
        ValueError: A number in it is not finite.
    """
    return _encode_canonical(value)


def fix_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)


def parse_json(content: bytes) -> Any:
    """Parse JSON in UTF-8; its texts are made `fix_surrogates`.

    Raises:
        ValueError: The content is not JSON.
        RecursionError: The content is nested too deeply.
    """
    value = json.loads(content.decode())
    if _ESCAPED_SURROGATE.search(content):
        # Only an escape can produce a lone surrogate; most texts have none.
        value = json.loads(fix_surrogates(json.dumps(value, ensure_ascii=False)))
    return value


def content_hash(content: bytes) -> str:
    """Return a hash of the content: 128 bits of BLAKE2b in hexadecimal."""
    return blake2b(content, digest_size=16).hexdigest()


def derive_id(*parts: str | int) -> str:
    """Return an id of 20 hexadecimal digits, derived from its parts in any process."""
    return blake2b(canonical_json(list(parts)), digest_size=10).hexdigest()


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode


def format_json(value: Any, levels: int) -> Iterator[bytes]:
    """Yield a value as indented JSON in UTF-8, piece by piece.

    Objects, and lists of objects, have one line per item down to `levels`; deeper levels and
    all other lists are on one line. An iterator of objects is written as a list, without being
    held in memory.

    Raises:
        ValueError: A number in it is not finite.
    """
    for part in _iterate_parts(value, levels, "\n"):
        yield part.encode("utf-8", "replace")
    yield b"\n"


def _iterate_parts(value: Any, levels: int, newline: str) -> Iterator[str]:
    inner = f"{newline} "
    if not value or levels <= 0:
        yield _encode(value)
    elif isinstance(value, Mapping):
        for number, (name, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}{inner}{_encode(str(name))}: "
            yield from _iterate_parts(item, levels - 1, inner)
        yield f"{newline}}}"
    elif isinstance(value, Iterator) or (
        isinstance(value, list) and isinstance(value[0], Mapping)
    ):
        number = -1
        for number, item in enumerate(value):
            yield f"{',' if number else '['}{inner}"
            yield from _iterate_parts(item, levels - 1, inner)
        yield "[]" if number < 0 else f"{newline}]"
    else:
        yield _encode(value)

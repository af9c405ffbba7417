"""JSON that people can read: a line for each thing, not for each number."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["laid_out"]

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode


def laid_out(value: Any, levels: int) -> Iterator[bytes]:
    """A value as JSON in UTF-8, piece by piece.

    Objects, and lists of objects, have a line for each item down to `levels`; what is
    below, and every other list, stands on one line. An iterator of objects is a list that
    need not be there as a whole.

    Raises:
        ValueError: A number in it is not finite.
    """
    for part in _parts(value, levels, "\n"):
        yield part.encode("utf-8", "replace")
    yield b"\n"


def _parts(value: Any, levels: int, newline: str) -> Iterator[str]:
    inner = f"{newline} "
    if not value or levels <= 0:
        yield _encode(value)
    elif isinstance(value, Mapping):
        for number, (name, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}{inner}{_encode(str(name))}: "
            yield from _parts(item, levels - 1, inner)
        yield f"{newline}}}"
    elif isinstance(value, Iterator) or (
        isinstance(value, list) and isinstance(value[0], Mapping)
    ):
        number = -1
        for number, item in enumerate(value):
            yield f"{',' if number else '['}{inner}"
            yield from _parts(item, levels - 1, inner)
        yield "[]" if number < 0 else f"{newline}]"
    else:
        yield _encode(value)

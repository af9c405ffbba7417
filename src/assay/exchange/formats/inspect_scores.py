"""What a sample of Inspect earned and used, as numbers."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from assay.exchange.formats.foreign import as_count, as_mapping, as_name, as_number
from assay.types import Usage

__all__ = ["read_scores", "read_usage", "unread_scores"]

_LONGEST: Final = 1000
_LETTERS: Final = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}


def read_scores(scores: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The scores that are numbers, each by the name that Inspect reports it under.

    Those of a list have the name of the scorer and their place: `many/1`.
    """
    taken: set[str] = set()
    for scorer, name, value in _values(scores):
        number = _score(value)
        if number is not None:
            metric = as_name(name if name not in taken else f"{scorer}/{name}", scorer)
            taken.add(name)
            yield metric, number


def unread_scores(scores: Mapping[str, Any]) -> list[str]:
    """The names of scores that are no numbers."""
    return [
        as_name(name, scorer)
        for scorer, name, value in _values(scores)
        if value is not None and _score(value) is None
    ]


def _values(scores: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Scorer, name and value of each score."""
    for scorer, score in scores.items():
        value = as_mapping(score).get("value")
        if isinstance(value, dict):
            yield from ((scorer, name, each) for name, each in value.items())
        elif isinstance(value, list):
            for place, each in enumerate(value[:_LONGEST], start=1):
                yield scorer, f"{scorer}/{place}", each
        else:
            yield scorer, scorer, value


def _score(value: Any) -> float | None:
    if not isinstance(value, str):
        return as_number(value)
    if value in _LETTERS:
        return _LETTERS[value]
    try:
        return as_number(float(value[:40]))
    except ValueError:
        return None


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """The tokens of one call, or of all."""
    cached = as_count(usage.get("input_tokens_cache_read"))
    written = as_count(usage.get("input_tokens_cache_write"))
    # Inspect leaves out of `input_tokens` what was read from or written to a cache.
    prompt = min(as_count(usage.get("input_tokens")) + cached + written, 2**31 - 1)
    return Usage(
        prompt=prompt,
        completion=as_count(usage.get("output_tokens")),
        cached=cached,
        reasoning=as_count(usage.get("reasoning_tokens")),
    )

"""What to say about a name that does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["unknown_name"]


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> str:
    """Say that there is no such `kind`, which name was perhaps meant, and which there are."""
    names = list(allowed)
    near = get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {kind} {name!r}; {hint}choose from: {', '.join(names)}"

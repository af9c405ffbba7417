"""Whole numbers on the command line: what is none is an error, and never rounded."""

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter, Token

__all__ = ["Whole"]


def _whole(kind: Any, tokens: Sequence[Token]) -> int:
    # Cyclopts by itself would take 1.5 for 2.
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number; give one such as 10") from None


Whole: TypeAlias = Annotated[int, Parameter(converter=_whole)]
"""The type of an option that takes a whole number."""

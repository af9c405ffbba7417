"""Types of the fields that come in from outside: what pydantic may take for them.

A number is declared as one of these, because a bare `int` would read "7" and true. The
bounds are those of the columns that hold the values. Imports nothing of pydantic, so that
whoever only writes does not load it.
"""

from typing import Annotated, Any, TypeAlias

__all__ = ["Count", "Flag", "Moment", "Name", "Ordinal", "Priority", "Real", "Seconds", "Seed"]


class _Takes:
    """Limits of a field, in the words of pydantic's core schema."""

    def __init__(self, **limits: Any) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), "strict": True, **self._limits}


Name: TypeAlias = Annotated[str, _Takes(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]
"""One line of 1 to 200 characters."""
Count: TypeAlias = Annotated[int, _Takes(ge=0, lt=2**31)]
Ordinal: TypeAlias = Annotated[int, _Takes(ge=1, lt=2**31)]
Priority: TypeAlias = Annotated[int, _Takes(ge=-(2**31), lt=2**31)]
Seed: TypeAlias = Annotated[int, _Takes(ge=-(2**63), lt=2**63)]
Real: TypeAlias = Annotated[float, _Takes(allow_inf_nan=False)]
Flag: TypeAlias = Annotated[bool, _Takes()]
Moment: TypeAlias = Annotated[float, _Takes(ge=0, lt=253_402_300_800, allow_inf_nan=False)]
"""Seconds since 1970."""
Seconds: TypeAlias = Annotated[float, _Takes(ge=0, lt=1e12, allow_inf_nan=False)]
"""How long something took."""

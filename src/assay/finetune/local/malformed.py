"""How often a model writes a call that cannot be read, kept to the schema and left free."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from assay.datasets.message_checks import calls_problem
from assay.datasets.schemas import tool_schemas

from .generating import Generator, ModelRequest
from .templates import read_rows

__all__ = ["MalformedCalls", "malformed_calls"]

_ASKED: Final = 16
_LONGEST: Final = 128
_TEMPERATURE: Final = 0.7


@dataclass(frozen=True, slots=True)
class MalformedCalls:
    """Replies without a call that the tools allow."""

    asked: int
    constrained: int
    """With the grammar of the tools."""
    free: int
    """Without it."""


def malformed_calls(generator: Generator, rows: Sequence[Any]) -> MalformedCalls | None:
    """Ask a model what rows ask, twice; None where no row offers tools.

    Args:
        generator: The model.
        rows: Training rows; the first of them that offer tools are asked.
    """
    offering = [row for row in read_rows(rows[:_ASKED]) if row.tools]
    if not offering:
        return None

    def malformed(constrained: bool) -> int:
        replies = generator.replies(
            [
                ModelRequest(
                    messages=row.messages[:-1],
                    tools=row.tools or (),
                    temperature=_TEMPERATURE,
                    max_tokens=_LONGEST,
                    constrained=constrained,
                )
                for row in offering
            ]
        )
        return sum(
            not calls or calls_problem(calls, tool_schemas(row.tools or ()))[0] is not None
            for row, reply in zip(offering, replies, strict=True)
            for calls in [reply.message.get("tool_calls")]
        )

    return MalformedCalls(len(offering), malformed(True), malformed(False))

"""What can be wrong with rows, and what was found: how often, and where first."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

__all__ = ["FIRST_PLACES", "RowFault", "RowFinding", "RowFindings"]

FIRST_PLACES: Final = 3
"""Of each kind of problem, so many places are told."""


class RowFault(StrEnum):
    """What can be wrong with a row."""

    JSON = "not JSON"
    SHAPE = "not the shape of a row"
    ROLE = "an unknown role"
    ORDER = "roles in a wrong order"
    CONTENT = "a message without content"
    CALL = "a tool call that cannot be read"
    SCHEMA = "a tool call that its tool does not allow"
    NOTHING = "nothing to train"
    TEMPLATE = "what the chat template does not take"
    LONG = "too long"
    SECRET = "what looks like a secret"
    LEAK = "a world that is held out"
    DUPLICATE = "the same as a row before"
    BLANK = "an empty line"
    ONE_SIDED = "one action in most rows"
    CHANGED = "not what the manifest says"


_WARNINGS: Final = frozenset(
    {RowFault.DUPLICATE, RowFault.BLANK, RowFault.ONE_SIDED, RowFault.CHANGED}
)


@dataclass(slots=True)
class RowFinding:
    """One kind of problem."""

    kind: RowFault
    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)
    """The first places: a line, counted from 1, and what is wrong there."""

    @property
    def is_error(self) -> bool:
        """Whether the file should not be trained on as it is."""
        return self.kind not in _WARNINGS


class RowFindings:
    """What was found so far, each kind once."""

    def __init__(self) -> None:
        self._by_kind: dict[RowFault, RowFinding] = {}

    def add(self, kind: RowFault, line: int, words: str, *, times: int = 1) -> None:
        """Count a problem, and keep its place if it is among the first."""
        finding = self._by_kind.get(kind)
        if finding is None:
            finding = self._by_kind[kind] = RowFinding(kind)
        finding.count += times
        if len(finding.first) < FIRST_PLACES:
            finding.first.append((line, words))

    def in_order(self) -> tuple[RowFinding, ...]:
        """All that was found, the errors first."""
        order = list(RowFault)
        findings = sorted(self._by_kind.values(), key=lambda each: order.index(each.kind))
        return tuple(sorted(findings, key=lambda each: not each.is_error))

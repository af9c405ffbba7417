"""What the reports of analyses share: how they begin, what they rest on, and their values."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from assay._util.text import counted
from assay.analyses.episodes import Basis
from assay.report.data import jsonable
from assay.report.document import Document, Section, Tone, Words
from assay.report.origin import made_by, versions
from assay.traces.location import DEFAULT_DATABASE

__all__ = ["ANALYSIS_FORMAT", "INTERVALS", "build", "percent", "replay_command"]

ANALYSIS_FORMAT: Final = "assay-analysis/1"
INTERVALS: Final = "In brackets: 95 % intervals, over worlds."


def build(
    name: str,
    title: str,
    finding: Sequence[str],
    sections: Sequence[Section],
    value: Any,
    rows: Sequence[Mapping[str, Any]],
) -> Document:
    """The report of an analysis.

    Args:
        name: Of the command.
        title: What it shows.
        finding: What was found, a sentence each.
        sections: The rest; the first has the figure that a picture shows.
        value: The analysis itself, which has a `basis`.
        rows: For CSV, all with the same columns.
    """
    basis: Basis = value.basis
    notes = [Words(line, Tone.NOTE) for line in (_rests_on(basis), *basis.notes)]
    return Document(
        title=title,
        summary=finding,
        sections=[
            *(section for section in sections if section.blocks),
            Section("What this rests on", notes),
        ],
        origin=made_by({"analysis": name}, [("the episodes", basis.source)]),
        more="--detail prints all of it; --output report.html adds figures.",
        values=lambda: {
            "format": ANALYSIS_FORMAT,
            "analysis": name,
            "finding": list(finding),
            **jsonable(value),
            "versions": versions(),
        },
        rows=lambda: rows,
    )


def _rests_on(basis: Basis) -> str:
    left_out = ", ".join(f"{n} {state}" for state, n in basis.left_out.items())
    return (
        f"{counted(basis.episodes, 'episode')} in {counted(basis.worlds, 'world')}, from"
        f" {basis.source}."
        f"{f' Not completed and left out: {left_out}.' if left_out else ''}"
    )


def percent(share: float | None) -> str:
    """A share in percent; what is not known is a dash, what is not all or nothing no 0."""
    if share is None or share != share:
        return "-"
    if 0 < share < 0.0005:
        return "< 0.1%"
    digits = 1 if 0 < share < 0.0995 else 0
    return f"{100 * share:.{digits}f}%" if share < 0.995 or share == 1 else "> 99%"


def replay_command(session_id: str, basis: Basis) -> str:
    """The command that plays a session again."""
    where = "" if basis.source == str(DEFAULT_DATABASE) else f" --database {basis.source}"
    if where and not basis.source.endswith(".duckdb"):
        where = ""
    return f"assay traces replay {session_id[:10]}{where}"

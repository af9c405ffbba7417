"""Options that commands about benchmarks share, and how they print a report."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

from assay.cli.output import Show, say, say_json, say_report

if TYPE_CHECKING:
    from assay.report import Document

__all__ = ["DEFAULT_DATA_DIR", "DataDir", "Flag", "Paths", "tell"]

DEFAULT_DATA_DIR = Path("data")
DataDir: TypeAlias = Annotated[Path, Parameter(name="--data-dir")]
"""Where benchmarks are."""
Flag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
Paths: TypeAlias = Annotated[list[Path] | None, Parameter(negative="")]


def tell(document: "Document", paths: Sequence[Path], show: Show, *, detail: bool) -> None:
    """Print a report, or its answers in short where it was written to files."""
    if show.json:
        say_json(document.values())
    elif paths or show.quiet:
        for line in document.summary:
            say(line)
        for path in () if show.quiet else paths:
            say(f"report: {path}")
    else:
        from assay.report.terminal import TerminalReport

        say_report(TerminalReport(document, detail=detail, answer_first=True))

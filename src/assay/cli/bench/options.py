"""Options that commands about benchmarks share, and how they print a report."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

from assay.cli.output import Show, say, say_json, say_report
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.report import Document

__all__ = ["DEFAULT_DATA_DIR", "DataDir", "Flag", "Pairs", "Paths", "base_images_of", "tell"]

DEFAULT_DATA_DIR = Path("data")
DataDir: TypeAlias = Annotated[Path, Parameter(name="--data-dir")]
"""Where benchmarks are."""
Flag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
Pairs: TypeAlias = Annotated[list[str] | None, Parameter(negative="", show_default=False)]
Paths: TypeAlias = Annotated[list[Path] | None, Parameter(negative="")]


def base_images_of(pairs: list[str] | None) -> tuple[str, ...]:
    """What `--base-image` gives, each as NAME=LOCAL."""
    for pair in pairs or ():
        name, _, place = pair.partition("=")
        if not (name and place):
            raise UsageError(
                f"--base-image {pair!r} is not allowed; give NAME=LOCAL, such as "
                "ubuntu:24.04=roots/noble"
            )
    return tuple(pairs or ())


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

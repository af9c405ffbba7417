"""Options that commands about benchmarks share, and how they print a report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

from assay.cli.output import Show, say, say_json, say_report
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.bench.seams import Allowed
    from assay.report import Document

__all__ = [
    "DEFAULT_DATA_DIR",
    "AllowedOptions",
    "DataDir",
    "Flag",
    "Pairs",
    "Paths",
    "base_images_of",
    "tell",
]

DEFAULT_DATA_DIR = Path("data")
DataDir: TypeAlias = Annotated[Path, Parameter(name="--data-dir")]
"""Where benchmarks are."""
Flag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
Pairs: TypeAlias = Annotated[list[str] | None, Parameter(negative="", show_default=False)]
Paths: TypeAlias = Annotated[list[Path] | None, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AllowedOptions:
    """What of this machine the user lets tasks read, beside their own folders."""

    allow_repo: Pairs = None
    """A path outside of a task's folder that its git_url may name. May be repeated."""
    allow_variable: Pairs = None
    """A variable that ${NAME} in a task of Harbor may stand for. May be repeated."""

    @property
    def allowed(self) -> "Allowed":
        """The same for the functions of `assay.api`."""
        from assay.bench.seams import Allowed

        return Allowed(tuple(self.allow_repo or ()), tuple(self.allow_variable or ()))


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

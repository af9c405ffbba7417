"""A report as a file; its ending says which kind."""

from collections.abc import Callable, Mapping
from pathlib import Path

from assay._util.files import atomic_write
from assay.errors import UsageError
from assay.report.data import as_csv, as_json
from assay.report.document import Document
from assay.report.html import as_html
from assay.report.markdown import as_markdown

__all__ = ["ENDINGS", "check_endings", "write_document"]

_FORMATS: Mapping[str, Callable[[Document], str]] = {
    ".html": as_html,
    ".md": as_markdown,
    ".json": as_json,
    ".csv": as_csv,
}
ENDINGS = tuple(_FORMATS)
"""What the name of a report may end with."""


def check_endings(paths: tuple[Path, ...]) -> None:
    """Refuse a file whose ending says nothing.

    Raises:
        UsageError: An ending is not known, or a file is named twice.
    """
    for path in paths:
        if path.suffix.lower() not in ENDINGS:
            raise UsageError(
                f"the ending of {str(path)!r} does not say what to write; choose from:"
                f" {', '.join(ENDINGS)}"
            )
        if paths.count(path) > 1:
            raise UsageError(f"{str(path)!r} is named twice; name each file once")


def write_document(document: Document, *paths: Path) -> None:
    """Write a report to files, each there whole or not at all.

    Raises:
        UsageError: An ending is not known, or a file is named twice.
        OutputError: A file cannot be written.
    """
    check_endings(paths)
    # All are made before one is written: what cannot be drawn leaves no half of the files.
    texts = [(path, _FORMATS[path.suffix.lower()](document)) for path in paths]
    for path, text in texts:
        # Half a surrogate pair has no UTF-8.
        atomic_write(path, text.encode("utf-8", "replace"))

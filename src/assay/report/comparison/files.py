"""A comparison as a file; its ending says which kind."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from assay._util.files import atomic_write
from assay.errors import UsageError
from assay.judge.facts import Comparison
from assay.report.comparison.markdown import as_markdown
from assay.report.comparison.sections import as_document
from assay.report.comparison.tabular import as_csv
from assay.report.comparison.values import as_values

__all__ = ["ENDINGS", "check_endings", "write_comparison", "write_files"]

ENDINGS = (".html", ".md", ".json", ".csv")
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


def write_comparison(comparison: Comparison, *paths: Path) -> None:
    """Write a comparison to files, each there whole or not at all.

    Raises:
        UsageError: An ending is not known.
        OutputError: A file cannot be written.
    """
    write_files(
        {
            ".html": lambda: _html(comparison),
            ".md": lambda: as_markdown(as_document(comparison)),
            ".json": lambda: json.dumps(as_values(comparison), indent=1, allow_nan=False),
            ".csv": lambda: as_csv(comparison),
        },
        paths,
    )


def write_files(made: Mapping[str, Callable[[], str]], paths: tuple[Path, ...]) -> None:
    """Write what the ending of each path stands for; see `write_comparison`."""
    check_endings(paths)
    # All are made before one is written: what cannot be drawn leaves no half of the files.
    texts = [(path, made[path.suffix.lower()]()) for path in paths]
    for path, text in texts:
        # Half a surrogate pair has no UTF-8.
        atomic_write(path, text.encode("utf-8", "replace"))


def _html(comparison: Comparison) -> str:
    # Drawing takes a second to import, and only pages need it.
    from assay.report.comparison.figures import drawings
    from assay.report.comparison.html import as_html

    return as_html(as_document(comparison), drawings(comparison))

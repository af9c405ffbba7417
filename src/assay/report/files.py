"""A report as a file; its ending says which kind. A picture is its first figure."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from assay._util.files import atomic_file
from assay.errors import UsageError
from assay.report.data import as_csv, as_json
from assay.report.document import Document, Figures
from assay.report.html import as_html
from assay.report.markdown import as_markdown

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

__all__ = ["ENDINGS", "PICTURES", "check_endings", "write_document"]

_FORMATS: Mapping[str, Callable[[Document], str | Iterator[str]]] = {
    ".html": as_html,
    ".md": as_markdown,
    ".json": as_json,
    ".csv": as_csv,
}
ENDINGS = tuple(_FORMATS)
"""What the name of a report may end with."""
PICTURES = (".png", ".svg")
"""What the name of a picture may end with."""


def check_endings(paths: tuple[Path, ...], *, pictures: bool = False) -> None:
    """Refuse a file whose ending says nothing; `pictures` are taken only where they are said.

    Raises:
        UsageError: An ending is not known, or a file is named twice.
    """
    endings = (*PICTURES, *ENDINGS) if pictures else ENDINGS
    for path in paths:
        if path.suffix.lower() not in endings:
            raise UsageError(
                f"the ending of {str(path)!r} does not say what to write; choose from:"
                f" {', '.join(endings)}"
            )
        if paths.count(path) > 1:
            raise UsageError(f"{str(path)!r} is named twice; name each file once")


def write_document(document: Document, *paths: Path) -> None:
    """Write a report to files, each there whole or not at all.

    Raises:
        UsageError: An ending is not known, a file is named twice, or there is no figure.
        OutputError: A file cannot be written.
    """
    check_endings(paths, pictures=True)
    # All are made before one takes its name: what cannot be drawn leaves no half of the files.
    with ExitStack() as files:
        for path in paths:
            stream = files.enter_context(atomic_file(path))
            stream.writelines(_content(document, path.suffix.lower()))


def _content(document: Document, ending: str) -> Iterator[bytes]:
    if ending in PICTURES:
        drawing = _first_drawing(document)
        yield drawing.png() if ending == ".png" else drawing.svg_file().encode()
        return
    made = _FORMATS[ending](document)
    for part in [made] if isinstance(made, str) else made:
        # Half a surrogate pair has no UTF-8.
        yield part.encode("utf-8", "replace")


def _first_drawing(document: Document) -> "Drawing":
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, Figures):
                for drawing in block.draw():
                    return drawing
    raise UsageError(
        f"there is no figure to draw of {document.title!r}; write a report instead, such as"
        " report.html"
    )

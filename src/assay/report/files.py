"""Reports as files; the extension determines the format. An image is the first figure.

Markdown shows names literally, without markup. JSON contains no NaN, and CSV no formulas.
"""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.files import atomic_file
from assay.core.text import escape_markdown
from assay.errors import UsageError
from assay.report.document import (
    Answers,
    Block,
    Document,
    Figures,
    Items,
    Paragraph,
    ReportTable,
    join_cell,
)
from assay.report.html import render_html

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def render_json(document: Document) -> Iterator[str]:
    """Yield a report as JSON in pieces: one text would take five times the memory."""
    return json.JSONEncoder(indent=1, allow_nan=False).iterencode(document.values())


def render_csv(document: Document) -> str:
    """Return the rows of a report as CSV, each with its provenance."""
    rows = document.rows()
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if rows:
        writer.writerow(rows[0])
    writer.writerows([format_csv_cell(value) for value in row.values()] for row in rows)
    return stream.getvalue()


def format_csv_cell(value: Any) -> str:
    """Format a value as a cell that is never read as a formula; unknown values are empty."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = str(value)
    # A leading quote makes it text in every spreadsheet.
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def interval_columns(
    name: str, interval: tuple[float | None, float | None, float | None] | None
) -> dict[str, float | None]:
    """Return a number and its bounds as three columns."""
    point, low, high = interval or (None, None, None)
    return {name: point, f"{name}_low": low, f"{name}_high": high}


def to_json_value(value: Any) -> Any:
    """Convert a value for JSON: fields by name, non-finite numbers as null."""
    if value is None or type(value) in (str, int, bool):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): to_json_value(inner) for name, inner in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json_value(getattr(value, field.name)) for field in fields(value)
        }
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_json_value(value._asdict())
    if isinstance(value, list | tuple):
        return [to_json_value(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | bool) else str(value)


_LIST_MARKER = re.compile(r"^(?:[-+=]|\d+(?=[.)]))")


def render_markdown(document: Document) -> str:
    """Return the whole report in Markdown, with GitHub-style tables."""
    parts = [f"# {escape_markdown(document.title)}"]
    if document.summary:
        parts.append(_format_list(document.summary))
    for section in document.sections:
        parts.append(f"## {escape_markdown(section.title)}")
        parts += [text for block in section.blocks for text in _format_block(block)]
    if document.origin:
        parts.append("## Provenance")
        parts.append(
            "\n".join(
                f"- {escape_markdown(name)}: {escape_markdown(text)}"
                for name, text in document.origin
            )
        )
    return "\n\n".join(parts) + "\n"


def _format_paragraph(text: str) -> str:
    # A start that would make it a list item, or underline the previous line, is escaped.
    return _LIST_MARKER.sub(
        lambda match: f"&#{ord(match[0][0])};{match[0][1:]}", escape_markdown(text)
    )


def _format_list(texts: Sequence[str]) -> str:
    return "\n".join(f"- {_format_paragraph(text)}" for text in texts)


def _format_block(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text):
            yield _format_paragraph(text)
        case Items(items, title):
            if title:
                yield f"**{escape_markdown(title)}**"
            yield _format_list(items)
        case Answers(items):
            yield "\n".join(
                f"{number}. **{escape_markdown(question)}** {escape_markdown(answer)}"
                for number, (question, answer) in enumerate(items, 1)
            )
        case ReportTable():
            if block.caption:
                yield f"**{escape_markdown(block.caption)}**"
            yield "\n".join(_format_table(block))
            if block.note:
                yield _format_paragraph(block.note)
        case Figures():
            pass


def _format_table(table: ReportTable) -> Iterator[str]:
    yield _format_table_row(map(escape_markdown, table.heads))
    yield _format_table_row(["---", *["---:"] * (len(table.heads) - 1)])
    for row in table.rows:
        yield _format_table_row(escape_markdown(join_cell(cell)) for cell in row)


def _format_table_row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"


_RENDERERS: Mapping[str, Callable[[Document], str | Iterator[str]]] = {
    ".html": render_html,
    ".md": render_markdown,
    ".json": render_json,
    ".csv": render_csv,
}
REPORT_EXTENSIONS = tuple(_RENDERERS)
"""File name extensions of reports."""
IMAGE_EXTENSIONS = (".png", ".svg")
"""File name extensions of images."""


def check_file_extensions(paths: tuple[Path, ...], *, images: bool = False) -> None:
    """Check the extensions of report files; images are accepted only with `images`.

    Raises:
        UsageError: An extension is unknown, or a file is named twice.
    """
    extensions = (*IMAGE_EXTENSIONS, *REPORT_EXTENSIONS) if images else REPORT_EXTENSIONS
    for path in paths:
        if path.suffix.lower() not in extensions:
            raise UsageError(
                f"unknown file extension in {str(path)!r}; choose from: {', '.join(extensions)}"
            )
        if paths.count(path) > 1:
            raise UsageError(f"{str(path)!r} is given twice; give each file once")


def write_document(document: Document, *paths: Path) -> None:
    """Write a report to files, each completely or not at all.

    Raises:
        UsageError: An extension is unknown, a file is named twice, or no figure exists.
        OutputError: A file cannot be written.
    """
    check_file_extensions(paths, images=True)
    # All contents are produced before any file is renamed: a failed figure leaves no partial
    # set.
    with ExitStack() as files:
        for path in paths:
            stream = files.enter_context(atomic_file(path))
            stream.writelines(_render_bytes(document, path.suffix.lower()))


def _render_bytes(document: Document, extension: str) -> Iterator[bytes]:
    if extension in IMAGE_EXTENSIONS:
        drawing = _find_first_drawing(document)
        yield drawing.png() if extension == ".png" else drawing.svg_file().encode()
        return
    content = _RENDERERS[extension](document)
    for part in [content] if isinstance(content, str) else content:
        # A lone surrogate cannot be encoded as UTF-8.
        yield part.encode("utf-8", "replace")


def _find_first_drawing(document: Document) -> "Drawing":
    for section in document.sections:
        for block in section.blocks:
            if isinstance(block, Figures):
                for drawing in block.draw():
                    return drawing
    raise UsageError(
        f"{document.title!r} has no figure; write a report instead, for example to report.html"
    )

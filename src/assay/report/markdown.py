"""A report as Markdown. Whatever a name holds is shown as it is and means nothing."""

import re
from collections.abc import Iterable, Iterator, Sequence

from assay._util.text import escaped_markdown
from assay.report.document import (
    Answers,
    Block,
    Document,
    Figures,
    Items,
    ReportTable,
    Words,
    joined,
)

__all__ = ["as_markdown"]

_LIST = re.compile(r"^(?:[-+=]|\d+(?=[.)]))")


def as_markdown(document: Document) -> str:
    """The whole report, tables as GitHub and most other programs read them."""
    parts = [f"# {escaped_markdown(document.title)}"]
    if document.summary:
        parts.append(_list(document.summary))
    for section in document.sections:
        parts.append(f"## {escaped_markdown(section.title)}")
        parts += [text for block in section.blocks for text in _block(block)]
    if document.origin:
        parts.append("## What made this report")
        parts.append(
            "\n".join(
                f"- {escaped_markdown(name)}: {escaped_markdown(text)}"
                for name, text in document.origin
            )
        )
    return "\n\n".join(parts) + "\n"


def _paragraph(text: str) -> str:
    # What would begin a list, or underline the line before it, is written as an entity.
    return _LIST.sub(
        lambda match: f"&#{ord(match[0][0])};{match[0][1:]}", escaped_markdown(text)
    )


def _list(texts: Sequence[str]) -> str:
    return "\n".join(f"- {_paragraph(text)}" for text in texts)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Words(text):
            yield _paragraph(text)
        case Items(items, title):
            if title:
                yield f"**{escaped_markdown(title)}**"
            yield _list(items)
        case Answers(items):
            yield "\n".join(
                f"{number}. **{escaped_markdown(question)}** {escaped_markdown(answer)}"
                for number, (question, answer) in enumerate(items, 1)
            )
        case ReportTable():
            if block.caption:
                yield f"**{escaped_markdown(block.caption)}**"
            yield "\n".join(_table(block))
            if block.note:
                yield _paragraph(block.note)
        case Figures():
            pass


def _table(table: ReportTable) -> Iterator[str]:
    yield _line(map(escaped_markdown, table.heads))
    yield _line(["---", *["---:"] * (len(table.heads) - 1)])
    for row in table.rows:
        yield _line(escaped_markdown(joined(cell)) for cell in row)


def _line(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"

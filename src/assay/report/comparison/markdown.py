"""A report as Markdown. Whatever a name holds is shown as it is and means nothing."""

import re
from collections.abc import Iterator, Sequence

from assay._util.text import printable
from assay.report.cells import Cell
from assay.report.comparison.document import Answers, Block, Document, Sheet, Words

__all__ = ["as_markdown", "escaped"]

_MEANING = re.compile(r"([\\`*_\[\]#|~$])")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"})
_LIST = re.compile(r"^(?:[-+=]|\d+(?=[.)]))")


def as_markdown(document: Document) -> str:
    """The whole report, tables as GitHub and most other programs read them."""
    parts = [f"# {escaped(document.title)}"]
    if document.summary:
        parts.append("\n".join(f"- {_paragraph(line)}" for line in document.summary))
    for section in document.sections:
        parts.append(f"## {escaped(section.title)}")
        parts += [text for block in section.blocks for text in _block(block)]
    parts.append("## What made this report")
    parts.append(
        "\n".join(f"- {escaped(fact.name)}: {escaped(fact.value)}" for fact in document.made)
    )
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Text in one line in which nothing is read as Markdown, HTML, a formula or a mention."""
    return _MEANING.sub(r"\\\1", printable(text)).translate(_ENTITIES)


def _paragraph(text: str) -> str:
    # What would begin a list, or underline the line before it, is written as an entity.
    return _LIST.sub(lambda found: f"&#{ord(found[0][0])};{found[0][1:]}", escaped(text))


def _block(block: Block) -> Iterator[str]:
    match block:
        case Words(text):
            yield _paragraph(text)
        case Answers(items):
            yield "\n".join(
                f"{at}. **{escaped(question)}** {escaped(answer)}"
                for at, (question, answer) in enumerate(items, 1)
            )
        case Sheet():
            yield f"**{escaped(block.caption)}**"
            yield "\n".join(_table(block))
            if block.note:
                yield _paragraph(block.note)


def _table(sheet: Sheet) -> Iterator[str]:
    yield _line(sheet.heads)
    yield _line(["---", *["---:"] * (len(sheet.heads) - 1)], raw=True)
    for name, values in sheet.rows:
        yield _line([name, *map(_cell, values)])


def _line(texts: Sequence[str], *, raw: bool = False) -> str:
    return f"| {' | '.join(text if raw else escaped(text) for text in texts)} |"


def _cell(cell: Cell) -> str:
    return " ".join(filter(None, cell))

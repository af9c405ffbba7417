"""A report as one HTML file: the document, with the figures of each section below its words."""

from collections.abc import Iterator, Mapping, Sequence

from assay.report import page
from assay.report.comparison.document import Answers, Block, Document, Sheet, Words
from assay.report.figures.drawing import DataTable, Drawing

__all__ = ["as_html"]


def as_html(document: Document, drawings: Mapping[str, Sequence[Drawing]]) -> str:
    """The whole page; the page escapes every text."""
    return page.Page(
        document.title,
        [page.Callout(line) for line in document.summary],
        [
            page.Section(
                section.title,
                [
                    *(part for block in section.blocks for part in _block(block)),
                    *drawings.get(section.key, ()),
                ],
            )
            for section in document.sections
        ],
        page.Facts([(fact.name, fact.value) for fact in document.made]),
    ).render()


def _block(block: Block) -> Iterator[page.Block]:
    match block:
        case Words(text):
            yield page.Paragraph(text)
        case Answers(items):
            first, *rest = items
            yield page.Section(
                first.question,
                [
                    page.Paragraph(page.Strong(first.answer)),
                    *(
                        page.Paragraph(page.Strong(one.question), " ", one.answer)
                        for one in rest
                    ),
                ],
            )
        case Sheet():
            yield DataTable(
                block.caption,
                list(block.heads),
                [
                    [name, *(" ".join(filter(None, cell)) for cell in cells)]
                    for name, cells in block.rows
                ],
            )
            if block.note:
                yield page.Paragraph(block.note)

"""A page of HTML that stands alone: no script, no request, one file.

Blocks hold plain text, and everything they hold is escaped when the page is made: there is no
way to put markup into it. The only exception is the SVG of a `Drawing`, which is ours.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, TypeAlias

from assay.report.figures.drawing import DataTable, Drawing

__all__ = [
    "Block",
    "Bullets",
    "Callout",
    "Code",
    "Facts",
    "Inline",
    "Page",
    "Paragraph",
    "Preformatted",
    "Section",
    "Strong",
    "shown",
]

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_NUMERIC: Final = re.compile(r"\s*(?:[-+±<>≤≥~≈$(\[]\s*)*\d.*|-|∞|-∞|", re.DOTALL)
_STYLE: Final = """
:root{color-scheme:light}
*{box-sizing:border-box}
body{margin:0 auto;max-width:68rem;padding:1rem;background:#fff;color:#1c1c1c;
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.7rem;line-height:1.2;margin:.5rem 0 1rem}
h2{font-size:1.3rem;line-height:1.25;margin:2.2rem 0 .6rem;padding-top:.6rem;
border-top:1px solid #d0d0d0}
h3{font-size:1.08rem;margin:1.5rem 0 .4rem}
p,ul,dl,pre{margin:.6rem 0}
p,ul,dl{max-width:46rem}
.lead{font-size:1.08rem}
.callout{margin:.8rem 0;padding:.6rem .9rem;border-left:.3rem solid #0072b2;background:#f2f6fa}
code,pre{font-family:ui-monospace,"Cascadia Mono",Menlo,monospace;font-size:.9em}
pre{padding:.6rem;background:#f5f5f5;overflow-x:auto;overflow-wrap:normal}
.scroll{overflow-x:auto;margin:.6rem 0}
.scroll:focus-visible,summary:focus-visible,a:focus-visible{outline:3px solid #0072b2}
table{border-collapse:collapse;font-size:.92rem;overflow-wrap:normal}
caption{text-align:left;font-weight:600;padding:.2rem 0}
th,td{padding:.25rem .7rem .25rem 0;text-align:left;vertical-align:top;
border-bottom:1px solid #e2e2e2}
th[scope=row]{font-weight:500;max-width:18rem;overflow-wrap:break-word}
.long th[scope=row]{min-width:min(14rem,45vw);overflow-wrap:anywhere}
thead th{border-bottom:2px solid #767676;vertical-align:bottom}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
thead .n{white-space:normal}
figure{margin:1.2rem 0}
figure svg{display:block;width:100%;max-width:44rem;height:auto}
figcaption{font-size:.92rem;color:#3c3c3c}
figcaption strong{display:block;color:#1c1c1c;font-size:1rem}
details{margin:.4rem 0;font-size:.95rem}
summary{cursor:pointer;color:#005a8f}
dl{display:grid;grid-template-columns:minmax(6rem,max-content) minmax(0,1fr);gap:.15rem 1rem}
dt{color:#555}
dd{margin:0}
footer h2{margin-top:1rem;border:0}
footer{margin-top:3rem;border-top:1px solid #d0d0d0;font-size:.88rem;color:#3c3c3c}
@media (max-width:30rem){dl{grid-template-columns:minmax(0,1fr)}dd{margin-bottom:.3rem}}
@media print{body{max-width:none;padding:0;font-size:10pt}.scroll,pre{overflow:visible}
pre{white-space:pre-wrap}table{font-size:8.5pt}.n{white-space:normal}
figure,tr,.callout{break-inside:avoid}h2,h3,caption{break-after:avoid}
details:not([open]){display:none}summary{color:inherit}}
"""


@dataclass(frozen=True, slots=True)
class Strong:
    """Words that matter."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """A command, a name or a key, as it is typed."""

    text: str


Inline: TypeAlias = str | Strong | Code
"""A part of a paragraph."""


@dataclass(frozen=True, slots=True, init=False)
class Paragraph:
    """Some sentences: `Paragraph("B is ", Strong("better"), ".")`."""

    parts: tuple[Inline, ...]

    def __init__(self, *parts: Inline) -> None:
        object.__setattr__(self, "parts", parts)


@dataclass(frozen=True, slots=True, init=False)
class Callout:
    """A paragraph that is not to be missed, such as a verdict or a warning."""

    parts: tuple[Inline, ...]

    def __init__(self, *parts: Inline) -> None:
        object.__setattr__(self, "parts", parts)


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list, an item per paragraph."""

    items: Sequence[Inline | Paragraph]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they stand for, as in where the numbers come from."""

    pairs: Sequence[tuple[str, Inline]]


@dataclass(frozen=True, slots=True)
class Preformatted:
    """Text whose lines and spaces stay as they are."""

    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it; a section within it has a smaller heading."""

    title: str
    blocks: "Sequence[Block]"


Block: TypeAlias = (
    Paragraph | Callout | Bullets | Facts | Preformatted | DataTable | Drawing | Section
)
"""Whatever a page is made of; a `Drawing` brings its table with it, folded."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page with one heading, a summary, sections, and where its numbers come from."""

    title: str
    summary: Sequence[Block]
    sections: Sequence[Section]
    provenance: Facts | None = None
    """At the foot: version, commit, configuration, seed, sources."""

    def render(self) -> str:
        """The whole file; the same page gives the same text."""
        return "".join(self._parts())

    def _parts(self) -> Iterator[str]:
        yield (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{shown(self.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
            f"<main>\n<h1>{shown(self.title)}</h1>\n"
        )
        for block in self.summary:
            yield _block(block, 2)
        for section in self.sections:
            yield _block(section, 2)
        yield "</main>\n"
        if self.provenance is not None:
            yield f"<footer>\n<h2>Provenance</h2>\n{_block(self.provenance, 3)}</footer>\n"
        yield "</body>\n</html>\n"


def shown(text: str) -> str:
    """A text as HTML that shows it: nothing in it is markup, nothing turns the writing.

    Control characters and marks that change the direction become visible escapes, as in
    `assay._util.text.printable`; line ends and tabs stay.
    """
    return escape(
        "".join(
            char
            if char.isprintable() or char in "\n\t"
            else char.encode("unicode_escape").decode("ascii")
            for char in text
        )
    )


def _block(block: Block, level: int) -> str:
    match block:
        case Paragraph(parts):
            return f"<p>{_inline(*parts)}</p>\n"
        case Callout(parts):
            return f'<p class="callout">{_inline(*parts)}</p>\n'
        case Bullets(items):
            return f"<ul>\n{''.join(map(_item, items))}</ul>\n"
        case Facts(pairs):
            lines = (
                f"<dt>{shown(name)}</dt><dd>{_inline(text)}</dd>\n" for name, text in pairs
            )
            return f"<dl>\n{''.join(lines)}</dl>\n"
        case Preformatted(text):
            # It may be wider than the page, and then the keyboard has to reach it.
            return f'<pre tabindex="0">{shown(text)}</pre>\n'
        case DataTable():
            return _table(block)
        case Drawing():
            return _drawing(block)
        case Section(title, blocks):
            head = f"h{min(level, 6)}"
            inside = "".join(_block(one, level + 1) for one in blocks)
            return f"<section>\n<{head}>{shown(title)}</{head}>\n{inside}</section>\n"


def _inline(*parts: Inline) -> str:
    return "".join(map(_part, parts))


def _part(part: Inline) -> str:
    match part:
        case Strong(text):
            return f"<strong>{shown(text)}</strong>"
        case Code(text):
            return f"<code>{shown(text)}</code>"
        case str():
            return shown(part)


def _item(item: Inline | Paragraph) -> str:
    parts = item.parts if isinstance(item, Paragraph) else (item,)
    return f"<li>{_inline(*parts)}</li>\n"


def _table(table: DataTable) -> str:
    # The first column names the rows, whatever it looks like.
    numeric = [
        place > 0
        and all(_NUMERIC.fullmatch(row[place]) for row in table.rows if place < len(row))
        for place in range(len(table.head))
    ]
    kinds = [' class="n"' if right else "" for right in numeric]
    heads = "".join(
        f'<th scope="col"{kind}>{shown(name)}</th>'
        for name, kind in zip(table.head, kinds, strict=True)
    )
    rows = "".join(_row(row, kinds) for row in table.rows)
    # Names may break anywhere, and would be squeezed to a letter beside many numbers.
    size = ' class="long"' if any(len(row[0]) > 24 for row in table.rows if row) else ""
    return (
        f'<div class="scroll" role="region" aria-label="{shown(table.caption)}" tabindex="0">'
        f"<table{size}><caption>{shown(table.caption)}</caption>\n<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{rows}</tbody></table></div>\n"
    )


def _row(row: Sequence[str], kinds: Sequence[str]) -> str:
    cells = [f'<th scope="row">{shown(row[0])}</th>'] if row else []
    cells += [
        f"<td{kind}>{shown(cell)}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=False)
    ]
    return f"<tr>{''.join(cells)}</tr>\n"


def _drawing(drawing: Drawing) -> str:
    data = ""
    if drawing.table is not None:
        table = _table(drawing.table)
        data = f"<details><summary>Data of this figure</summary>\n{table}</details>\n"
    return (
        f"<figure>\n{drawing.svg}\n<figcaption><strong>{shown(drawing.title)}</strong>"
        f" {shown(drawing.note)}</figcaption>\n{data}</figure>\n"
    )

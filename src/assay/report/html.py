"""A report as a standalone HTML page: one file without scripts or requests.

Everything in a document is escaped when the page is made, so it cannot contain markup. The only
exception is the SVG of a `Drawing`, which is our own.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from assay.core.text import visible
from assay.report.document import (
    Answers,
    Block,
    Document,
    Figures,
    Items,
    Paragraph,
    ReportTable,
    Tone,
    join_cell,
)

if TYPE_CHECKING:
    from assay.report.figures.drawing import Drawing

_SECURITY_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_NUMERIC_CELL: Final = re.compile(r"\s*(?:[-+±<>≤≥~≈$(\[]\s*)*\d.*|-|∞|-∞|", re.DOTALL)
_VERDICTS: Final = ("better", "worse", "undecided")
_VERDICT_WORD: Final = re.compile(rf": ({'|'.join(_VERDICTS)})\b")
_HIGHLIGHTED_TONES: Final = (Tone.CALLOUT, Tone.WARNING)
_STYLE: Final = """
:root{color-scheme:light dark;--page:#fff;--ink:#1c1c1c;--soft:#3c3c3c;--line:#d0d0d0;
--link:#005a8f;--mark:#0072b2;--box:#f2f6fa;--good:#00664a;--bad:#a33e00;--open:#555}
@media (prefers-color-scheme:dark){:root{--page:#16181c;--ink:#e8e8e8;--soft:#c4c4c4;
--line:#44484f;--link:#7cc4f5;--mark:#56b4e9;--box:#21262d;--good:#4fd1a5;--bad:#ff9d5c;--open:#b0b0b0}
figure svg{background:#fff;border-radius:.3rem;padding:.3rem}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:68rem;padding:1rem;background:var(--page);color:var(--ink);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;overflow-wrap:anywhere}
h1{font-size:1.7rem;line-height:1.2;margin:.5rem 0 1rem}
h2{font-size:1.3rem;line-height:1.25;margin:2.2rem 0 .6rem;padding-top:.6rem;
border-top:1px solid var(--line)}
h3{font-size:1.08rem;margin:1.5rem 0 .4rem}
p,ul,dl,pre{margin:.6rem 0}
p,ul,dl{max-width:46rem}
.lead{font-size:1.08rem}
.callout{margin:.8rem 0;padding:.6rem .9rem;border-left:.3rem solid var(--mark);
background:var(--box)}
code,pre{font-family:ui-monospace,"Cascadia Mono",Menlo,monospace;font-size:.9em}
pre{padding:.6rem;background:var(--box);overflow-x:auto;overflow-wrap:normal}
.scroll{overflow-x:auto;margin:.6rem 0}
.scroll:focus-visible,summary:focus-visible,a:focus-visible{outline:3px solid var(--mark)}
table{border-collapse:collapse;font-size:.92rem;overflow-wrap:normal}
caption{text-align:left;font-weight:600;padding:.2rem 0}
th,td{padding:.25rem .7rem .25rem 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--line)}
th[scope=row]{font-weight:500;max-width:18rem;overflow-wrap:break-word}
.long th[scope=row]{min-width:min(14rem,45vw);overflow-wrap:anywhere}
thead th{border-bottom:2px solid #767676;vertical-align:bottom}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
thead .n{white-space:normal}
figure{margin:1.2rem 0}
figure svg{display:block;width:100%;max-width:44rem;height:auto}
figcaption{font-size:.92rem;color:var(--soft)}
figcaption strong{display:block;color:var(--ink);font-size:1rem}
details{margin:.4rem 0;font-size:.95rem}
summary{cursor:pointer;color:var(--link)}
a{color:var(--link)}
nav ul{columns:14rem;padding-left:1.2rem}
.better{color:var(--good);font-weight:600}
.worse{color:var(--bad);font-weight:600}.undecided{color:var(--open)}
.callout.better{border-color:var(--good)}.callout.worse{border-color:var(--bad)}
.callout.better,.callout.worse{color:inherit;font-weight:400}
tr:target{scroll-margin-top:3rem;background:var(--box);outline:2px solid var(--mark)}
summary h2{display:inline;border:0;font-size:1.15rem}
dl{display:grid;grid-template-columns:minmax(6rem,max-content) minmax(0,1fr);gap:.15rem 1rem}
dt{color:var(--soft)}
dd{margin:0}
footer h2{margin-top:1rem;border:0}
footer{margin-top:3rem;border-top:1px solid var(--line);font-size:.88rem;color:var(--soft)}
@media (max-width:30rem){dl{grid-template-columns:minmax(0,1fr)}dd{margin-bottom:.3rem}
.stack,.stack tbody,.stack tr,.stack td,.stack th,.stack caption{display:block}
.stack thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.stack tr{border-bottom:1px solid var(--line);padding:.3rem 0}
.stack td,.stack tbody th{border:0;padding:.05rem 0;text-align:left;white-space:normal;
max-width:none;min-width:0;overflow-wrap:anywhere}
.stack td{display:grid;grid-template-columns:8rem minmax(0,1fr);gap:.6rem}
.stack td::before{content:attr(data-head);color:var(--soft)}}
@media print{:root{color-scheme:light;
--page:#fff;--ink:#000;--soft:#333;--line:#bbb;--box:#fff}nav{display:none}
body{max-width:none;padding:0;font-size:10pt}.scroll,pre{overflow:visible}
pre{white-space:pre-wrap}table{font-size:8.5pt}.n{white-space:normal}
figure,tr,.callout{break-inside:avoid}h2,h3,caption{break-after:avoid}
details:not([open]){display:none}summary{color:inherit}}
"""


def render_html(document: Document) -> str:
    """Return the whole file; equal documents give equal text."""
    return "".join(_render_parts(document))


def _render_parts(document: Document) -> Iterator[str]:
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_SECURITY_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape_html(document.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<main>\n<h1>{escape_html(document.title)}</h1>\n"
    )
    for line in document.summary:
        match = _VERDICT_WORD.search(line)
        kind = f" {match[1]}" if match else ""
        yield f'<p class="callout{kind}">{escape_html(line)}</p>\n'
    titles = [section.title for section in document.sections]
    for section in document.sections:
        head = f'<h2 id="{_make_anchor(section.title)}">{escape_html(section.title)}</h2>'
        opened, closed = ("<details><summary>", "</summary>") if section.folded else ("", "")
        yield f"<section>\n{opened}{head}{closed}\n"
        for block in section.blocks:
            yield from _render_block(block, section.title)
        yield "</details></section>\n" if section.folded else "</section>\n"
        if section.title == titles[0] and len(titles) > 2:
            links = "".join(
                f'<li><a href="#{_make_anchor(name)}">{escape_html(name)}</a></li>\n'
                for name in titles[1:]
            )
            yield f'<nav aria-label="Contents">\n<ul>\n{links}</ul>\n</nav>\n'
    yield "</main>\n"
    if document.origin:
        yield "<footer>\n<h2>Provenance</h2>\n<dl>\n"
        for name, text in document.origin:
            yield f"<dt>{escape_html(name)}</dt><dd>{escape_html(text)}</dd>\n"
        yield "</dl>\n</footer>\n"
    yield "</body>\n</html>\n"


def _make_anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def escape_html(text: str) -> str:
    """Escape text for HTML so that it is displayed literally.

    Control characters and bidirectional marks become visible escapes, as in
    `assay.core.text.printable`; line ends and tabs are kept.
    """
    return escape(visible(text))


def _render_block(block: Block, section: str) -> Iterator[str]:
    match block:
        case Paragraph(text, tone):
            yield _render_paragraph(text, tone)
        case Items(items, title, tone):
            yield f"<p><strong>{escape_html(title)}</strong></p>\n" if title else ""
            lines = "".join(f"<li>{escape_html(item)}</li>\n" for item in items)
            yield f"<ul{_format_class(tone)}>\n{lines}</ul>\n"
        case Answers([first, *others]):
            yield f"<section>\n<h3>{escape_html(first.question)}</h3>\n"
            yield f"<p><strong>{escape_html(first.answer)}</strong></p>\n"
            for question, answer in others:
                yield f"<p><strong>{escape_html(question)}</strong> {escape_html(answer)}</p>\n"
            yield "</section>\n"
        case ReportTable():
            yield _render_table(block, section, stacks=True)
            if block.note:
                yield _render_paragraph(block.note)
        case Figures(draw):
            yield from map(_render_drawing, draw())


def _render_paragraph(text: str, tone: Tone = Tone.PLAIN) -> str:
    return f"<p{_format_class(tone)}>{escape_html(text)}</p>\n"


def _format_class(tone: Tone) -> str:
    return ' class="callout"' if tone in _HIGHLIGHTED_TONES else ""


def _render_table(table: ReportTable, section: str = "", *, stacks: bool = False) -> str:
    """Return a table that scrolls if it is too wide; with `stacks`, it is a list on a phone."""
    rows = [list(map(join_cell, row)) for row in table.rows]
    # The first column has the names of the rows, even if they look like numbers.
    classes = [
        ' class="n"'
        if index
        and all(_NUMERIC_CELL.fullmatch(row[index]) for row in rows if index < len(row))
        else ""
        for index in range(len(table.heads))
    ]
    heads = "".join(
        f'<th scope="col"{css_class}>{escape_html(name)}</th>'
        for name, css_class in zip(table.heads, classes, strict=True)
    )
    # Names may break anywhere, and would be squeezed to a letter next to many numbers.
    long = any(len(row[0]) > 24 for row in rows if row)
    names = " ".join(["stack"] * stacks + ["long"] * long)
    size = f' class="{names}"' if names else ""
    verdict = table.heads.index("Verdict") if "Verdict" in table.heads else 0
    lines = "".join(
        _render_row(
            row,
            table.heads,
            classes,
            verdict,
            anchor=table.anchors.get(index, ""),
            link=table.links.get(index, ""),
        )
        for index, row in enumerate(rows)
    )
    label, caption = escape_html(table.caption or section), ""
    if table.caption:
        caption = f"<caption>{label}</caption>\n"
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">'
        f"<table{size}>{caption}<thead><tr>{heads}</tr></thead>\n"
        f"<tbody>\n{lines}</tbody></table></div>\n"
    )


def _render_row(
    row: Sequence[str],
    heads: Sequence[str],
    classes: Sequence[str],
    verdict: int,
    *,
    anchor: str,
    link: str,
) -> str:
    """Return one row; the cell at index `verdict` is coloured by its verdict."""
    cells = []
    for index, (text, head, css_class) in enumerate(zip(row, heads, classes, strict=False)):
        if verdict and index == verdict and text in _VERDICTS:
            css_class = f' class="{text}"'
        content = (
            f"<code>{escape_html(text)}</code>"
            if text.startswith("assay ")
            else escape_html(text)
        )
        if link and not index:
            content = f'<a href="#{escape_html(link)}">{content}</a>'
        data_head = f' data-head="{escape_html(head)}"'
        cells.append(
            f"<td{css_class}{data_head}>{content}</td>"
            if index
            else f'<th scope="row">{content}</th>'
        )
    name = f' id="{escape_html(anchor)}"' if anchor else ""
    return f"<tr{name}>{''.join(cells)}</tr>\n"


def _render_drawing(drawing: "Drawing") -> str:
    data = ""
    if drawing.table is not None:
        table = _render_table(drawing.table)
        data = f"<details><summary>Data of this figure</summary>\n{table}</details>\n"
    return (
        f"<figure>\n{drawing.svg}\n<figcaption><strong>{escape_html(drawing.title)}</strong>"
        f" {escape_html(drawing.note)}</figcaption>\n{data}</figure>\n"
    )

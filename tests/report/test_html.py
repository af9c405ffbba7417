import re
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest

from assay.report.document import (
    Answer,
    Answers,
    Block,
    Cell,
    Document,
    Figures,
    Items,
    Paragraph,
    ReportTable,
    Section,
    Tone,
)
from assay.report.html import escape_html, render_html
from tests.report.gallery import DOLLARS, LONG, PLAIN, drawings

HOSTILE = "</td></p><script>alert(1)</script><img src=x onerror=alert(1)>\"'&amp;\x1b[31m\u202e"
VOID = {"meta"}
FOREST = drawings()["forest"]()


class Reader(HTMLParser):
    """Parser that fails on elements that are not closed correctly."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text.append(data)

    def every(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page(*blocks: Block, title: str = "Title") -> str:
    return render_html(
        Document(title=title, summary=["Short."], sections=[Section("Section", blocks)])
    )


def all_blocks(text: str) -> Sequence[Block]:
    return [
        *(Paragraph(text, tone) for tone in Tone),
        Items([text, text], text),
        Items([text], tone=Tone.WARNING),
        Answers([Answer(text, text), Answer(text, text)]),
        ReportTable(text, (text, text), [(text, Cell(text, text))], text),
    ]


def test_external_text_is_escaped() -> None:
    made = Document(
        title=HOSTILE,
        summary=[HOSTILE],
        sections=[Section(HOSTILE, all_blocks(HOSTILE))],
        origin=[(HOSTILE, HOSTILE)],
    )
    read = Reader(render_html(made))
    assert {"script", "img"}.isdisjoint(tag for tag, _ in read.tags)
    assert not any(name.startswith("on") for _, found in read.tags for name in found)
    visible = HOSTILE.replace("\x1b", r"\x1b").replace("\u202e", r"\u202e")
    assert "".join(read.text).count(visible) == 6 + 4 + 3 + 1 + 4 + 7


def test_equal_documents_give_equal_pages() -> None:
    assert page(*all_blocks("a")) == page(*all_blocks("a"))


def test_page_is_standalone() -> None:
    text = page(Figures(lambda: [FOREST]), *all_blocks("a"))
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in text
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert '<meta charset="utf-8">' in text
    assert 'name="viewport"' in text
    read = Reader(text)
    assert {"script", "link", "img", "iframe"}.isdisjoint(tag for tag, _ in read.tags)
    links = [found[key] for _, found in read.tags for key in ("src", "href") if key in found]
    assert all(link and link.startswith("#") for link in links)
    assert not re.search(r"url\((?!#)|@import", text)


def test_heading_levels_are_nested_below_one_title() -> None:
    answers = Answers([Answer("Is it?", "Yes.")])
    made = Document(
        title="Title",
        sections=[Section("a", [answers]), Section("d", [])],
        origin=[("seed", "0")],
    )
    levels = re.findall(r"<h(\d)", render_html(made))
    assert levels == ["1", "2", "3", "2", "2"]


def test_table_has_a_caption_and_scoped_headers() -> None:
    table = ReportTable("Wide", ("name", "mean", "word"), [("a", "1.5", "x"), ("b", "-", "2")])
    text = page(table)
    read = Reader(text)
    assert [found["scope"] for found in read.every("th")] == ["col"] * 3 + ["row"] * 2
    assert "<caption>Wide</caption>" in text
    region = next(found for found in read.every("div") if found.get("class") == "scroll")
    assert (region["role"], region["aria-label"], region["tabindex"]) == ("region", "Wide", "0")


def test_table_without_a_caption_is_labelled_by_its_section() -> None:
    text = page(ReportTable("", ("name",), [("a",)]))
    assert "<caption>" not in text
    assert 'aria-label="Section"' in text


@pytest.mark.parametrize(
    ("cells", "right"),
    [
        (["1", "-2.5", "+3"], True),
        (["1.2 [0.8, 1.6]", "-", ""], True),
        (["$0.01", "< 0.001", "±3", "∞", "45 %"], True),
        (["1", "better"], False),
        (["v1.0"], False),
        (["-x"], False),
    ],
    ids=str,
)
def test_numeric_columns_are_right_aligned(cells: list[str], right: bool) -> None:
    text = page(ReportTable("t", ("name", "value"), [("a", cell) for cell in cells]))
    assert ('<td class="n" ' in text) is right


def test_rows_of_wrong_length_are_tolerated() -> None:
    Reader(page(ReportTable("t", ("a", "b"), [("1",), ("1", "2", "3"), ()])))


def test_drawing_has_a_label_a_caption_and_a_folded_data_table() -> None:
    text = page(Figures(lambda: [FOREST]))
    read = Reader(text)
    [picture] = read.every("svg")
    assert picture["role"] == "img"
    assert picture["aria-label"] == FOREST.alt
    assert f"<strong>{FOREST.title}</strong>" in text
    words = "".join(read.text)
    assert "Data of this figure" in words
    for name in (PLAIN, DOLLARS):
        assert name in words
    assert LONG not in words


def test_footer_contains_the_provenance() -> None:
    text = render_html(Document(title="Title", sections=[], origin=[("version", "assay 1.0")]))
    assert "<dt>version</dt><dd>assay 1.0</dd>" in text
    assert text.index("</main>") < text.index("<footer>")


def test_line_ends_are_kept_and_bidi_marks_are_made_visible() -> None:
    assert escape_html("a\n\tb<\u2066\x00") == "a\n\tb&lt;\\u2066\\x00"


def test_page_starts_with_verdict_and_contents_and_colours_verdicts() -> None:
    table = ReportTable(
        "T", ["Name", "Verdict"], [["a", "better"], ["b", "worse"], ["c", "odd"]]
    )
    sections = [
        Section("Board", [table]),
        Section("More of it", [], folded=True),
        Section("x", []),
    ]
    found = render_html(Document(title="T", summary=["a: better. By 3."], sections=sections))
    read = Reader(found)
    assert {"class": "callout better"} in read.every("p")
    assert read.every("a") == [{"href": "#more-of-it"}, {"href": "#x"}]
    assert {"id": "more-of-it"} in read.every("h2")
    assert [cell.get("class") for cell in read.every("td")] == ["better", "worse", None]
    assert "prefers-color-scheme:dark" in found

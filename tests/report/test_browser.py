"""A whole page as a browser sees it, opened from disk."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.report.document import (
    Answer,
    Answers,
    Block,
    Document,
    Figures,
    Items,
    Paragraph,
    ReportTable,
    Section,
)
from assay.report.html import render_html
from tests.report.gallery import DOLLARS, LONG, PLAIN, drawings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.extras

HOSTILE = f"{DOLLARS} {LONG} <img src=http://example.com/x onerror=alert(1)> {'w' * 300}"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wide = ReportTable(
        HOSTILE,
        ("name", *(f"column {place}" for place in range(15))),
        [(HOSTILE, *["1.25 [0.9, 1.4]"] * 15), (PLAIN, *["-"] * 15)],
    )
    words: list[Block] = [
        Paragraph(HOSTILE),
        Items([HOSTILE, PLAIN], HOSTILE),
        Answers([Answer(HOSTILE, HOSTILE), Answer(HOSTILE, HOSTILE)]),
        wide,
    ]
    figures = Figures(lambda: [draw() for draw in drawings().values()])
    document = Document(
        title=HOSTILE,
        summary=["B is better.", HOSTILE],
        sections=[Section("Words", words), Section("Figures", [figures])],
        origin=[("version", "assay"), ("sources", HOSTILE), (HOSTILE, HOSTILE)],
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_html(document), "utf-8")
    return path


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("unfolded", [False, True], ids=["folded", "unfolded"])
def test_page_loads_without_requests_or_messages_and_fits_the_screen(
    browser: "Browser", file: Path, width: int, unfolded: bool
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    try:
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        if unfolded:
            for summary in page.locator("summary").all():
                summary.click()
        reach, room = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert reach <= room == width
        # What is wider than the window scrolls within a box that the keyboard can reach.
        beyond = page.evaluate(
            "w => [...document.querySelectorAll('main *, footer *')].filter(e =>"
            " e.getBoundingClientRect().right > w + 1 && !e.closest('[tabindex=\"0\"], svg'))"
            ".map(e => e.tagName)",
            width,
        )
        assert beyond == []
        assert said == []
        assert asked == [file.as_uri()]
    finally:
        page.close()


def test_every_figure_has_a_label_and_keeps_its_text_inside(
    browser: "Browser", file: Path
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    try:
        page.goto(file.as_uri())
        assert page.get_by_role("img").count() == len(drawings())
        assert page.locator("figure").count() == len(drawings())
        names = page.evaluate(
            "[...document.querySelectorAll('figure svg')].map(e => e.ariaLabel)"
        )
        assert all(len(name) > 40 for name in names)
        assert len(set(names)) == len(names)
        # Text may stand a little wider in the fonts of the reader than in ours.
        outside = page.evaluate(
            "[...document.querySelectorAll('figure svg text')].filter(t => {"
            " const a = t.getBoundingClientRect();"
            " const b = t.ownerSVGElement.getBoundingClientRect();"
            " return a.left < b.left - 4 || a.right > b.right + 4"
            " || a.top < b.top - 4 || a.bottom > b.bottom + 4}).map(t => t.textContent)"
        )
        assert outside == []
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))
        assert page.locator("h1").count() == 1
    finally:
        page.close()


def test_page_can_be_printed(browser: "Browser", file: Path, tmp_path: Path) -> None:
    page = browser.new_page()
    try:
        page.goto(file.as_uri())
        page.pdf(path=tmp_path / "report.pdf", format="A4")
        assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF-")
        page.emulate_media(media="print")
        assert page.locator("details >> visible=true").count() == 0
    finally:
        page.close()

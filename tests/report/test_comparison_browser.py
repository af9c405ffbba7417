"""The report of a comparison as a browser sees it, opened from disk."""

import shutil
from pathlib import Path

import pytest

from assay.judge.comparison import compare
from assay.report.comparison.document import comparison_document
from assay.report.files import write_document
from tests.judge.subjects import NASTY, subject

pytestmark = pytest.mark.extras

BASE = [2.0, 3, 1, 4, 2, 3, 5, 2, 3, 4]
LONG = "organisation/a-very-long-name-of-a-model-that-somebody-chose" * 3


@pytest.mark.parametrize("width", [400, 1280])
def test_report_loads_without_requests_or_messages_and_fits_the_screen(
    tmp_path: Path, width: int
) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs chromium on the PATH")
    extra = {"cost_usd": 0.01, "duration_s": 3.0, "reward": 1.0, "invalid_rate": 0.1}
    facts = {"curves": {"reward": {"steps": [0, 10, 20], "values": [0, 1, 2]}}}
    subjects = [
        subject(name, [value + up for value in BASE], extra=extra, facts=facts)
        for name, up in ((NASTY, 0), (LONG, 1), ("$x$", 2))
    ]
    path = tmp_path / "report.html"
    write_document(comparison_document(compare(subjects)), path)
    said: list[str] = []
    asked: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program)
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        wide, room = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        unnamed = page.evaluate(
            "[...document.querySelectorAll('svg')].filter(one =>"
            " !(one.getAttribute('aria-label') || one.getAttribute('aria-labelledby'))).length"
        )
        scrolling = page.evaluate(
            "[...document.querySelectorAll('.scroll:has(.stack)')].filter(one =>"
            " one.scrollWidth > one.clientWidth + 1).length"
        )
        page.click("summary:has(#pair-by-pair)")
        page.click("th a[href^='#pair-']")
        seen = page.evaluate("document.querySelector(':target').getBoundingClientRect().top")
        browser.close()
    assert said == []
    assert asked == [path.as_uri()]
    assert wide <= room
    assert unnamed == 0
    assert width > 400 or scrolling == 0  # tables are lists on a phone
    assert 0 <= seen < 900  # the link opens the folded section that it leads to

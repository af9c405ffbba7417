"""The viewer in a real browser: every page, as a person walks through it."""

import base64
import gzip
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pytest
from PIL import Image

import assay
from assay.crafter.film import FRAME
from assay.report.viewer.server import RunningViewer
from tests.report.viewer.conftest import MODELS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.extras


@pytest.fixture
def page(browser: "Browser", viewer: RunningViewer) -> Iterator["Page"]:
    """The first screen; at the end of a test its console has no error."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    troubles: list[str] = []
    page.on(
        "console",
        lambda message: troubles.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto(viewer.url)
    page.wait_for_selector("h1")
    yield page
    context.close()
    assert troubles == []


@pytest.fixture
def own_viewer(database: Path, tmp_path: Path) -> Iterator[RunningViewer]:
    """A viewer whose database a test may change."""
    with assay.view(database=shutil.copy(database, tmp_path), port=0) as running:
        yield running


def best(client: httpx2.Client) -> dict[str, object]:
    rows = client.get("/api/episodes?sort=-achievements&offset=0&limit=1").json()["rows"]
    assert isinstance(rows[0], dict)
    return rows[0]


def open_page(page: "Page", path: str) -> None:
    page.evaluate("path => { location.hash = path; }", path)
    page.wait_for_function("() => !document.getElementById('page').hasAttribute('aria-busy')")


def test_the_first_screen_has_the_verdict_the_leaderboard_and_every_episode(
    page: "Page",
) -> None:
    assert "token" not in page.url
    assert MODELS[1] in page.inner_text(".callout")
    assert page.locator("table caption").first.inner_text().startswith("Leaderboard")
    assert page.locator(".wall canvas").count() == 6
    page.wait_for_function(
        """() => [...document.querySelectorAll('.wall canvas')].every((canvas) =>
        canvas.getContext('2d').getImageData(20, 20, 1, 1).data[1] > 0)"""
    )


def test_a_click_on_a_world_opens_the_pair_at_the_step_where_they_part(page: "Page") -> None:
    page.locator(".wall .cell").first.click()
    page.wait_for_selector(".pair canvas")
    assert "They part at step" in page.inner_text(".callout")
    page.locator(".pair .scrub").first.fill("7")
    page.wait_for_function(
        """() => [...document.querySelectorAll('.pair .scrub')]
        .every((range) => range.value === '7')"""
    )


def test_keys_move_by_step_and_turn_and_the_address_follows(
    page: "Page", client: httpx2.Client
) -> None:
    episode = best(client)
    open_page(page, f"#/episode/{episode['id']}?step=3")
    page.wait_for_selector(".status")
    assert page.inner_text(".badge") == "replays exactly"
    page.locator("h1").click()
    for key, step in (("j", 4), ("j", 5), ("k", 4), ("End", episode["steps"]), ("Home", 0)):
        page.keyboard.press(key)
        page.wait_for_function(
            """step => document.querySelector('.status').textContent
            .startsWith(`Step ${step} of`)""",
            arg=step,
        )
        assert page.url.endswith(f"step={step}")
    page.keyboard.press("J")
    page.wait_for_function("() => !location.hash.endsWith('step=0')")
    page.keyboard.press("?")
    assert page.is_visible(".keys")


def test_a_message_leads_to_its_step(page: "Page", client: httpx2.Client) -> None:
    episode = best(client)
    open_page(page, f"#/episode/{episode['id']}")
    page.wait_for_selector(".message.current")
    replies = page.locator(".message.assistant header button")
    replies.nth(2).click()
    shown = replies.nth(2).inner_text()
    step = int(shown.rpartition("step ")[2])
    assert page.url.endswith(f"step={step}")


def test_the_canvas_equals_the_exact_frames_pixel_by_pixel(
    page: "Page", client: httpx2.Client
) -> None:
    lights = np.frombuffer(gzip.decompress(client.get("/api/lights?steps=1000").content))
    compared = 0
    for row in client.get("/api/episodes?sort=-steps&offset=0&limit=6").json()["rows"]:
        path = f"/api/episodes/{row['id']}"
        film = gzip.decompress(client.get(f"{path}/film").content)
        open_page(page, f"#/episode/{row['id']}")
        page.wait_for_selector(".vitals svg")
        for step, frame in enumerate(np.frombuffer(film[16:], np.uint8).reshape(-1, FRAME)):
            asleep_or_dead = frame[79] & 3
            if lights[step] < 0.5 or asleep_or_dead or compared == 200:
                continue
            drawn = page.evaluate(
                """step => { const range = document.querySelector('.scrub');
                range.value = step; range.dispatchEvent(new Event('input'));
                return document.querySelector('canvas.world').toDataURL(); }""",
                step,
            )
            exact = client.get(f"{path}/frame?step={step}&size=144").content
            assert (pixels(base64.b64decode(drawn.partition(",")[2])) == pixels(exact)).all()
            compared += 1
    assert compared == 200


def pixels(picture: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    with Image.open(io.BytesIO(picture)) as image:
        return np.asarray(image.convert("RGB"))


def test_lists_filter_sort_and_lead_to_an_episode(page: "Page") -> None:
    open_page(page, "#/episodes")
    page.wait_for_selector("table")
    page.get_by_label("Model").select_option(MODELS[1])
    page.wait_for_function(
        "() => document.querySelector('caption').textContent === '3 episodes'"
    )
    page.get_by_role("button", name="Reward").click()
    page.wait_for_function("() => location.hash.includes('sort=-reward')")
    page.locator("tbody a").first.click()
    page.wait_for_selector("canvas.world")


def test_a_race_shows_all_episodes_of_a_world_and_a_trail_opens_one(page: "Page") -> None:
    page.locator(".wall thead a").first.click()
    page.wait_for_selector("canvas.race")
    assert page.locator(".race-list input").count() == 2
    page.locator(".scrub").fill("20")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save PNG").click()
    assert pixels(download.value.path().read_bytes()).shape[0] >= 24 * 16
    page.locator("tbody a").first.click()
    page.wait_for_selector("canvas.world")


def test_a_comparison_has_the_words_of_the_command_and_marks_other_metrics(
    page: "Page",
) -> None:
    page.get_by_role("link", name="Compare in detail").click()
    page.wait_for_selector("figure svg")
    assert "assay compare" in page.inner_text(".command")
    page.locator(".filters select").first.select_option("reward")
    page.wait_for_selector(".warning")
    assert page.inner_text(".warning").startswith("Exploratory")


def test_a_search_leads_to_the_step_of_a_hit(page: "Page") -> None:
    open_page(page, "#/search")
    page.get_by_role("searchbox").fill("grass")
    page.get_by_role("searchbox").press("Enter")
    page.locator(".hits a").first.click()
    page.wait_for_selector("canvas.world")


def test_a_label_and_a_note_stay_with_an_episode(
    browser: "Browser", own_viewer: RunningViewer
) -> None:
    page = browser.new_page()
    page.goto(own_viewer.url)
    open_page(page, "#/episode/best?step=5")
    page.get_by_placeholder("keep, drop or your own").fill("keep odd")
    page.get_by_role("button", name="Store labels").click()
    page.wait_for_selector("text=Stored.")
    page.get_by_label("New note").fill("<b>looks the wrong way</b>")
    page.get_by_role("button", name="Add a note").click()
    page.wait_for_selector("text=<b>looks the wrong way</b>")
    open_page(page, "#/episodes?label=odd")
    page.wait_for_selector("text=1 episodes")
    page.close()


def test_a_person_plays_and_the_episode_is_stored_and_replays(
    browser: "Browser", own_viewer: RunningViewer
) -> None:
    page = browser.new_page()
    page.goto(own_viewer.url)
    open_page(page, "#/play?seed=42")
    page.get_by_label("Your name").fill("ana")
    page.get_by_role("button", name="Start").click()
    page.wait_for_selector(".action-list")
    for count, key in enumerate(("d", "d", "s", " ", "n"), 1):
        page.keyboard.press(key)
        page.wait_for_function(
            """step => document.querySelector('.status')
            .textContent.startsWith(`Step ${step}`)""",
            arg=count,
        )
    page.get_by_role("button", name="End and store").click()
    page.wait_for_selector(".badge")
    assert page.inner_text("h1").startswith("human/ana in crafter/easy, seed 42")
    assert page.inner_text(".badge") == "replays exactly"
    page.close()


def test_an_unknown_page_and_a_missing_episode_are_sentences(page: "Page") -> None:
    open_page(page, "#/nothing")
    page.wait_for_selector("text=There is no page")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_no_page_is_wider_than_its_window(
    browser: "Browser",
    viewer: RunningViewer,
    client: httpx2.Client,
    scheme: str,
    width: int,
    tmp_path: Path,
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(viewer.url)
    page.wait_for_selector("h1")
    for path in ("#/", "#/runs", "#/episodes", f"#/episode/{best(client)['id']}"):
        open_page(page, path)
        page.wait_for_selector("h1")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    context.close()

"""Notes, labels, search and runs in progress."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import assay
from assay.store.store import Store
from tests.report.viewer.conftest import client_of
from tests.report.viewer.test_server import get


@pytest.fixture
def own(database: Path, tmp_path: Path) -> Path:
    """A copy of the database that a test may change."""
    return Path(shutil.copy(database, tmp_path / "own.duckdb"))


@pytest.fixture
def writer(own: Path) -> Iterator[httpx2.Client]:
    with assay.view(database=own, port=0) as viewer, client_of(viewer, writes=True) as client:
        yield client


def test_a_note_is_kept_in_the_database_and_can_be_deleted(
    writer: httpx2.Client, own: Path
) -> None:
    key = get(writer, "/api/episodes/best")["id"]
    made = writer.post(
        f"/api/episodes/{key}/notes", json={"text": "walks in <b>circles</b>", "step": 12}
    ).json()
    episode = get(writer, f"/api/episodes/{key}")
    assert episode["notes"] == [made]
    assert (made["step"], made["text"]) == (12, "walks in <b>circles</b>")
    assert [row["id"] for row in get(writer, "/api/episodes?text=CIRCLES")["rows"]] == [key]
    with Store(own).reading() as connection:
        assert connection.execute("SELECT session_id FROM session_notes").fetchall() == [(key,)]
    assert writer.delete(f"/api/episodes/{key}/notes/{made['id']}").json() == {}
    assert writer.delete(f"/api/episodes/{key}/notes/{made['id']}").status_code == 404
    assert get(writer, f"/api/episodes/{key}")["notes"] == []


@pytest.mark.parametrize(
    "given",
    [{}, {"text": "  "}, {"text": 1}, {"text": "a", "step": "x"}, {"text": "a" * 10_001}],
)
def test_a_wrong_note_is_refused(writer: httpx2.Client, given: dict[str, Any]) -> None:
    refused = writer.post("/api/episodes/best/notes", json=given)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


def test_labels_choose_the_episodes_of_training_data(writer: httpx2.Client, own: Path) -> None:
    rows = get(writer, "/api/episodes?model=builtin/forager")["rows"]
    for row, labels in zip(rows, (["keep", "calm"], ["drop"], []), strict=True):
        answer = writer.put(f"/api/episodes/{row['id']}/labels", json={"labels": labels})
        assert answer.json()["labels"] == sorted(labels)
    kept = rows[0]["id"]
    assert [row["id"] for row in get(writer, "/api/episodes?label=keep")["rows"]] == [kept]
    assert get(writer, "/api/episodes")["facets"]["label"] == ["calm", "drop", "keep"]
    built = assay.sft_filter(database=own, label=["keep"])
    assert built.left.episodes == 1
    assert "--label" in [step.name for step in built.funnel]
    writer.put(f"/api/episodes/{kept}/labels", json={"labels": ["calm"]})
    assert get(writer, f"/api/episodes/{kept}")["labels"] == ["calm"]


@pytest.mark.parametrize(
    "labels",
    [["keep", "drop"], ["a b"], [""], ["x" * 41], [1], "keep", [f"l{n}" for n in range(51)]],
)
def test_wrong_labels_are_refused(writer: httpx2.Client, labels: Any) -> None:
    answer = writer.put("/api/episodes/best/labels", json={"labels": labels})
    assert answer.status_code == 422
    assert get(writer, "/api/episodes/best")["labels"] == []


def test_a_body_that_is_not_an_object_is_refused(writer: httpx2.Client) -> None:
    for body in (b"[1]", b"{", b'"x"', b"[" * 100_000):
        assert writer.post("/api/episodes/best/notes", content=body).status_code == 422


def test_files_are_opened_for_reading_only(database: Path, tmp_path: Path) -> None:
    assay.export("best", output=tmp_path / "trace.json", database=database)
    with (
        assay.view(str(tmp_path / "trace.json"), port=0) as viewer,
        client_of(viewer, writes=True) as client,
    ):
        assert get(client, "/api/session")["writable"] is False
        assert get(client, "/api/episodes")["total"] == 1
        assert get(client, "/api/episodes/latest")["replay"]["finding"] == "same"
        refused = client.post("/api/episodes/latest/notes", json={"text": "x"})
        assert refused.json()["code"] == "forbidden"


def test_search_finds_words_with_their_step(client: httpx2.Client) -> None:
    found = get(client, "/api/search?q=ACHIEVED COLLECT_WOOD&limit=5")
    assert found["total"] >= len(found["rows"]) > 0
    for row in found["rows"]:
        assert row["hit"].lower() == "achieved collect_wood"
        page = get(
            client, f"/api/episodes/{row['episode']}/messages?from={row['position']}&limit=1"
        )
        (message,) = page["messages"]
        assert row["before"][-10:] + row["hit"] in message["text"]
        assert message["step"] == row["step"]
    assert get(client, "/api/search?q=no%20such%20words")["total"] == 0
    assert get(client, "/api/search?q=%25")["total"] == 0 or "%" in str(
        get(client, "/api/search?q=%25")["rows"][0]["hit"]
    )
    get(client, "/api/search?q=", 422)


def test_a_run_in_progress_can_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "live.duckdb"
    goes_on, waits = threading.Event(), threading.Event()

    def act(view: Any) -> str:
        if view.step >= 3:
            waits.set()
            goes_on.wait(60)
        return "noop"

    def play() -> None:
        assay.run(
            agents={"waiting": act},
            episodes=1,
            max_turns=10,
            baselines=False,
            database=path,
            traces_dir=tmp_path / "traces",
        )

    player = threading.Thread(target=play)
    player.start()
    try:
        assert waits.wait(60)
        with assay.view(database=path, port=0) as viewer, client_of(viewer) as client:
            with client.stream("GET", "/api/live") as stream:
                assert stream.headers["content-type"].startswith("text/event-stream")
                events = _events(stream)
                name, runs = next(events)
                assert name == "runs"
                (session,) = runs[0]["sessions"]
                episode = get(client, f"/api/episodes/{session['id']}")
                assert episode["live"]
                assert episode["state"] is None
                assert episode["steps"] == session["steps"] == 3
                run = get(client, "/api/runs")["rows"][0]
                assert (run["status"], run["running"]) == ("running", 1)
                goes_on.set()
                stored = next(
                    value for name, value in events if name == "stored" and value["episodes"]
                )
                assert stored == {"episodes": 1, "runs": 1}
            player.join()
            assert get(client, "/api/episodes/latest")["state"] == "result"
    finally:
        goes_on.set()
        player.join()


def _events(stream: httpx2.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in stream.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))

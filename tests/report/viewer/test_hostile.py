"""Texts of models, damaged records, user code and busy databases: the viewer keeps its word."""

from pathlib import Path

import duckdb
import httpx2
import pytest

import assay
from assay.store.store import Store
from tests.report.viewer.conftest import client_of
from tests.report.viewer.test_server import frames_of, get
from tests.report.viewer.test_writing import own as own
from tests.report.viewer.test_writing import writer as writer

SCRIPT = "<script>alert(1)</script>"
ESCAPES = "\x1b[31mred\x1b[0m \u202egnirts \x00 \x07"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "hostile.duckdb"
    with assay.SessionTracer(path, name=SCRIPT, task="maze", seed=1) as tracer:
        tracer.message({"role": "user", "content": ESCAPES})
        tracer.call({"role": "assistant", "content": SCRIPT + "x" * 10_000_000})
        tracer.step("north", reward=1.0)
    outside = {"environment": {"spec": "evil.py:World", "sha": "0", "deterministic": True}}
    with assay.SessionTracer(
        path, name="own world", task="own", seed=1, metadata=outside
    ) as tracer:
        tracer.step("north", reward=1.0, digest="00")
    return path


def test_texts_of_models_stay_texts(hostile: Path) -> None:
    with assay.view(database=hostile, port=0) as viewer, client_of(viewer) as client:
        rows = {row["model"]: row["id"] for row in get(client, "/api/episodes")["rows"]}
        messages = get(client, f"/api/episodes/{rows[SCRIPT]}/messages")["messages"]
        assert messages[0]["text"] == r"\x1b[31mred\x1b[0m \u202egnirts \x00 \x07"
        assert messages[1]["text"].startswith(SCRIPT)
        assert len(messages[1]["text"]) == 20_000
        assert messages[1]["cut"] == len(SCRIPT) + 10_000_000
        whole = client.get(f"/api/episodes/{rows[SCRIPT]}/messages/1")
        assert whole.headers["content-type"] == "text/plain; charset=utf-8"
        assert whole.headers["x-content-type-options"] == "nosniff"
        assert len(whole.text) == messages[1]["cut"]
        assert get(client, f"/api/search?q={SCRIPT}")["total"] == 1


def test_a_page_with_hostile_texts_contains_no_markup_of_theirs(
    hostile: Path, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    assay.export_view(output=path, database=hostile, force=True)
    text = path.read_text("utf-8")
    assert SCRIPT not in text
    assert text.count("<script") == 2
    assert assay.verify_page(path).is_same


def test_other_environments_have_no_film_and_their_code_never_runs(hostile: Path) -> None:
    with assay.view(database=hostile, port=0) as viewer, client_of(viewer) as client:
        rows = {row["model"]: row["id"] for row in get(client, "/api/episodes")["rows"]}
        episode = get(client, f"/api/episodes/{rows['own world']}")
        assert episode["film"]["frames"] == 0
        assert "only episodes of Crafter" in episode["film"]["reason"]
        assert episode["replay"]["finding"] == "unverifiable"
        assert "--replay-code" in episode["replay"]["reason"]
        assert client.get(f"/api/episodes/{rows['own world']}/film").status_code == 422


def test_a_damaged_episode_is_shown_up_to_the_damage(writer: httpx2.Client, own: Path) -> None:
    key = get(writer, "/api/episodes/best")["id"]
    with Store(own).writing() as connection:
        connection.execute(
            "UPDATE session_timesteps SET action = CASE action WHEN 'noop' THEN 'do' ELSE"
            " 'noop' END WHERE session_id = ? AND step_index = 11",
            [key],
        )
    episode = get(writer, f"/api/episodes/{key}")
    assert episode["replay"]["finding"] == "different"
    assert episode["replay"]["difference"]["step"] == 11
    _, frames = frames_of(writer.get(f"/api/episodes/{key}/film").content)
    assert len(frames) == 11 == episode["film"]["frames"]


def test_a_database_that_another_process_writes_is_busy_for_a_moment_only(
    writer: httpx2.Client, own: Path
) -> None:
    """DuckDB does not share a file between a writer and a reader in two processes."""
    get(writer, "/api/runs")
    # Between requests the file is free: another program can write to it.
    with duckdb.connect(str(own)) as other:
        other.execute("CREATE TABLE mine (a INTEGER)")
    assert get(writer, "/api/runs")["total"] == 1

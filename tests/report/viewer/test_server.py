"""The routes of the viewer, asked over HTTP as a page does."""

import gzip
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest

import assay
from assay.crafter.film import FRAME, film_frame
from assay.crafter.rules import ACTIONS
from assay.report.viewer.server import POLICY, RunningViewer
from tests.report.viewer.conftest import MODELS, client_of


def get(client: httpx2.Client, path: str, status: int = 200) -> Any:
    response = client.get(path)
    assert response.status_code == status, response.text
    return response.json()


def frames_of(data: bytes) -> tuple[int, np.ndarray[Any, np.dtype[np.uint8]]]:
    """Return `every` and the frames of a film."""
    whole = gzip.decompress(data)
    count, every, _ = struct.unpack("<III", whole[4:16])
    assert whole[:4] == b"AVF1"
    return every, np.frombuffer(whole[16:], np.uint8).reshape(count, FRAME)


def test_data_needs_the_token_and_a_page_does_not(viewer: RunningViewer) -> None:
    assert httpx2.get(f"{viewer.address}/").status_code == 200
    for headers in ({}, {"authorization": "Bearer wrong"}):
        refused = httpx2.get(f"{viewer.address}/api/session", headers=headers)
        assert refused.status_code == 401
        assert refused.json()["code"] == "unauthorized"
    assert viewer.url == f"{viewer.address}/#/?token={viewer.settings.token}"


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"origin": "http://evil.example"}],
    ids=["host", "origin"],
)
def test_requests_from_other_pages_are_refused(
    client: httpx2.Client, headers: dict[str, str]
) -> None:
    assert client.get("/api/session", headers=headers).status_code == 403
    assert client.get("/", headers=headers).status_code == 403


def test_writes_need_the_token_of_a_page(client: httpx2.Client) -> None:
    refused = client.post("/api/episodes/best/notes", json={"text": "x"})
    assert (refused.status_code, refused.json()["code"]) == (403, "page_token")


@pytest.mark.parametrize("path", ["/", "/api/session", "/api/nothing", "/static/none.js"])
def test_every_answer_has_the_policy(client: httpx2.Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert "script-src 'self'" in POLICY
    assert "'unsafe-eval'" not in POLICY
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "name", ["../server.py", "..%2fserver.py", "%2e%2e/server.py", "server.py", ".", "a.html"]
)
def test_only_files_of_the_page_are_served(client: httpx2.Client, name: str) -> None:
    assert client.get(f"/static/{name}").status_code == 404


def test_the_first_screen_has_verdict_leaderboard_and_wall(client: httpx2.Client) -> None:
    home = get(client, "/api/home")
    assert home["run"]["status"] == "finished"
    assert home["run"]["result"] == 6
    assert "achievements" in home["verdict"]["sentence"]
    assert home["verdict"]["verdict"] in ("better", "worse", "undecided")
    assert len(home["leaderboard"]["rows"]) == 2
    wall = home["wall"]
    assert (len(wall["models"]), len(wall["worlds"])) == (2, 3)
    differences = [world["difference"] for world in wall["worlds"]]
    assert differences == sorted(differences)
    a, b = (wall["cells"][row][0]["value"] for row in (0, 1))
    assert differences[0] == b - a


def test_runs_show_counts_and_means_with_intervals(client: httpx2.Client) -> None:
    (run,) = get(client, "/api/runs")["rows"]
    assert [entry["model"] for entry in run["models"]] == [*MODELS]
    for entry in run["models"]:
        assert entry["result"] == 3
        assert entry["low"] <= entry["mean"] <= entry["high"]
    assert get(client, f"/api/runs/{run['id']}") == run
    assert get(client, "/api/runs?model=builtin/expert")["rows"] == []
    get(client, "/api/runs/nothing", 404)


def test_episodes_are_filtered_sorted_and_paged(client: httpx2.Client) -> None:
    every = get(client, "/api/episodes")
    assert every["total"] == 6 == every["counts"]["result"]
    assert every["facets"]["model"] == sorted(MODELS)
    page = get(client, "/api/episodes?sort=-reward&offset=1&limit=2")
    ordered = sorted((row["reward"] for row in every["rows"]), reverse=True)
    assert [row["reward"] for row in page["rows"]] == ordered[1:3]
    assert page["total"] == 6
    tests: dict[str, Callable[[dict[str, Any]], bool]] = {
        "model=builtin/random": lambda row: row["model"] == "builtin/random",
        "seed=43": lambda row: row["seed"] == 43,
        "min_waste=0.1": lambda row: row["waste"] >= 0.1,
        "ended=max_turns": lambda row: row["stop_reason"] == "max_turns",
        "state=failure": lambda row: row["state"] == "failure",
    }
    for filters, holds in tests.items():
        found = get(client, f"/api/episodes?{filters}")["rows"]
        assert [row["id"] for row in found] == [
            row["id"] for row in every["rows"] if holds(row)
        ]


def test_missed_and_reached_achievements_divide_the_episodes(client: httpx2.Client) -> None:
    reached, missed = (
        {row["id"] for row in get(client, f"/api/episodes?{side}=collect_wood")["rows"]}
        for side in ("reached", "missed")
    )
    assert not reached & missed
    assert len(reached | missed) == 6


@pytest.mark.parametrize(
    "query", ["nothing=1", "sort=password", "limit=0", "limit=-1", "limit=9999", "offset=x"]
)
def test_a_wrong_query_is_answered_with_a_sentence(client: httpx2.Client, query: str) -> None:
    assert get(client, f"/api/episodes?{query}", 422)["code"] == "invalid"


def test_no_filter_is_sql(client: httpx2.Client) -> None:
    for value in ("' OR 1=1 --", "1; DROP TABLE runs", '" UNION SELECT 1'):
        for name in ("model", "seed", "since", "min_cost", "reached", "ended"):
            found = client.get("/api/episodes", params={name: value})
            assert found.status_code == 200
            assert found.json()["rows"] == []
    assert get(client, "/api/runs")["total"] == 1


def test_an_episode_is_replayed_when_it_is_opened(client: httpx2.Client) -> None:
    episode = get(client, "/api/episodes/best")
    assert episode["replay"]["finding"] == "same"
    assert episode["replay"]["steps"] == episode["steps"] == len(episode["step_rows"]["action"])
    assert episode["film"] == {"frames": episode["steps"] + 1, "reason": None}
    assert episode["achievements"] == len(episode["unlocked"])
    turns = [turn for turn in episode["turn_rows"] if turn["last"] is not None]
    assert turns[-1]["last"] == episode["steps"]
    assert {row["seed"] for row in [episode]} == {episode["seed"]}
    assert [row["model"] for row in episode["siblings"]] != []
    get(client, "/api/episodes/nothing", 404)


def test_a_film_has_the_frames_of_the_world(client: httpx2.Client) -> None:
    episode = get(client, "/api/episodes/best")
    every, frames = frames_of(client.get(f"/api/episodes/{episode['id']}/film").content)
    assert every == 1
    world = assay.World(episode["seed"], episode["difficulty"])
    assert frames[0].tolist() == film_frame(world).tolist()
    for action, frame in zip(episode["step_rows"]["action"], frames[1:], strict=True):
        world.step(ACTIONS.index(action))
        assert frame.tolist() == film_frame(world).tolist()


def test_miniatures_have_few_frames_and_both_ends(client: httpx2.Client) -> None:
    rows = get(client, "/api/episodes")["rows"]
    names = ",".join(row["id"] for row in rows)
    data = client.get(f"/api/films?episodes={names}&frames=20").content
    for row in rows:
        (length,) = struct.unpack("<I", data[:4])
        every, frames = frames_of(data[4 : 4 + length])
        data = data[4 + length :]
        _, whole = frames_of(client.get(f"/api/episodes/{row['id']}/film").content)
        assert len(frames) <= 21
        assert frames[0].tolist() == whole[0].tolist()
        assert frames[1].tolist() == whole[every].tolist()
        assert frames[-1].tolist() == whole[-1].tolist()
    assert data == b""


def test_the_map_changes_cell_by_cell(client: httpx2.Client) -> None:
    data = gzip.decompress(client.get("/api/episodes/best/map").content)
    (count,) = struct.unpack("<I", data[4:8])
    tiles, rest = bytearray(data[8 : 8 + 4096]), data[8 + 4096 :]
    for _ in range(count - 1):
        (changed,) = struct.unpack("<H", rest[:2])
        for place in range(changed):
            cell, tile = struct.unpack("<HB", rest[2 + 3 * place : 5 + 3 * place])
            tiles[cell] = tile
        rest = rest[2 + 3 * changed :]
    assert rest == b""
    _, frames = frames_of(client.get("/api/episodes/best/film").content)
    x, y = (int(number) for number in frames[-1][-2:])
    assert tiles[y * 64 + x] == frames[-1][3 * 9 + 4]


def test_sprites_and_daylight_are_those_of_the_world(client: httpx2.Client) -> None:
    sheet = gzip.decompress(client.get("/api/sprites?unit=16").content)
    unit, tiles, items = struct.unpack("<III", sheet[4:16])
    assert len(sheet) == 16 + (2 * tiles + items) * unit * unit * 3
    lights = np.frombuffer(gzip.decompress(client.get("/api/lights?steps=400").content), "<f8")
    world = assay.World(1)
    for light in lights[:100]:
        assert light == world.daylight
        world.step("noop")
    names = get(client, "/api/tiles")
    assert tiles == len(names["materials"]) * (1 + len(names["sprites"]))
    assert get(client, "/api/sprites?unit=7", 422)


def test_pictures_and_texts_of_a_step_are_those_of_the_world(client: httpx2.Client) -> None:
    episode = get(client, "/api/episodes/best")
    picture = client.get(f"/api/episodes/{episode['id']}/frame?step=5&size=144")
    assert picture.headers["content-type"] == "image/png"
    assert picture.content.startswith(b"\x89PNG")
    text = client.get(f"/api/episodes/{episode['id']}/text?step=5").text
    assert text.startswith("Step 5, daylight")
    assert (
        client.get(f"/api/episodes/best/frame?step={episode['steps'] + 1}").status_code == 422
    )


def test_messages_belong_to_steps(client: httpx2.Client) -> None:
    episode = get(client, "/api/episodes/best")
    page = get(client, "/api/episodes/best/messages?from=0&limit=100000")
    assert page["total"] == len(page["messages"])
    for message in page["messages"]:
        if message["type"] == "observation" and "Step " in message["text"]:
            assert f"Step {message['step']}," in message["text"]
    first = get(client, "/api/episodes/best/messages?from=2&limit=1")["messages"][0]
    assert first == page["messages"][2]
    assert first["calls"][0]["name"] == "interact"
    whole = client.get(f"/api/episodes/{episode['id']}/messages/0")
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.text == page["messages"][0]["text"]


def test_a_race_has_the_way_of_every_episode_of_a_world(client: httpx2.Client) -> None:
    run = get(client, "/api/runs")["rows"][0]["id"]
    race = get(client, f"/api/race?run={run}&task=crafter/easy&seed=42")
    assert {racer["model"] for racer in race["episodes"]} == {*MODELS}
    for racer in race["episodes"]:
        _, frames = frames_of(client.get(f"/api/episodes/{racer['id']}/film").content)
        assert racer["trail"] == frames[:, -2:].ravel().tolist()
        assert len(racer["flags"]) == racer["achievements"]
        assert (racer["death"] is not None) == racer["stop_reason"].startswith("died")
    a, b = (racer["id"] for racer in race["episodes"])
    assert get(client, f"/api/race?episodes={a},{b}")["seed"] == 42
    other = get(client, "/api/episodes?seed=43")["rows"][0]["id"]
    assert "different worlds" in get(client, f"/api/race?episodes={a},{other}", 422)["detail"]


def test_a_pair_says_where_two_episodes_part(client: httpx2.Client) -> None:
    a, b = (row["id"] for row in get(client, "/api/episodes?seed=42&sort=model")["rows"])
    pair = get(client, f"/api/pair?a={a}&b={b}")
    step = pair["parts_at"]
    actions = [get(client, f"/api/episodes/{key}")["step_rows"]["action"] for key in (a, b)]
    assert actions[0][: step - 1] == actions[1][: step - 1]
    assert [pair["a"]["action"], pair["b"]["action"]] == [each[step - 1] for each in actions]
    assert pair["sentence"].startswith(f"They part at step {step}")
    assert get(client, f"/api/pair?a={a}&b={a}")["parts_at"] is None


def test_a_comparison_is_that_of_the_command(client: httpx2.Client, database: Path) -> None:
    run = get(client, "/api/runs")["rows"][0]["id"]
    page = get(client, f"/api/compare?names={run}")
    found = assay.compare(run, database=database)
    contrast = found.decisive[0]
    shown = page["contrasts"][0]
    assert shown["verdict"] == contrast.verdict
    assert shown["difference"]["point"] == contrast.difference.point
    assert [row["difference"] for row in shown["pairs"]] == [
        row.difference for row in contrast.pairs
    ]
    rows = {row["id"]: row for row in get(client, "/api/episodes")["rows"]}
    for row in shown["pairs"]:
        assert rows[row["a"]]["achievements"] == row["baseline"]
        assert rows[row["b"]]["achievements"] == row["candidate"]
    assert not page["exploratory"]
    figures = get(client, f"/api/figures?names={run}&section=Values")["figures"]
    assert figures[0]["svg"].startswith("<svg")
    assert get(client, f"/api/figures?names={run}&section=Nothing")["figures"] == []


@pytest.mark.parametrize("choice", ["metric=reward", "seeds=42-43"])
def test_an_exploratory_comparison_has_no_verdict(client: httpx2.Client, choice: str) -> None:
    run = get(client, "/api/runs")["rows"][0]["id"]
    page = get(client, f"/api/compare?names={run}&{choice}")
    assert page["exploratory"]
    assert page["exploratory_reason"]
    assert {contrast["verdict"] for contrast in page["contrasts"]} == {None}
    words = str(page["summary"]) + str([block for each in page["sections"] for block in each])
    for verdict in ("undecided", "better", "worse"):
        assert verdict not in words.lower()


def test_an_empty_database_is_a_sentence(tmp_path: Path) -> None:
    with (
        assay.view(database=tmp_path / "none.duckdb", port=0) as viewer,
        client_of(viewer) as client,
    ):
        assert "assay run" in get(client, "/api/session")["start_hint"]
        home = get(client, "/api/home")
        assert home["run"] is None
        assert "No episodes" in home["hint"]
        assert get(client, "/api/runs") == {"total": 0, "rows": []}
        assert get(client, "/api/episodes")["total"] == 0
    assert not (tmp_path / "none.duckdb").exists()


def test_large_answers_are_compressed_on_request(client: httpx2.Client) -> None:
    plain = client.get("/api/episodes/best", headers={"accept-encoding": "identity"})
    packed = client.get("/api/episodes/best", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) * 4 < len(plain.content)
    assert packed.json() == plain.json()


def test_dots_and_bars_of_figures_name_what_they_open(client: httpx2.Client) -> None:
    run = get(client, "/api/runs")["rows"][0]["id"]
    page = get(client, f"/api/compare?names={run}")
    pairs = {row["pair"] for row in page["contrasts"][0]["pairs"]}
    for figure in get(client, f"/api/figures?names={run}&section=Pair by pair")["figures"]:
        assert set(re.findall(r'data-pair="([^"]+)"', figure["svg"])) == pairs
    (bars,) = get(client, f"/api/figures?names={run}&section=Crafter score")["figures"]
    assert 'data-achievement="collect_wood"' in bars["svg"]
    assert {subject["name"] for subject in page["subjects"]} >= set(
        re.findall(r'data-subject="([^"]+)"', bars["svg"])
    )

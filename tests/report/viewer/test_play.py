"""People play in the viewer, in new worlds and from stored episodes on."""

from base64 import b64decode
from pathlib import Path

import httpx2
import pytest

import assay
from assay.crafter.film import film_frame
from assay.crafter.rules import ACTIONS
from tests.report.viewer.test_server import get
from tests.report.viewer.test_writing import own as own
from tests.report.viewer.test_writing import writer as writer

NEW = {"seed": 42, "difficulty": "easy", "name": "ana", "max_turns": 4, "actions_per_turn": 2}


def test_a_person_s_episode_is_stored_verified_and_compared(
    writer: httpx2.Client, own: Path
) -> None:
    state = writer.post("/api/play", json={**NEW, "max_turns": 30}).json()
    world = assay.World(42, "easy")
    for turn in range(1, 31):
        action = ("move_left", "do", "move_up")[turn % 3]
        before = b64decode(state["next"][action]["frame"])
        world.step(action)
        state = writer.post(f"/api/play/{state['play']}/act", json={"actions": [action]}).json()
        frame = b64decode(state["frame"])
        assert before == frame == film_frame(world).tobytes()
        assert (state["turn"], state["step"]) == (turn, turn)
        assert state["text"].startswith(f"Step {turn},")
        if state["done"]:
            break
    assert state["done"]
    episode = get(writer, f"/api/episodes/{state['session']}")
    assert episode["model"] == "human/ana"
    assert episode["kind"] == "episode"
    assert episode["replay"]["finding"] == "same"
    assert episode["steps"] == state["step"]
    assert episode["reward"] == state["reward"]
    assert assay.verify(state["session"], database=own)[0].finding == "same"
    names = [
        episode["experiment"],
        get(writer, "/api/episodes?model=builtin/random")["rows"][0]["experiment"],
    ]
    found = assay.compare(*names, database=own, allow_different=["max_turns"])
    assert found.decisive[0].n_baseline == 1


def test_all_seventeen_next_views_are_there_before_the_key(writer: httpx2.Client) -> None:
    state = writer.post("/api/play", json=NEW).json()
    assert [*state["next"]] == [*ACTIONS]
    for action in ACTIONS:
        world = assay.World(42, "easy")
        result = world.step(action)
        shown = state["next"][action]
        assert b64decode(shown["frame"]) == film_frame(world).tobytes()
        assert shown["no_effect"] == result.no_effect
    writer.post(f"/api/play/{state['play']}/end", json={})


def test_an_episode_that_is_given_up_is_stored(writer: httpx2.Client) -> None:
    state = writer.post("/api/play", json=NEW).json()
    writer.post(f"/api/play/{state['play']}/act", json={"actions": ["do", "noop"]})
    session = writer.post(f"/api/play/{state['play']}/end", json={}).json()["session"]
    episode = get(writer, f"/api/episodes/{session}")
    assert episode["stop_reason"].startswith("terminate")
    assert episode["steps"] == 2
    gone = writer.post(f"/api/play/{state['play']}/act", json={"actions": ["do"]})
    assert gone.status_code == 404


@pytest.mark.parametrize(
    "given",
    [
        {"name": ""},
        {"name": "a b"},
        {"seed": -1},
        {"seed": "1"},
        {"difficulty": "silly"},
        {"max_turns": 0},
        {"episode": "nothing"},
    ],
    ids=str,
)
def test_a_wrong_start_is_refused(writer: httpx2.Client, given: dict[str, object]) -> None:
    assert writer.post("/api/play", json={**NEW, **given}).status_code in (404, 422)


@pytest.mark.parametrize("actions", [[], ["do"] * 3, ["fly"], "do", [5]], ids=str)
def test_wrong_actions_are_refused(writer: httpx2.Client, actions: object) -> None:
    state = writer.post("/api/play", json=NEW).json()
    refused = writer.post(f"/api/play/{state['play']}/act", json={"actions": actions})
    assert refused.status_code == 422
    writer.post(f"/api/play/{state['play']}/end", json={})


def test_a_person_plays_on_from_a_stored_episode(writer: httpx2.Client) -> None:
    parent = get(writer, "/api/episodes?model=builtin/forager")["rows"][0]["id"]
    rows = get(writer, f"/api/episodes/{parent}")["turn_rows"]
    step = rows[2]["last"] + 1
    state = writer.post(
        "/api/play", json={"episode": parent, "step": step, "name": "bo"}
    ).json()
    assert (state["step"], state["turn"]) == (rows[2]["last"], 3)
    state = writer.post(f"/api/play/{state['play']}/act", json={"actions": ["noop"]}).json()
    session = writer.post(f"/api/play/{state['play']}/end", json={}).json()["session"]
    episode = get(writer, f"/api/episodes/{session}")
    assert (episode["parent"], episode["forked_at"]) == (parent, rows[2]["last"])
    assert episode["model"] == "human/bo"
    assert episode["replay"]["finding"] == "same"
    assert get(writer, f"/api/episodes/{parent}")["forks"] == [session]


def test_a_policy_plays_on_from_a_stored_episode(writer: httpx2.Client) -> None:
    parent = get(writer, "/api/episodes?model=builtin/random")["rows"][0]["id"]
    made = writer.post("/api/fork", json={"episode": parent, "step": 12, "policy": "expert"})
    episode = get(writer, f"/api/episodes/{made.json()['session']}")
    assert (episode["model"], episode["parent"]) == ("builtin/expert", parent)
    assert episode["forked_at"] <= 12


def test_a_remote_model_needs_a_budget(writer: httpx2.Client) -> None:
    refused = writer.post(
        "/api/fork", json={"episode": "best", "turn": 1, "model": "gpt-4o-mini"}
    )
    assert (refused.status_code, refused.json()["code"]) == (402, "price")
    assert refused.json()["price_usd"] == 0
    again = writer.post(
        "/api/fork",
        json={"episode": "best", "turn": 1, "model": "gpt-4o-mini", "accept_usd": 1.0},
    )
    assert again.status_code == 402


def test_what_it_cost_to_part_is_estimated_from_futures_of_both_sides(
    writer: httpx2.Client,
) -> None:
    rows = get(writer, "/api/episodes?seed=42&sort=model")["rows"]
    a, b = (row["id"] for row in rows)
    cost = writer.post("/api/cost", json={"a": a, "b": b}).json()
    assert cost["step"] == get(writer, f"/api/pair?a={a}&b={b}")["parts_at"]
    gaps = [y - x for x, y in zip(cost["a"]["values"], cost["b"]["values"], strict=True)]
    assert len(gaps) == cost["futures"] == 32
    assert cost["difference"]["point"] == pytest.approx(sum(gaps) / 32)
    assert len(set(cost["a"]["values"])) > 1, "futures differ by chance"
    turned = writer.post("/api/cost", json={"a": b, "b": a}).json()
    assert turned["difference"]["point"] == pytest.approx(-cost["difference"]["point"])
    assert writer.post("/api/cost", json={"a": a, "b": a}).status_code == 422

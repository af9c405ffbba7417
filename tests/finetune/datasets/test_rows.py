"""Rows contain the recorded requests and replies."""

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import assay
from assay import World
from assay.core.canonical_json import canonical_json
from assay.errors import UsageError
from assay.finetune.datasets.formats import read_row
from assay.finetune.datasets.manifest import read_lineage, read_row_origins
from assay.finetune.datasets.preferences import (
    _Future,
    _make_pair,
    _SharedState,
    compute_call_states,
    compute_returns,
)
from assay.store.load import load_session
from assay.store.records import SessionRecord
from assay.store.store import Store
from tests.finetune.datasets.known import known_store
from tests.store.sessions import make_run, make_session, uneven_session
from tests.store.stores import fill


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return known_store(tmp_path_factory.mktemp("rows") / "known.duckdb")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def write_rows(store: Store, path: Path, **given: Any) -> list[dict[str, Any]]:
    assay.sft_filter(path, database=store, **given)
    return rows(path)


def sessions(store: Store, data: Path) -> list[tuple[SessionRecord, int, int]]:
    """Return the session of each row, and its first and last turn."""
    found: dict[str, SessionRecord] = {}
    origins = list(read_row_origins(data))
    with store.reading() as connection:
        for origin in origins:
            if origin.session_id not in found:
                found[origin.session_id] = load_session(connection, origin.session_id)
    return [
        (found[origin.session_id], origin.first_turn, origin.last_turn) for origin in origins
    ]


def recorded(session: SessionRecord, turn: int) -> list[Any]:
    """Return the messages of a turn's request and the model's reply."""
    (call,) = [model_call for model_call in session.calls if model_call.turn == turn]
    places = (*call.request, call.reply)
    return [session.messages[place].message.value for place in places]


@pytest.mark.extras
def test_a_row_with_trained_history_is_the_exact_request_and_reply(
    store: Store, tmp_path: Path
) -> None:
    data = tmp_path / "data.jsonl"
    found = write_rows(store, data, train_history=True)
    origins = sessions(store, data)
    assert len(found) == len(origins) > 30
    for row, (session, turn, last) in zip(found, origins, strict=True):
        assert turn == last
        assert canonical_json(row["messages"]) == canonical_json(recorded(session, turn))
        assert session.header.tools is not None
        assert canonical_json(row["tools"]) == session.header.tools.encoded
        assert sorted(row) == ["messages", "tools"]


@pytest.mark.extras
def test_earlier_replies_have_weight_0_and_nothing_else_is_added(
    store: Store, tmp_path: Path
) -> None:
    data = tmp_path / "data.jsonl"
    found = write_rows(store, data)
    for row, (session, turn, _) in zip(found, sessions(store, data), strict=True):
        weights = [message.pop("weight", 1) for message in row["messages"]]
        roles = [message["role"] for message in row["messages"]]
        assert canonical_json(row["messages"]) == canonical_json(recorded(session, turn))
        assert roles[-1] == "assistant"
        assert weights[-1] == 1
        earlier = [
            w for w, role in zip(weights[:-1], roles, strict=False) if role == "assistant"
        ]
        assert earlier == [0] * (turn - 1)


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages without tool-call ids, which a text format cannot hold."""
    plain_messages = []
    for message in messages:
        value: dict[str, Any] = {
            "role": message["role"],
            "content": message.get("content") or "",
        }
        if message.get("tool_calls"):
            value["calls"] = [
                (call["function"]["name"], call["function"]["arguments"])
                for call in message["tool_calls"]
            ]
        plain_messages.append(value)
    return plain_messages


@pytest.mark.extras
@pytest.mark.parametrize(
    "given",
    [
        {"format": "messages"},
        {"format": "trl"},
        {"format": "trl", "prompt_completion": True},
        {"format": "sharegpt"},
    ],
    ids=str,
)
def test_every_format_can_be_converted_back_to_the_recorded_messages(
    store: Store, tmp_path: Path, given: dict[str, Any]
) -> None:
    data = tmp_path / "data.jsonl"
    found = write_rows(store, data, **given)
    for row, (session, turn, _) in zip(found, sessions(store, data), strict=True):
        back = read_row(row)
        assert plain(back.messages) == plain(recorded(session, turn))
        assert session.header.tools is not None
        assert canonical_json(back.tools) == session.header.tools.encoded
        if given["format"] == "messages":
            assert list(row) == ["messages"]
            for message in row["messages"]:
                assert sorted(message) == ["content", "role"]
                assert message["role"] in ("system", "user", "assistant")
        if given["format"] == "trl":
            assert isinstance(row["tools"], str)


@pytest.mark.extras
def test_a_window_contains_its_turns_once_and_trains_only_their_replies(
    store: Store, tmp_path: Path
) -> None:
    data = tmp_path / "data.jsonl"
    found = write_rows(store, data, mode="window", turns=2)
    for row, (session, first, last) in zip(found, sessions(store, data), strict=True):
        assert last - first in (0, 1)
        trained = [m for m in row["messages"] if m["role"] == "assistant" and "weight" not in m]
        answers = [
            session.messages[call.reply].message.value
            for call in session.calls
            if first <= call.turn <= last
        ]
        assert trained == answers
    whole = write_rows(store, data, mode="episode")
    for row, (session, first, last) in zip(whole, sessions(store, data), strict=True):
        assert (first, last) == (1, len(session.calls))
        last_reply = session.calls[-1].reply
        assert row["messages"] == [
            entry.message.value for entry in session.messages[: last_reply + 1]
        ]


def test_turns_with_several_calls_are_not_split_between_windows(tmp_path: Path) -> None:
    run = make_run(models=["gpt-a"])
    session = uneven_session(run)
    store = fill(tmp_path / "uneven.duckdb", run, [session])
    calls = write_rows(store, tmp_path / "calls.jsonl")
    assert len(calls) == len(session.calls) == 6
    windows = write_rows(store, tmp_path / "windows.jsonl", mode="window", turns=1)
    answers = [sum("weight" not in m and m["role"] == "assistant" for m in row["messages"])
               for row in windows]  # fmt: skip
    assert answers == [2, 1, 3]


@pytest.mark.extras
def test_wasted_turns_are_dropped_or_masked_and_counted(store: Store, tmp_path: Path) -> None:
    # Turn 3 of every session is a malformed reply; some actions of turn 2 had an effect.
    data = tmp_path / "data.jsonl"
    built = assay.sft_filter(data, database=store, drop_waste=True)
    turns = [origin.first_turn for origin in read_row_origins(data)]
    assert 3 not in turns
    assert {1, 2, 4} <= set(turns)
    (step,) = [step for step in built.funnel if step.name == "--drop-waste"]
    assert step.removed.turns == built.left.episodes
    assert step.removed.episodes == 0
    masked = write_rows(store, data, mode="episode", mask_waste=True)
    for row in masked:
        weights = [m.get("weight", 1) for m in row["messages"] if m["role"] == "assistant"]
        assert weights[2] == 0
        assert sum(weights) == len(weights) - 1


def test_notes_are_removed_from_requests_and_replies(tmp_path: Path) -> None:
    store = Store(tmp_path / "expert.duckdb")
    assay.run(
        models=["builtin/expert"],
        episodes=1,
        max_turns=3,
        history=1,
        baselines=False,
        database=store.path,
        traces_dir=tmp_path / "traces",
    )
    noted = write_rows(store, tmp_path / "noted.jsonl")
    plain = write_rows(store, tmp_path / "data.jsonl", drop_notes=True, card=True)
    assert len(plain) == len(noted) == 3
    seen = 0
    for row, before in zip(plain, noted, strict=True):
        for message, whole in zip(row["messages"], before["messages"], strict=True):
            if message["role"] != "assistant":
                assert message == whole
                continue
            seen += 1
            [call], [full] = message["tool_calls"], whole["tool_calls"]
            expected = json.loads(full["function"]["arguments"])
            assert expected.pop("notes").startswith("memory:")
            assert json.loads(call["function"]["arguments"]) == expected
    assert seen == 5
    manifest = json.loads((tmp_path / "data.manifest.json").read_text())
    assert manifest["plan"]["drop_notes"] is True
    assert "--drop-notes" in (tmp_path / "data.card.md").read_text()


def test_relabelled_rows_have_the_experts_replies_in_the_students_states(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "random.duckdb")
    assay.run(
        models=["builtin/random", "builtin/expert"],
        episodes=1,
        max_turns=12,
        history=1,
        actions_per_turn=1,
        baselines=False,
        seed=24,
        database=store.path,
        traces_dir=tmp_path / "traces",
    )

    def answers(rows: list[dict[str, Any]]) -> list[list[str]]:
        calls = [row["messages"][-1]["tool_calls"][0]["function"] for row in rows]
        return [json.loads(call["arguments"])["actions"] for call in calls]

    random = write_rows(store, tmp_path / "random.jsonl", models=["builtin/random"])
    taught = write_rows(store, tmp_path / "data.jsonl", models=["builtin/random"], relabel=True)
    assert [row["messages"][:-1] for row in taught] == [row["messages"][:-1] for row in random]
    assert answers(taught) != answers(random)
    assert taught[0]["messages"][-1]["role"] == "assistant"
    # In its own states the expert gives its recorded reply.
    own = write_rows(store, tmp_path / "own.jsonl", models=["builtin/expert"], drop_notes=True)
    same = write_rows(
        store, tmp_path / "same.jsonl", models=["builtin/expert"], drop_notes=True, relabel=True
    )
    assert answers(same) == answers(own)
    with pytest.raises(UsageError, match="--mode call"):
        write_rows(store, tmp_path / "x.jsonl", mode="episode", relabel=True)


def test_balancing_caps_the_rows_of_a_first_action_at_the_median(
    store: Store, tmp_path: Path
) -> None:
    every = assay.sft_filter(tmp_path / "all.jsonl", database=store)
    balanced = assay.sft_filter(tmp_path / "data.jsonl", database=store, balance_actions=True)
    middle = int(median(every.actions.values()))
    assert dict(balanced.actions) == {
        action: min(count, middle) for action, count in every.actions.items()
    }
    again = assay.sft_filter(tmp_path / "again.jsonl", database=store, balance_actions=True)
    assert again.rows == balanced.rows < every.rows
    assert (tmp_path / "data.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()


def test_duplicate_rows_are_written_once(tmp_path: Path) -> None:
    run = make_run(models=["gpt-a"])
    first = make_session(run)
    copy = replace(first, header=replace(first.header, session_id="copy", replicate=1))
    store = fill(tmp_path / "twice.duckdb", run, [first, copy])
    assert len(write_rows(store, tmp_path / "all.jsonl")) == 8
    built = assay.sft_filter(tmp_path / "data.jsonl", database=store, dedupe=True)
    assert built.rows == 4
    (step,) = [step for step in built.funnel if step.name == "--dedupe"]
    assert (step.removed.episodes, step.removed.turns) == (1, 4)


def test_held_out_worlds_are_written_to_a_separate_file(store: Store, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    built = assay.sft_filter(data, database=store, holdout_seeds="42,44")
    assert built.holdout_path == tmp_path / "data.holdout.jsonl"
    with store.reading() as connection:
        seeds = dict(
            connection.execute("SELECT session_id, seed FROM session_traces").fetchall()
        )
    train = {seeds[origin.session_id] for origin in read_row_origins(data)}
    held = {seeds[origin.session_id] for origin in read_row_origins(data, "holdout")}
    assert held == {42, 44}
    assert not train & held
    assert (
        len(rows(built.holdout_path))
        == built.holdout_rows
        == len(list(read_row_origins(data, "holdout")))
    )
    share = assay.sft_filter(data, database=store, holdout_seeds="30%")
    worlds = {seed for _, seed in share.worlds["holdout"]}
    assert len(worlds) == round(
        0.3 * len({seed for w in share.worlds.values() for _, seed in w})
    )


def test_the_manifest_records_the_settings_and_hashes_of_the_files(
    store: Store, tmp_path: Path
) -> None:
    data = tmp_path / "data.jsonl"
    built = assay.sft_filter(data, database=store, min_achievements=1, sql="steps > 3")
    about = read_lineage(data)
    assert about is not None
    assert about["files"]["train"]["sha256"] == hashlib.sha256(data.read_bytes()).hexdigest()
    assert about["files"]["train"]["rows"] == built.rows
    assert about["filters"] == {"min_achievements": 1, "sql": "steps > 3"}
    assert about["provenance"]["assay"] == assay.__version__
    assert about["left"] == {
        "episodes": built.left.episodes,
        "turns": built.left.turns,
        "tokens": built.left.tokens,
    }
    whole = json.loads((tmp_path / "data.manifest.json").read_text("utf-8"))
    assert len(whole["rows"]) == built.rows
    with store.reading() as connection:
        for session_id, first, _, reward, _ in whole["rows"]:
            (row,) = connection.execute(
                "SELECT reward FROM turns WHERE session_id = ? AND turn = ?",
                [session_id, first],
            ).fetchall()
            assert reward == pytest.approx(row[0])


def test_the_data_card_has_the_funnel_and_figures(store: Store, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    built = assay.sft_filter(data, database=store, min_achievements=1, card=True)
    assert built.card == tmp_path / "data.card.md"
    text = built.card.read_text("utf-8")
    assert f"{built.rows} training rows" in text
    assert "| \\-\\-min" in text or "| --min-achievements |" in text
    for name in ("data.funnel.png", "data.actions.png"):
        assert f"](<{name}>)" in text
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_rows_with_a_missing_message_are_left_out_and_reported(tmp_path: Path) -> None:
    run = make_run(models=["gpt-a"])
    store = fill(tmp_path / "store.duckdb", run, [make_session(run)])
    with store.writing() as connection:
        connection.execute("DELETE FROM message_rows WHERE position = 4")
    built = assay.sft_filter(tmp_path / "data.jsonl", database=store)
    assert built.rows == 1
    (step,) = [step for step in built.funnel if step.name == "messages are stored"]
    assert step.removed.turns == 3
    with store.writing() as connection:
        connection.execute("DELETE FROM message_rows")
    with pytest.raises(UsageError, match="messages are stored"):
        assay.sft_filter(tmp_path / "other.jsonl", database=store)


def without_weights(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: m[name] for name in m if name != "weight"} for m in messages]


@pytest.mark.extras
def test_a_row_is_traced_to_its_episode_and_the_world_is_replayed_to_that_turn(
    tmp_path: Path,
) -> None:
    database = tmp_path / "played.duckdb"
    assay.run(
        models=["builtin/forager"],
        episodes=1,
        max_turns=4,
        baselines=False,
        database=database,
        traces_dir=tmp_path / "traces_v2_synth",
    )
    data = tmp_path / "data.jsonl"
    built = assay.sft_filter(data, database=database)
    for number in (1, built.rows):
        traced = assay.sft_trace(data, number)
        assert traced.replayed
        assert traced.origin.first_turn == number
    assert traced.inventory["health"] > 0
    with pytest.raises(UsageError, match="its rows are 1 to 4"):
        assay.sft_trace(data, 5)
    prompts = tmp_path / "prompts.jsonl"
    assert assay.sft_filter(prompts, database=database, format="prompts").rows == built.rows
    returned = 0.0
    for number, row in enumerate(rows(prompts), start=1):
        world = World.restore(base64.b64decode(row["snapshot"]))
        assert (world.steps, f"{world.digest():016x}") == (row["step"], row["digest"])
        assert row["messages"] == without_weights(rows(data)[number - 1]["messages"][:-1])
        assert (row["seed"], row["task"]) == (42, "crafter/easy")
        returned = returned or row["reward"]
    assert returned == pytest.approx(sum(origin.reward for origin in read_row_origins(data)))
    assert assay.sft_validate(prompts).ok
    folder = tmp_path / "folder.jsonl"
    assay.sft_filter(folder, input_dir=tmp_path / "traces_v2_synth")
    assert folder.read_bytes() == data.read_bytes()
    assert assay.sft_trace(folder, 2).replayed
    with Store(database).writing() as connection:
        connection.execute("UPDATE session_timesteps SET action = 'noop' WHERE step_index = 1")
    assert assay.sft_trace(data, built.rows).replayed is False
    (tmp_path / "data.manifest.json").unlink()
    with pytest.raises(UsageError, match="assay sft filter"):
        assay.sft_trace(data, 1)


@pytest.mark.extras
def test_a_preference_pair_has_two_replies_to_the_same_prompt_in_the_same_state(
    tmp_path: Path,
) -> None:
    database = tmp_path / "played.duckdb"
    assay.run(
        models=["builtin/forager", "builtin/expert"],
        episodes=1,
        replicates=4,
        max_turns=12,
        baselines=False,
        database=database,
        traces_dir=tmp_path / "traces",
        save_traces=False,
    )
    data, trl = tmp_path / "pairs.jsonl", tmp_path / "trl.jsonl"
    built = assay.sft_filter(data, database=database, format="preference")
    assert assay.sft_filter(trl, database=database, format="preference-trl").rows == built.rows
    assert built.rows >= 1
    for name in ("episodes", "turns", "tokens"):
        removed = sum(getattr(step.removed, name) for step in built.funnel)
        assert getattr(built.found, name) - removed == getattr(built.left, name)
    store = Store(database)
    for row, other, origin in zip(rows(data), rows(trl), read_row_origins(data), strict=True):
        with store.reading() as connection:
            sides = [
                load_session(connection, name) for name in (origin.session_id, origin.other)
            ]
        answers = [row["preferred_output"][0], row["non_preferred_output"][0]]
        digests = set()
        for session, answer in zip(sides, answers, strict=True):
            *sent, reply = recorded(session, origin.first_turn)
            assert canonical_json(sent) == canonical_json(row["input"]["messages"])
            assert reply == answer
            digests.add(compute_call_states(session)[origin.first_turn].digest)
        assert len(digests) == 1
        returns = [compute_returns(session)[origin.first_turn] for session in sides]
        assert row["margin"] == pytest.approx(returns[0] - returns[1])
        assert row["margin"] > 2 * row["margin_se"]
        assert (other["prompt"], [other["chosen"][0], other["rejected"][0]]) == (
            row["input"]["messages"],
            answers,
        )
    for path in (data, trl):
        assert assay.sft_validate(path).ok
    alone = assay.sft_filter(None, database=database, models=["builtin/expert"])
    assert alone.left.episodes == 4
    with pytest.raises(UsageError, match="another answer in the same state"):
        assay.sft_filter(
            data, database=database, models=["builtin/expert"], format="preference"
        )


def test_a_pair_is_ordered_only_if_its_interval_is_above_0() -> None:
    def pair(better: list[float], worse: list[float]) -> float | None:
        shared = _SharedState(("{}",), None, "d")
        for answer, earned in (("a", better), ("b", worse)):
            shared.answers[(answer,)] = [
                _Future(answer, 1, reward, 1, "{}") for reward in earned
            ]
        made = _make_pair(shared)
        return None if made is None else made.standard_error

    # Means 4 and 1, each side of variance 1 with 4 futures: the error is sqrt(1/4 + 1/4).
    clear = pair([3, 3, 5, 5], [0, 0, 2, 2])
    assert clear == pytest.approx((4 / 3 / 4 + 4 / 3 / 4) ** 0.5, abs=1e-6)
    assert pair([1, 7], [0, 2]) is None
    assert pair([9], [0, 0]) is None
    assert pair([2, 2], [2, 2]) is None
    # Two equal results do not prove it: a third may differ by an achievement on either side.
    assert pair([3, 3], [2, 2]) is None
    # Five do: the error of each side is 1 / 6, and t of 8 degrees of freedom 2.31.
    assert pair([3] * 5, [2] * 5) == pytest.approx(2**0.5 / 6, abs=1e-6)

"""One episode: its play, its record, and its resume after a stop."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.crafter import World
from assay.crafter.service.app import ServiceSettings, running
from assay.crafter.service.http_client import HttpClient
from assay.episodes.replay import Finding, verify_session
from assay.errors import ModelRefused, ModelRejected, ModelUnavailable
from assay.metrics import BaseHook, StepSeen
from assay.runs.control import Retries, Stop
from assay.runs.events import Event, TrialProgress
from assay.store.journal import read_journal
from assay.store.records import SessionRecord
from assay.types import ChatReply, ChatRequest, TrialState, Usage

from .players import CountingModel, FixedReplyModel, play, settings


def journals(folder: Path) -> list[SessionRecord]:
    sessions = [read_journal(path) for path in folder.glob("*.jsonl")]
    return sorted(sessions, key=lambda session: session.header.episode)


def only(folder: Path) -> SessionRecord:
    (session,) = journals(folder)
    return session


def timeless(session: SessionRecord) -> SessionRecord:
    """Return a session without times and attempt counts."""
    end = session.end
    assert end is not None
    outcomes = {name: value for name, value in end.outcomes.items() if name != "duration_s"}
    return SessionRecord(
        replace(session.header, created_at=0.0),
        [replace(message, at=0.0) for message in session.messages],
        [replace(call, at=0.0, latency_s=0.0) for call in session.calls],
        [replace(played, at=0.0) for played in session.played],
        replace(end, at=0.0, duration_s=0.0, attempts=1, outcomes=outcomes),
    )


def failing_at(*calls: int, error: Exception) -> Callable[[int], None]:
    def trouble(call: int) -> None:
        if call in calls:
            raise error

    return trouble


def test_episode_is_recorded_as_played(tmp_path: Path) -> None:
    model = CountingModel()
    tally = play(tmp_path, model)
    session = only(tmp_path)
    assert tally.results == 1
    assert model.calls == len(session.calls) == len(session.played) == 10
    world = World(session.header.seed or 0, "easy")
    for played in session.played:
        for step in played.steps:
            result = world.step(step.action)
            assert step.reward == result.reward
            assert step.digest == f"{world.digest():016x}"
            assert step.index == world.steps
    assert verify_session(session).finding is Finding.SAME


def test_stored_messages_equal_the_sent_ones(tmp_path: Path) -> None:
    interact = {"content": '{"actions": ["move_left", "do"]}'}
    model = FixedReplyModel(interact)
    play(tmp_path, model)
    session = only(tmp_path)
    at = {record.position: record.message for record in session.messages}
    for call, request in zip(session.calls, model.requests, strict=True):
        assert [at[position] for position in call.request] == list(request.messages)
        assert at[call.reply].value == {"role": "assistant", **interact}
    assert session.header.tools == model.requests[0].tools


def test_malformed_reply_uses_a_turn_and_no_step(tmp_path: Path) -> None:
    model = FixedReplyModel({"content": "I would rather not say."}, {"content": '["do"]'})
    play(tmp_path, model, rules=settings(turns=2))
    first, second = only(tmp_path).played
    assert first.malformed is not None
    assert first.steps == ()
    assert len(second.steps) == 1


@pytest.mark.parametrize(
    ("limits", "says", "reason"),
    [
        ({}, '["noop"]', "max_turns"),
        ({"step_limit": 7}, '["noop", "noop"]', "step_limit"),
        ({"token_limit": 1}, None, "token_limit"),
        ({"time_limit": 0.001, "turns": 10_000}, '["noop"]', "time_limit"),
        ({}, '{"tool": "terminate", "arguments": {"reason": "enough"}}', "terminate: enough"),
    ],
)
def test_reason_for_the_end_of_an_episode_is_recorded(
    tmp_path: Path, limits: dict[str, Any], says: str | None, reason: str
) -> None:
    model = CountingModel() if says is None else FixedReplyModel({"content": says})
    play(tmp_path, model, rules=settings(**limits))
    session = only(tmp_path)
    assert session.end is not None
    assert session.end.stop_reason == reason
    assert session.end.state is TrialState.RESULT
    if "steps" in limits:
        assert sum(len(played.steps) for played in session.played) == 7
        assert session.played[-1].skipped == 1


class MeasuredModel(FixedReplyModel):
    """Replies noop, with given usage numbers for each reply."""

    def __init__(self, **reply: Any) -> None:
        super().__init__({"content": '["noop"]'})
        self._reply = reply

    async def reply(self, request: ChatRequest) -> ChatReply:
        return replace(await super().reply(request), **self._reply)


def test_waiting_time_does_not_count_as_episode_time(tmp_path: Path) -> None:
    play(
        tmp_path, MeasuredModel(latency_s=2.0, waited_s=1000.0), rules=settings(time_limit=15.0)
    )
    session = only(tmp_path)
    assert session.end is not None
    assert session.end.stop_reason == "time_limit"
    assert len(session.calls) == 8
    assert 16 <= session.end.outcomes["duration_s"] < 26
    assert [call.waited_s for call in session.calls] == [1000.0] * 8


def test_reaching_the_token_limit_exactly_ends_the_episode(tmp_path: Path) -> None:
    play(
        tmp_path,
        MeasuredModel(usage=Usage(prompt=90, completion=10)),
        rules=settings(token_limit=300),
    )
    session = only(tmp_path)
    assert session.end is not None
    assert session.end.stop_reason == "token_limit"
    assert len(session.calls) == 3


def test_interrupted_episode_resumes_without_repeated_calls(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    play(whole, CountingModel())
    down = ModelUnavailable("gone")
    first = CountingModel(trouble=failing_at(6, error=down))
    assert play(cut, first).infrastructure == 1
    assert only(cut).end is not None
    second = CountingModel()
    assert play(cut, second).results == 1
    assert (first.calls, second.calls) == (6, 5)
    assert timeless(only(cut)) == timeless(only(whole))
    assert only(cut).end.attempts == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("kept", [0.05, 0.3, 0.5, 0.77, 0.999])
def test_a_journal_cut_anywhere_is_completed_to_the_same_episode(
    tmp_path: Path, kept: float
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    play(whole, CountingModel())
    (journal,) = whole.glob("*.jsonl")
    content = journal.read_bytes()
    (cut / journal.name).write_bytes(content[: int(kept * len(content))])
    answered = content[: int(kept * len(content))].count(b'"kind":"call"')
    model = CountingModel()
    play(cut, model)
    # The last line may be torn; its answer is then lost.
    assert 10 - answered <= model.calls <= 10 - answered + 1
    assert timeless(only(cut)) == timeless(only(whole))


def test_infrastructure_errors_are_retried_within_a_run(tmp_path: Path) -> None:
    trouble = failing_at(3, 5, error=ModelUnavailable("busy"))
    model = CountingModel(trouble=trouble)
    tally = play(tmp_path, model, retries=Retries(attempts=3, first_wait=0.001))
    assert (tally.results, tally.retries) == (1, 2)
    assert model.calls == 10 + 2


def test_damaged_journal_is_kept_and_its_episode_is_not_played_again(tmp_path: Path) -> None:
    play(tmp_path, CountingModel())
    (journal,) = tmp_path.glob("*.jsonl")
    content = bytearray(journal.read_bytes())
    content[len(content) // 2] ^= 1
    journal.write_bytes(content)
    model = CountingModel()
    tally = play(tmp_path, model, retries=Retries(attempts=2, first_wait=0.001))
    assert (tally.results, tally.infrastructure) == (0, 1)
    assert model.calls == 0
    assert journal.read_bytes() == content


def test_a_refusal_is_a_failure_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    model = CountingModel(trouble=failing_at(3, error=ModelRefused("no")))
    tally = play(tmp_path, model, episodes=3)
    assert (tally.failures, tally.results) == (1, 2)
    failed = [s for s in journals(tmp_path) if s.end and s.end.state is TrialState.FAILURE]
    assert failed[0].end is not None
    assert failed[0].end.error is not None
    assert failed[0].end.error.type == "ModelRefused"
    assert "raise error" in failed[0].end.error.traceback
    assert failed[0].end.outcomes == {}


def test_a_model_that_is_rejected_is_stopped_at_once(tmp_path: Path) -> None:
    model = CountingModel(trouble=failing_at(1, error=ModelRejected("no such model")))
    tally = play(tmp_path, model, episodes=50)
    assert tally.stop is not None
    assert tally.stop.reason == "no such model"
    assert tally.results == 0
    assert all(session.end is None for session in journals(tmp_path))


def test_a_hook_that_raises_fails_its_episode(tmp_path: Path) -> None:
    class Broken(BaseHook):
        def on_step(self, seen: StepSeen) -> Any:
            raise KeyError("oops")

    assert play(tmp_path, CountingModel(), hooks=(Broken,)).failures == 1
    session = only(tmp_path)
    assert session.end is not None
    assert session.end.error is not None
    assert session.end.error.type == "HookError"


def test_hooks_are_separate_for_every_episode(tmp_path: Path) -> None:
    model = CountingModel("builtin/forager")
    play(tmp_path, model, episodes=3, rules=settings(turns=40))
    for session in journals(tmp_path):
        noticed = [
            name
            for played in session.played
            for hook in played.hooks
            if hook.name.endswith("_achievement")
            for name in hook.data["achievements"]
        ]
        unlocked = [
            name for played in session.played for step in played.steps for name in step.unlocked
        ]
        assert sorted(noticed) == sorted(unlocked)
        assert len(noticed) == len(set(noticed))


def test_stop_request_finishes_the_turn_and_loses_nothing(tmp_path: Path) -> None:
    stop = Stop()

    def listen(event: Event) -> None:
        if isinstance(event, TrialProgress) and event.payload.turn == 4:
            stop.request()

    first = CountingModel()
    tally = play(tmp_path, first, stop=stop, listen=listen)
    assert tally.interrupted == 1
    assert only(tmp_path).end is None
    second = CountingModel()
    assert play(tmp_path, second).results == 1
    assert first.calls + second.calls == 10


def test_worlds_of_a_service_give_the_same_episodes(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    play(here, CountingModel("builtin/forager"), episodes=2)
    with running(ServiceSettings(port=0)) as service:
        play(
            there,
            CountingModel("builtin/forager"),
            episodes=2,
            worlds=lambda: HttpClient(service.address),
        )
    assert [timeless(s) for s in journals(here)] == [timeless(s) for s in journals(there)]

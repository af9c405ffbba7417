"""Open episodes are finished before others start, so that a stopped run has finished ones."""

import threading
from pathlib import Path
from typing import Any

import pytest

from assay.agents.builtin import make_builtin_models
from assay.api.run_preparation import prepare
from assay.api.runs import run_prepared
from assay.api.servers import serve_models
from assay.models.serving.app import ModelServerSettings, running
from assay.models.serving.faults import Faults
from assay.runs.control import Stop
from assay.runs.events import (
    CallbackObserver,
    Event,
    TrialEnded,
    TrialInterrupted,
    TrialStarted,
)
from assay.runs.executors import make_admission_rule
from assay.runs.kind import ProviderCapacity

from .remote import play

pytestmark = pytest.mark.usefixtures("compiled_engine")

SLOW = ModelServerSettings(port=0, faults=Faults(latency=0.02))


class Openness:
    """Counts the most episodes open at once, and the ended ones."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.most = self.ended = 0

    def __call__(self, event: Event) -> None:
        match event:
            case TrialStarted(trial=trial):
                self.open.add(trial.id)
                self.most = max(self.most, len(self.open))
            case TrialEnded(trial=trial):
                self.open.discard(trial.id)
                self.ended += 1
            case TrialInterrupted(trial=trial):
                self.open.discard(trial.id)


@pytest.mark.parametrize(
    ("calls", "begun", "has_room"),
    [(1, 15, True), (1, 16, False), (64, 79, True), (64, 80, False)],
)
def test_open_episodes_are_16_or_a_quarter_more_than_the_call_limit(
    calls: int, begun: int, has_room: bool
) -> None:
    room = make_admission_rule({name: ProviderCapacity("one", lambda: calls) for name in "ab"})
    assert room("a", {"a": begun - 4, "b": 4, "theirs": 500}) is has_room
    assert room("theirs", {"theirs": 500}), "the call limit of this model is unknown"


@pytest.mark.extras
@pytest.mark.parametrize("chosen", [{}, {"max_concurrent_episodes": 3}], ids=str)
def test_exhausted_budget_leaves_finished_episodes(
    tmp_path: Path, chosen: dict[str, Any]
) -> None:
    seen = Openness()
    with running(SLOW, make_builtin_models()) as server:
        result = play(
            tmp_path,
            server.base_url,
            models=["builtin/noop"],
            **{"episodes": 40, "max_turns": 4, "max_connections": 4, **chosen},
            **{"price": "1/1", "budget": 0.2, "listen": seen},
        )
    assert result.stopped_by is not None
    assert seen.most == chosen.get("max_concurrent_episodes", 16)
    assert len(result.episodes) == seen.ended > 0
    assert result.open_spending["builtin/noop"].trials <= seen.most


def test_built_in_models_finish_open_episodes_first(tmp_path: Path) -> None:
    seen, stop = Openness(), Stop()

    def listen(event: Event) -> None:
        seen(event)
        if seen.ended == 20:
            stop.request()

    settings = {"models": ["builtin/noop"], "episodes": 60, "max_turns": 3}
    files = {"database": tmp_path / "traces.duckdb", "traces_dir": tmp_path / "files"}
    prepared = prepare({**settings, **files, "baselines": False})
    result = run_prepared(prepared, observer=CallbackObserver(listen), stop=stop)
    assert result.interrupted
    assert seen.most == 16
    assert len(result.episodes) >= 20


def test_stopping_run_does_not_wait_for_answers_forever(tmp_path: Path) -> None:
    stop = Stop()
    with serve_models(port=0, faults=Faults(latency=100.0)) as server:
        timers = [threading.Timer(0.5, stop.request), threading.Timer(0.7, stop.cancel_trials)]
        started: list[Event] = []

        def listen(event: Event) -> None:
            if isinstance(event, TrialStarted):
                started.append(event)
                if len(started) == 2:
                    for timer in timers:
                        timer.start()

        prepared = prepare(
            {
                **{"models": ["builtin/noop"], "episodes": 2, "baselines": False},
                **{"openai_base_url": server.base_url, "price": "1/1", "budget": 1.0},
                **{"database": tmp_path / "t.duckdb", "traces_dir": tmp_path / "files"},
            }
        )
        result = run_prepared(prepared, stop=stop, observer=CallbackObserver(listen))
    assert result.interrupted
    assert not stop.is_forced
    assert result.tallies["builtin/noop"].interrupted == 2
    assert result.lost_usd > 0, "what was asked may have to be paid"

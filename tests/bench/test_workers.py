"""Coding trials in workers on this machine and on a Ray cluster give the same results."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.types import ChatReply, ChatRequest
from tests.runs.places import Place

from .runs import WHOLE, calc_task, entry, toml
from .test_react_coder import MEND_ADD, InProcess


class KillingModel(InProcess):
    """A model that kills the calling worker once, at the second call."""

    def __init__(self, place: Place, answers: list[Any]) -> None:
        super().__init__(answers)
        self._place, self.calls, self.killed = place, 0, 0

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.calls += 1
        if self.calls == 2:
            for pid in self._place.workers():
                os.kill(pid, signal.SIGKILL)
                self.killed += 1
        return await super().reply(request)


def test_trial_that_loses_its_worker_is_retried_and_solved(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    calc_task(tmp_path / "task")
    done = {"role": "assistant", "content": "I think that is all."}
    model = KillingModel(place, [MEND_ADD, done, done, done])
    file = toml(
        tmp_path / "bench.toml",
        entry(model="own", sandbox="none")
        + entry(agent="command", command=WHOLE, sandbox="none"),
        parallel=2,
    )
    lines: list[str] = []
    ended = assay.bench_run(
        file, models={"own": model}, **place.settings, workers=1, notice=lines.append
    )
    assert model.killed == 1
    assert ended.run.status == "finished"
    assert [(trial.outcome, trial.score) for trial in ended.manifest.results] == [
        *(("partly_solved", 0.75), ("solved", 1.0))
    ]
    assert any("was killed by SIGKILL" in line for line in lines), lines
    assert place.workers() == []

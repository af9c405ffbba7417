"""Trials in worker processes: the same tables, and no loss when a process dies.

The processes are on this machine, or on the two nodes of a Ray cluster.
"""

import asyncio
import os
import pickle
import re
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay.agents import make_builtin
from assay.api import runs as api_running
from assay.api.run_preparation import prepare
from assay.api.runs import run
from assay.api.servers import serve_models
from assay.crafter.service.app import ServiceSettings
from assay.crafter.service.app import running as serving_worlds
from assay.episodes.config import RunConfig
from assay.episodes.kind import EpisodeKind
from assay.errors import InstanceLimit, ModelUnavailable, UsageError, UserCodeError, WorkerLost
from assay.runs.control import Retries, classify
from assay.runs.engine import Context
from assay.runs.events import Event, TrialProgress
from assay.runs.plan import Trial
from assay.runs.run import RunResult
from assay.runs.workers.channel import pack_error, unpack_error
from assay.runs.workers.process import WorkerAttempt
from assay.store.journal import read_journal
from assay.store.recorder import Recorder
from assay.store.records import SessionHeader
from assay.store.run_folder import RunFolder
from assay.types import ChatReply, ChatRequest, Encoded

from .places import Place, is_alive
from .programs import Program, run_arguments, until
from .remote import money
from .tables import contents, rows

pytestmark = pytest.mark.usefixtures("compiled_engine")

AGENTS = """
import ctypes, os, threading, time

def act(view):
    return "move_left"

class Twice:
    def __init__(self, model, seed):
        self.model, self.turn = model, 0
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()

    def act(self, view):
        self.turn += 1
        first = self.model.ask(f"turn {self.turn}: what is there?")
        second = self.model.ask([{"role": "user", "content": f"and then? {self.turn}"}])
        print("asked twice")
        return ["noop", "move_right"][: 1 + (first.message == second.message)]

class Broken:
    def __init__(self):
        self.turn = 0

    def act(self, view):
        self.turn += 1
        if self.turn == 3:
            raise RuntimeError("no third turn")
        return "noop"

def peeks(view):
    print(os.environ.get("OPENAI_API_KEY"))
    return "noop"

def leaves(view):
    os._exit(7)

def crashes(view):
    ctypes.CDLL(None)._exit(7)

def hangs(view):
    ctypes.PyDLL(None).sleep(1000)  # a call that keeps all threads of Python from running
"""


class Counted:
    """A model that counts its calls, here and in a file."""

    name, provider = "counted", "mine"

    def __init__(
        self,
        file: Path | None = None,
        pause: float = 0.0,
        on_call: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self.calls = 0
        self._file, self._pause, self._on_call = file, pause, on_call
        self._inner = make_builtin("builtin/random")

    async def reply(self, request: ChatRequest) -> ChatReply:
        self.calls += 1
        if self._on_call is not None:
            await self._on_call(self.calls)
        if self._file is not None:
            with self._file.open("ab") as file:
                file.write(b".")
        await asyncio.sleep(self._pause)
        return await self._inner.reply(request)

    async def close(self) -> None:
        """Do nothing: the model opens nothing."""


def play(folder: Path, **settings: Any) -> RunResult:
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(AGENTS, "utf-8")
    chosen: dict[str, Any] = {
        "episodes": 3,
        "max_turns": 5,
        "baselines": False,
        "save_traces": False,
        "run_id": "same",
        "database": folder / "traces.duckdb",
        "traces_dir": folder / "files",
    }
    return run(**{**chosen, **settings})


def agent_names(folder: Path, *names: str) -> list[str]:
    return [f"{folder / 'mine.py'}:{name}" for name in names]


class Killer:
    """Kills the workers of this process once, after so many turns."""

    def __init__(self, place: Place, *turns: int) -> None:
        self.turns, self.killed = 0, 0
        self._at, self._place = turns, place

    def __call__(self, event: Event) -> None:
        if isinstance(event, TrialProgress):
            self.turns += 1
            if self.turns in self._at:
                for pid in self._place.workers():
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1


class CallKiller:
    """Kills all workers of this process during a model call."""

    def __init__(self, place: Place, workers: int, call: int) -> None:
        self.killed = 0
        self._place, self._workers, self._call = place, workers, call

    async def __call__(self, call: int) -> None:
        if call != self._call:
            return
        # A worker may start so late that the others have finished.
        while len(pids := self._place.workers()) < self._workers:
            await asyncio.sleep(0.02)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.killed = len(pids)


def without_places(database: Path) -> dict[str, list[Any]]:
    """Return all tables without the places of trials and paths."""
    found: dict[str, list[Any]] = dict(contents(database))
    for table in ("runs", "experiments", "session_traces", "trials"):
        found.pop(table, None)
    left_out = ("metadata", "config", "error_traceback", "duration_s", "wall", "attempts")
    found["sessions"] = sorted(
        str({k: v for k, v in row.items() if k not in left_out and not hasattr(v, "year")})
        for row in rows(database, "session_traces")
    )
    return found


@pytest.mark.parametrize("workers", [1, 2], ids=["one", "two"])
def test_a_run_in_processes_that_are_killed_equals_one_in_this_process(
    tmp_path: Path, place: Place, workers: int
) -> None:
    """The number of model calls is equal, too: no answer is lost with a worker."""
    (tmp_path / "mine.py").write_text(AGENTS, "utf-8")
    agents = agent_names(tmp_path, "act", "Twice", "Broken")
    killer = CallKiller(place, workers, 20)
    here, there = Counted(), Counted(pause=0.01, on_call=killer)
    first = play(tmp_path / "here", models=[here], agents=agents)
    notices: list[str] = []
    second = play(
        tmp_path / "there",
        models=[there],
        agents=agents,
        **place.settings,
        workers=workers,
        concurrent_models=True,
        notice=notices.append,
    )
    assert first.status == second.status == "finished"
    assert here.calls == there.calls == 3 * 5 + 3 * 5 * 2
    assert killer.killed == workers
    assert any("was killed by SIGKILL" in line for line in notices), notices
    assert any("Twice printed: asked twice" in line for line in notices), notices
    assert any("threads started by user code are still running" in s for s in notices), notices
    tables = [
        without_places(tmp_path / folder / "traces.duckdb") for folder in ("here", "there")
    ]
    for name, found in tables[0].items():
        assert found == tables[1][name], name
    for result in (first, second):
        broken = {row.error_message for row in result.episodes if row.state == "failure"}
        line = f"{tmp_path / 'mine.py'}:26: RuntimeError: no third turn"
        assert broken == {f"Broken: {line}"}
    assert place.workers() == []


def test_answer_is_kept_if_the_next_worker_dies_at_startup(tmp_path: Path) -> None:
    """As when a node leaves, and the next worker is placed there before that is noticed."""
    model = Counted()
    header = SessionHeader(
        session_id="s",
        run_id="r",
        experiment_id="e",
        subject="counted",
        task="crafter/easy",
        seed=1,
        episode=0,
        created_at=0.0,
    )
    trial = Trial("s", "counted", 0, None)

    async def lose_workers() -> list[ChatReply]:
        recorder = Recorder.open(tmp_path / "s.jsonl", lambda: header)
        attempted = WorkerAttempt(trial, recorder, Context())
        replies = []
        for number, asks in enumerate((True, False, True)):
            attempted.make_task(number)
            if asks:
                request = ChatRequest("counted", [], Encoded([]), seed=1)
                replies.append(await attempted.call_model(model, request))
        return replies

    first, second = asyncio.run(lose_workers())
    assert first is second
    assert model.calls == 1


def test_unpicklable_agent_is_rejected_before_the_run_starts(tmp_path: Path) -> None:
    def local(view: Any) -> str:
        return "noop"

    def of_the_program(view: Any) -> str:
        return "noop"

    of_the_program.__module__ = "__main__"
    for agent, words in ((local, "local"), (of_the_program, "in the main program")):
        with pytest.raises(
            UsageError, match=f"agent 'mine' cannot be sent .*{words}"
        ) as caught:
            play(tmp_path / "files", agents={"mine": agent}, executor="processes")
        assert "mine.py:act" in str(caught.value)
        assert 'executor = "asyncio"' in str(caught.value)
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["mine.py"]


def test_keys_are_not_sent_to_workers() -> None:
    prepared = prepare(
        {"models": ["builtin/noop"], "openai_api_key": "sk-very-secret"}, dry=True
    )
    assert prepared.config.openai_api_key is not None
    kind = EpisodeKind(prepared.config, prepared.arms, _no_parts, {"mine": Counted()})
    sent = pickle.dumps(kind)
    assert b"very-secret" not in sent
    # Only models that do not need the driver answer in a worker.
    assert not pickle.loads(sent).models


def _no_parts(config: RunConfig) -> Any:
    return None


def test_error_from_a_worker_keeps_its_class() -> None:
    class Odd(ConnectionError):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    for error in (
        ModelUnavailable("too busy", "overload"),
        InstanceLimit("no room", 7),
        Odd(1, 2),
        UserCodeError("mine.py:3: no"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "odd"),
    ):
        arrived = unpack_error(pickle.loads(pickle.dumps(pack_error(error))))
        assert isinstance(arrived, Exception)
        assert (type(arrived).__name__, str(arrived)) == (type(error).__name__, str(error))
        assert vars(arrived) == vars(error)
        sent, received = classify(error), classify(arrived)
        assert (sent.reason, getattr(sent, "state", None)) == (
            received.reason,
            getattr(received, "state", None),
        )
        assert getattr(sent, "retry_after", None) == getattr(received, "retry_after", None)
        assert f"{type(error).__name__}: " in str(arrived.__cause__)


def counted(executor: str, address: str = "auto") -> int:
    """Run a model that appends a byte to the file `asked` for each call."""
    model = Counted(Path("asked"), pause=0.005)
    where = {"executor": executor, "ray_address": address, "workers": 1}
    play(Path(), models=[model], episodes=4, max_turns=20, **where)
    return 0


@pytest.mark.parametrize("after", ["here", "there"])
def test_workers_end_with_a_killed_driver_and_its_run_is_resumed(
    tmp_path: Path, place: Place, after: str
) -> None:
    asked = tmp_path / "asked"

    def count() -> int:
        return asked.stat().st_size if asked.exists() else 0

    there = tuple(map(str, place.settings.values()))
    program = Program(tmp_path, *there, main=counted)
    program.until(lambda: count() >= 30, "some calls")
    (worker,) = place.workers(program.pid)
    program.kill()
    until(lambda: not is_alive(worker), "the end of the worker")
    before = count()
    folder = RunFolder.open(tmp_path / "traces.duckdb", "same")
    answered = sum(len(read_journal(path).calls) for path in folder.journals())
    assert 0 < answered <= before < 80
    asked.unlink()
    program = Program(tmp_path, *(there if after == "there" else ["asyncio"]), main=counted)
    assert program.wait() == 0, program.errors
    assert count() == 80 - answered


def test_ctrl_c_stops_a_run_in_processes_cleanly(tmp_path: Path, place: Place) -> None:
    more = (*place.options, "--workers", "2")
    # Enough time for a worker that starts late.
    program = Program(tmp_path, *run_arguments(tmp_path, *more, pause=0.2))
    program.until(lambda: len(place.workers(program.pid)) == 2, "both workers")
    workers = place.workers(program.pid)
    program.until(lambda: program.turns >= 5, "some turns")
    for pid in workers:
        os.kill(pid, signal.SIGINT)  # not for the workers
    program.until(lambda: program.turns >= 10, "more turns")
    program.interrupt()
    assert program.wait() == 130, program.errors
    assert "worker process" not in program.errors
    assert not any(map(is_alive, workers))
    played = program.turns
    again = Program(tmp_path, *run_arguments(tmp_path, *more, pause=0.0))
    assert again.wait() == 0, again.errors
    assert played < 80
    assert len(rows(tmp_path / "traces.duckdb", "session_traces")) == 4


def test_budget_is_enforced_and_keys_are_hidden_in_workers(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    settings: dict[str, Any] = {
        "models": ["builtin/forager"],
        "agents": agent_names(tmp_path, "peeks"),
        "episodes": 4,
        "max_turns": 6,
        "price": "1/2",
    }
    notices: list[str] = []
    with serve_models(port=0) as server:
        settings["openai_base_url"] = server.base_url
        play(tmp_path, **settings, run_id="whole")
        whole = money(tmp_path / "traces.duckdb")
        server.reset()
        settings |= {**place.settings, "workers": 2, "notice": notices.append}
        (tmp_path / "paid").mkdir()
        settings["database"] = tmp_path / "paid" / "traces.duckdb"
        stopped = play(tmp_path, **settings, budget=whole / 2)
        assert stopped.interrupted
        assert "are spent" in (stopped.stopped_by or "")
        stats = server.stats()
        assert 0 < (stats["prompt_tokens"] + 2 * stats["completion_tokens"]) / 1e6 <= whole / 2
        finished = play(tmp_path, **settings, budget=whole * 2)
        assert finished.resumed
        assert finished.status == "finished"
        assert server.stats()["outcomes"]["answered"] == 24
    assert money(tmp_path / "paid" / "traces.duckdb") == pytest.approx(whole)
    assert "peeks printed: None" in notices


def test_workers_use_worlds_of_a_service(tmp_path: Path, place: Place) -> None:
    with serving_worlds(ServiceSettings(port=0)) as service:
        settings = {"models": ["builtin/forager"], "service_url": service.address}
        play(tmp_path / "here", **settings)
        play(tmp_path / "there", **settings, **place.settings, workers=2)
    tables = [
        without_places(tmp_path / folder / "traces.duckdb") for folder in ("here", "there")
    ]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("leaves", "SystemExit: 7"),
        ("crashes", "lost 3 worker processes, .* exited with status 7"),
        ("hangs", "lost 3 worker processes, .* native code hangs"),
    ],
)
def test_agent_that_ends_its_process_fails_and_others_continue(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.setattr(api_running, "_HANG_S", 5.0)
    result = play(
        tmp_path,
        agents=agent_names(tmp_path, name, "act"),
        episodes=1,
        **place.settings,
        workers=1,
        concurrent_models=True,
        decision_limit=10.0,
    )
    assert result.status == "finished"
    states = {row.model.rpartition(":")[2]: row.state for row in result.episodes}
    assert states == {name: "failure", "act": "result"}
    (message,) = (row.error_message for row in result.episodes if row.state == "failure")
    assert re.search(words, message or "")


def test_trial_whose_workers_are_killed_is_not_a_failure(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_running, "Retries", partial(Retries, attempts=1))
    settings: dict[str, Any] = {
        "models": ["builtin/random"],
        "episodes": 1,
        **place.settings,
        "workers": 1,
    }
    result = play(tmp_path, **settings, listen=Killer(place, *range(1000)))
    (row,) = result.episodes
    assert (row.state, row.error_type) == ("infrastructure", WorkerLost.__name__)
    assert "was killed by SIGKILL" in (row.error_message or "")
    again = play(tmp_path, **settings)
    assert again.resumed
    assert again.status == "finished"


def test_late_worker_does_not_use_a_changed_agent_file(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_running, "Retries", partial(Retries, attempts=1))
    killer = Killer(place, 3)

    def listen(event: Event) -> None:
        killer(event)
        if killer.killed:
            (tmp_path / "mine.py").write_text(AGENTS.replace("left", "right"), "utf-8")

    (tmp_path / "mine.py").write_text(AGENTS, "utf-8")
    agents = agent_names(tmp_path, "act")
    result = play(
        tmp_path, agents=agents, episodes=1, **place.settings, workers=1, listen=listen
    )
    (row,) = result.episodes
    assert (row.state, row.error_type) == ("infrastructure", WorkerLost.__name__)
    assert "was changed after the run started" in (row.error_message or "")

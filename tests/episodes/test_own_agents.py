"""User agents: run, resumed, and contained despite any misbehaviour."""

import asyncio
import threading
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import pytest

from assay.api.comparison import compare
from assay.api.run_preparation import prepare
from assay.api.runs import run_prepared
from assay.api.servers import serve_models
from assay.api.traces import load_trace, verify
from assay.errors import ModelUnavailable, UsageError
from assay.runs.control import Stop
from assay.runs.events import CallbackObserver, Event, TrialProgress
from assay.store.journal import is_blank, read_journal
from assay.store.run_folder import journal_root
from tests.runs.programs import Program, until
from tests.runs.tables import rows
from tests.support import call_assay

from .own_things import AGENTS, BANDIT, EXECUTORS, CountedModel, count_calls, errors_of, play_in

pytestmark = pytest.mark.usefixtures("compiled_engine")

KILLED: dict[str, dict[str, Any]] = {
    "bandit": {"environment": "bandit.py:Bandit", "agents": ["agents.py:Switching"]},
    "cartpole": {
        "environment": "gymnasium:CartPole-v1",
        "agents": ["agents.py:Leaning"],
        "baselines": True,
        "max_turns": 12,
    },
    "twice": {"agents": ["agents.py:Twice"], "max_turns": 5},
}
"""Runs that are killed; each has two arms."""
DATABASE = "crafter_multi_model_traces.duckdb"


def killed_run(case: str, executor: str) -> int:
    """Run one of them as a subprocess."""
    more = {} if executor == "asyncio" else {"executor": executor}
    play_in(
        Path(),
        models=[CountedModel()],
        episodes=20,
        max_concurrent_episodes=4,
        run_id="killed",
        **KILLED[case],
        **more,
    )
    return 0


def calls_kept(folder: Path) -> dict[str, int]:
    """Count the calls of each session that a process left in journals or in the store."""
    kept: dict[str, int] = {}
    database = folder / DATABASE
    for row in rows(database, "session_traces") if database.exists() else ():
        kept[row["session_id"]] = 0
    for row in rows(database, "events") if database.exists() else ():
        kept[row["session_id"]] += row["event_type"] == "cais"
    for path in journal_root(database).glob("killed/*.jsonl"):
        if not is_blank(path):
            session = read_journal(path)
            kept[session.header.session_id] = len(session.calls)
    return kept


@pytest.mark.extras
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    "case",
    [
        "twice",
        pytest.param("bandit", marks=pytest.mark.extras),
        pytest.param("cartpole", marks=pytest.mark.extras),
    ],
)
def test_a_killed_run_resumes_without_asking_again_is_verified_and_compared(
    tmp_path: Path, case: str, executor: str
) -> None:
    program = Program(tmp_path, case, executor, main=killed_run)
    program.until(lambda: count_calls(tmp_path) >= 90, "some calls")
    program.kill()
    before = calls_kept(tmp_path)
    (tmp_path / "asked").unlink()
    program = Program(tmp_path, case, executor, main=killed_run)
    assert program.wait() == 0, program.errors
    after = calls_kept(tmp_path)
    assert 0 < sum(before.values()) < sum(after.values())
    assert count_calls(tmp_path) == sum(after.values()) - sum(before.values())
    assert not journal_root(tmp_path / DATABASE).exists()
    with chdir(tmp_path):
        verified = verify()
        assert [found.finding for found in verified] == ["same"] * 40
        comparison = compare("latest")
        assert len(comparison.subjects) == 2


MISBEHAVING = """
import os
import sys
import threading
import time


class Stop(BaseException):
    pass


def raising(seen):
    counts = {}
    return counts["wood"]


def in_library(seen):
    import json

    return json.loads("{")


def leaving(seen):
    sys.exit("enough")


def exiting(seen):
    os._exit(7)


def stopping(seen):
    raise Stop("now")


def hanging(seen):
    time.sleep(60)


def confused(seen):
    return 3.5


def beyond(seen):
    return 2


def inventing(seen):
    return "up"


def printing(seen):
    print("seen", len(seen), "letters")
    print("x" * 10_000)
    return "left"


def threading_(seen):
    threading.Thread(target=time.sleep, args=(60,), daemon=False).start()
    return "left"


class Unmade:
    def __init__(self):
        raise ValueError("no luck")

    def act(self, seen):
        return "left"


def fine(seen):
    return ["left", "right"]
"""


MISBEHAVE = (
    *("raising", "in_library", "leaving", "exiting", "stopping", "hanging", "confused"),
    *("beyond", "inventing", "printing", "threading_", "Unmade", "fine"),
)


@pytest.fixture(scope="module")
def misbehaved(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A run of all misbehaving agents, which ends despite the threads they leave running."""
    folder = tmp_path_factory.mktemp("misbehaving")
    (folder / "agents.py").write_text(MISBEHAVING, "utf-8")
    (folder / "bandit.py").write_text(BANDIT, "utf-8")
    program = Program(
        folder,
        *("run", "--agents", *(f"agents.py:{name}" for name in MISBEHAVE), "--episodes", "2"),
        *("--environment", "bandit.py:Bandit", "--no-baselines", "--max-turns", "20"),
        *("--decision-limit", "2"),
    )
    assert program.wait() == 1, program.errors
    return program


def ends(program: Program, agent: str) -> list[tuple[str, str, str | None]]:
    """Return the ends of the episodes of an agent."""
    stored = rows(program.folder / DATABASE, "episodes")
    return [
        (row["state"], row["stop_reason"], row["error_message"])
        for row in stored
        if row["model"] == agent
    ]


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("raising", "raising: agents.py:14: KeyError: 'wood'"),
        ("in_library", "in_library: agents.py:20: JSONDecodeError: "),
        ("leaving", "leaving: agents.py:24: SystemExit: enough"),
        ("exiting", "exiting: agents.py:28: SystemExit: 7"),
        ("stopping", "stopping: agents.py:32: Stop: now"),
        ("hanging", "hanging took longer than 2 s, at agents.py:36; --decision-limit"),
        (
            "confused",
            "confused returned 3.5; return the name of an action, its index from 0 to 1",
        ),
        ("beyond", "beyond returned 2; return the name of an action, its index from 0 to 1"),
        ("Unmade", "Unmade: agents.py:64: ValueError: no luck"),
    ],
)
def test_misbehaviour_of_an_agent_is_a_failure_with_the_line(
    misbehaved: Program, agent: str, message: str
) -> None:
    first, second = ends(misbehaved, agent)
    assert first == second
    assert first[:2] == ("failure", "UserCodeError")
    assert str(first[2]).startswith(message)


def test_other_agents_continue_when_one_fails(misbehaved: Program) -> None:
    for agent in ("fine", "printing", "threading_"):
        assert ends(misbehaved, agent) == [("result", "done", None)] * 2


def test_unknown_action_is_counted_and_not_played(misbehaved: Program) -> None:
    assert ends(misbehaved, "inventing") == [("result", "max_turns", None)] * 2
    stored = rows(misbehaved.folder / DATABASE, "episodes")
    counts = {
        (row["unknown_actions"], row["steps"]) for row in stored if row["model"] == "inventing"
    }
    assert counts == {(20, 0)}


def test_output_of_an_agent_is_forwarded_in_lines_up_to_a_limit(misbehaved: Program) -> None:
    lines = misbehaved.errors.splitlines()
    printed = [line for line in lines if line.startswith("printing printed")]
    assert printed[0] == "printing printed: seen 12 letters"
    assert printed[-1] == "printing printed more, which is not shown"
    assert len("".join(printed)) < 5_000


def test_threads_left_running_by_an_agent_are_reported(misbehaved: Program) -> None:
    assert "threads started by user code are still running" in misbehaved.errors


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ({"mine": 7}, "agent 'mine' is 'int'; give a function act(view), or a class"),
        ({"mine": type("Mine", (), {})}, "agent 'mine' is a class without a method act(view)"),
        (["agents.py"], "agent 'agents.py' is not allowed; give a Python file and the name"),
        (["agents.py:lefty"], "agents.py has no 'lefty'; it has left, Switching, Leaning"),
        (["gone.py:act"], "cannot read 'gone.py': the file does not exist"),
        (["agents.py:Twice"], "agents.py:Twice takes a model, and the run has none"),
        ({"mine": lambda: "noop"}, "agent 'mine': act() must accept the view as its only"),
        (
            {"mine": type("Mine", (), {"act": lambda self, view, more: "noop"})},
            "agent 'mine': act(self, view, more) must accept the view as its only argument",
        ),
    ],
)
def test_invalid_agent_is_rejected_before_the_run_starts(
    tmp_path: Path, agents: Any, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        play_in(tmp_path, agents=agents)
    assert message in str(refused.value)
    assert not (tmp_path / DATABASE).exists()


def test_agent_class_with_an_unknown_parameter_is_rejected(tmp_path: Path) -> None:
    class Needy:
        def __init__(self, model: object, depth: int) -> None: ...

        def act(self, view: object) -> str:
            return "noop"

    with pytest.raises(UsageError, match="'Needy' requires 'depth', which is not provided"):
        play_in(tmp_path, agents={"Needy": Needy}, models=[CountedModel()])


def test_functions_objects_coroutines_and_classes_can_be_agents(tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    class Full:
        def __init__(self, model: Any, seed: int, settings: Any, depth: int = 2) -> None:
            seen.append((model.name, seed, settings.max_tokens, depth))
            self.model = model

        async def act(self, view: Any) -> int:
            answers = await asyncio.gather(*(self.model.ask_async(f"{n}?") for n in range(3)))
            assert [answer.message.text for answer in answers] == [
                f"answer to {number}?" for number in range(3)
            ]
            return 1

    class Patient:
        @staticmethod
        def act(view: Any) -> list[str]:
            return ["left", "right"]

    async def soon(view: Any) -> str:
        await asyncio.sleep(0)
        return "left"

    result = play_in(
        tmp_path,
        agents={"full": Full, "patient": Patient(), "same": Patient, "soon": soon},
        models=[CountedModel()],
        environment="bandit.py:Bandit",
        episodes=2,
        seed=5,
        max_tokens=77,
    )
    assert {row.state for row in result.episodes} == {"result"}
    by_arm = {row.model: row for row in result.episodes}
    assert list(by_arm) == ["counted", "full+counted", "patient", "same", "soon"]
    assert sorted(seen) == [("counted", 5, 77, 2), ("counted", 6, 77, 2)]
    assert (by_arm["patient"].turns, by_arm["patient"].steps) == (5, 10)
    assert (by_arm["full+counted"].turns, by_arm["full+counted"].prompt_tokens) == (10, 300)


@pytest.mark.extras
def test_agent_that_answers_differently_after_a_resume_fails_with_the_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "agents.py").write_text(
        "import random\n\n\ndef moody(seen):\n    return random.choice(['left', 'right'])\n\n\n"
        + AGENTS,
        "utf-8",
    )
    stop = Stop()
    settings: dict[str, Any] = {
        "agents": ["agents.py:moody", "agents.py:left"],
        "environment": "bandit.py:Bandit",
        "baselines": False,
        "concurrent_models": True,
    }
    (tmp_path / "bandit.py").write_text(BANDIT.replace("= 10", "= 1000"), "utf-8")
    turns = 0

    def listen(event: Event) -> None:
        nonlocal turns
        turns += isinstance(event, TrialProgress)
        if turns == 100:
            stop.request()

    with chdir(tmp_path):
        settings |= {"episodes": 1, "max_turns": 1000}
        first = run_prepared(prepare(settings), observer=CallbackObserver(listen), stop=stop)
        assert first.interrupted
        prepared = prepare(settings)
        assert prepared.resumed is not None
        result = run_prepared(prepared)
    states = {row.model: (row.state, row.stop_reason) for row in result.episodes}
    assert states == {"moody": ("failure", "UserCodeError"), "left": ("result", "done")}
    (message,) = errors_of(result, "moody")
    assert "differs from its journal" in message
    assert "agents.py:moody" in message
    assert "must be deterministic" in message


def test_call_that_an_agent_does_not_await_belongs_to_its_turn(tmp_path: Path) -> None:
    model = CountedModel(pause=0.02)

    class Hasty:
        def __init__(self, model: Any) -> None:
            self.model, self.turn = model, 0

        def act(self, view: Any) -> str:
            self.turn += 1
            ask = self.model.ask
            threading.Thread(target=ask, args=(f"Turn {self.turn}?",), daemon=True).start()
            until(lambda: len(model.requests) == 10 + self.turn, "the call to begin")
            return "left"

    result = play_in(
        tmp_path,
        agents={"hasty": Hasty},
        models=[model],
        environment="bandit.py:Bandit",
        episodes=1,
    )
    (row,) = (row for row in result.episodes if row.model == "hasty+counted")
    assert row.state == "result"
    with chdir(tmp_path):
        calls = load_trace(row.session_id).session.calls
    assert [call.turn for call in calls] == [*range(1, 11)]


def test_unreachable_model_is_not_a_failure_of_the_agent(tmp_path: Path) -> None:
    class Careless:
        def __init__(self, model: Any) -> None:
            self.model = model

        def act(self, view: Any) -> str:
            with suppress(Exception):
                self.model.ask("Which?")
            return "left"

    def trouble(call: int) -> None:
        if call == 11:
            raise ModelUnavailable("nobody answers")

    result = play_in(
        tmp_path,
        agents={"careless": Careless},
        models=[CountedModel(trouble=trouble)],
        environment="bandit.py:Bandit",
        episodes=1,
    )
    tally = result.tallies["careless+counted"]
    assert (tally.results, tally.failures, tally.retries) == (1, 0, 1)
    assert count_calls(tmp_path) == 10 + 1 + 10


@pytest.mark.extras
def test_budget_stops_an_agent_between_calls_and_a_larger_one_resumes_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "agents.py").write_text(AGENTS, "utf-8")
    arm = '[[arms]]\nagent = "agents.py:Twice"\nmodel = "builtin/forager"\n'
    (tmp_path / "one.toml").write_text(arm, "utf-8")
    with serve_models(port=0) as server:
        chosen = (
            *("run", "--config", "one.toml", "--openai-base-url", server.base_url),
            *("--price", "1/2", "--episodes", "2", "--max-turns", "4", "--no-baselines"),
        )
        stopped = call_assay(tmp_path, *chosen, "--budget", "0.0025", "--run-id", "capped")
        assert stopped.code == 130, stopped.errors
        assert "assay run --resume capped --budget" in stopped.output
        calls = server.stats()["outcomes"]["answered"]
        done = call_assay(tmp_path, *chosen, "--budget", "9", "--run-id", "capped")
        assert done.code == 0, done.errors
        assert 0 < calls < server.stats()["outcomes"]["answered"] == 2 * 4 * 2

"""Runs killed at any moment and then resumed: nothing is lost, no call is repeated."""

import asyncio
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.api.run_preparation import prepare
from assay.api.traces import list_sessions
from assay.store.journal import is_blank, read_journal
from assay.store.run_folder import RunFolder, journal_root

from .programs import Program, run_arguments
from .tables import calls_at, contents

pytestmark = pytest.mark.usefixtures("compiled_engine")

RUN = "killed"
TURNS = 2 * 8 * 20


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed run."""
    folder = tmp_path_factory.mktemp("plain")
    program = start(folder)
    assert program.wait() == 0, program.errors
    return folder


def start(folder: Path, main: Callable[..., int] | None = None) -> Program:
    more = ("--models", "builtin/random", "builtin/forager", "--max-concurrent-episodes", "5")
    given = run_arguments(folder, *more, "--run-id", RUN, episodes=8)
    return Program(folder, *given, main=main)


def journaled(folder: Path) -> dict[tuple[str, int], int]:
    """Return the time of each answer that a process left in journals or in the store."""
    database = folder / "traces.duckdb"
    found = calls_at(database)
    for path in journal_root(database).glob(f"{RUN}/*.jsonl"):
        if not is_blank(path):
            session = read_journal(path)
            for call in session.calls:
                found[session.header.session_id, call.turn] = round(call.at * 1_000_000)
    return found


def count_left(folder: Path) -> int:
    """Count the turns that the next process plays or replays: those of open episodes."""
    database = folder / "traces.duckdb"
    # A set: between storing a session and deleting its journal, a kill leaves both.
    ended = set(calls_at(database))
    for path in journal_root(database).glob(f"{RUN}/*.jsonl"):
        session = None if is_blank(path) else read_journal(path)
        if session is not None and session.end is not None:
            ended |= {(session.header.session_id, call.turn) for call in session.calls}
    return TURNS - len(ended)


def kill_once(folder: Path, chance: random.Random) -> bool:
    """Start or resume the run and kill it at some moment; return whether it was alive."""
    turns = count_left(folder)
    # Some kills happen after the last turn, while sessions are stored and files written.
    turn, pause = chance.randrange(int(turns * 1.2) + 1), chance.random()
    pause *= 0.01 if turn <= turns else 0.5
    program = start(folder)
    program.until(lambda: program.turns >= min(turn, turns), "the turn to be killed in")
    time.sleep(pause)
    met = program.alive
    program.kill()
    return met


def check_kills(folder: Path, plain: Path, chance: random.Random, kills: int) -> int:
    """Kill a run repeatedly, let it end, compare; return how many kills hit it alive."""
    answered: dict[tuple[str, int], int] = {}
    met = 0
    for _ in range(kills):
        met += kill_once(folder, chance)
        after = journaled(folder)
        assert answered.items() <= after.items()
        answered = after
    program = start(folder)
    assert program.wait() == 0, program.errors
    assert answered.items() <= calls_at(folder / "traces.duckdb").items()
    assert contents(folder / "traces.duckdb") == contents(plain / "traces.duckdb")
    assert not journal_root(folder / "traces.duckdb").exists()
    return met


@pytest.mark.extras
@pytest.mark.parametrize(
    ("seed", "kills"), [(1, 1), pytest.param(2, 3, marks=pytest.mark.extras)]
)
def test_killed_run_resumes_to_the_result_of_an_undisturbed_run(
    plain: Path, tmp_path: Path, seed: int, kills: int
) -> None:
    assert check_kills(tmp_path, plain, random.Random(seed), kills)


@pytest.mark.extras
@pytest.mark.parametrize("seed", range(100, 115))
def test_kills_at_many_moments_change_nothing(
    plain: Path,
    tmp_path: Path,
    seed: int,
    record_property: Callable[[str, object], None],
) -> None:
    met = check_kills(tmp_path, plain, random.Random(seed), 2)
    record_property("note", f"{met} of 2 kills met the run alive")


class CountedModel:
    """A built-in model that appends a byte to a file for each call."""

    provider = "builtin"

    def __init__(self, name: str) -> None:
        from assay.agents import make_builtin

        self.name = name
        self._inner = make_builtin(name)

    async def reply(self, request: Any) -> Any:
        with Path("asked").open("ab") as file:
            file.write(b".")
        await asyncio.sleep(0.002)
        return await self._inner.reply(request)

    async def close(self) -> None:
        """Do nothing: the model opens nothing."""


def counted(*_: str) -> int:
    """Run the command with counting models."""
    from assay.crafter.service.client import LocalClient
    from assay.episodes.kind import EpisodeKind, EpisodeParts
    from assay.runs.run import execute_run

    prepared = prepare(
        {"models": ["builtin/random"], "episodes": 4, "max_turns": 20, "baselines": False},
        run_id=RUN,
    )
    kind = EpisodeKind(
        prepared.config,
        prepared.arms,
        lambda _: EpisodeParts(LocalClient),
        {"builtin/random": CountedModel("builtin/random")},
    )
    execute_run(prepared, kind)
    return 0


@pytest.mark.extras
def test_calls_with_journaled_answers_are_not_repeated(tmp_path: Path) -> None:
    asked = tmp_path / "asked"

    def count() -> int:
        return asked.stat().st_size if asked.exists() else 0

    program = Program(tmp_path, main=counted)
    program.until(lambda: count() >= 30, "some calls")
    program.kill()
    before = count()
    folder = RunFolder.open(tmp_path / "crafter_multi_model_traces.duckdb", RUN)
    answered = sum(len(read_journal(path).calls) for path in folder.journals())
    assert 0 < answered <= before < 80
    (count_left,) = list_sessions(
        database=tmp_path / "crafter_multi_model_traces.duckdb"
    ).unfinished
    assert (count_left.run_id, count_left.process) == (RUN, None)
    assert sum(session.turns for session in count_left.sessions) == answered
    os.unlink(asked)
    program = Program(tmp_path, main=counted)
    assert program.wait() == 0, program.errors
    assert count() == 80 - answered

"""A database with known contents: episodes of every kind that a filter distinguishes."""

from dataclasses import replace
from pathlib import Path

from assay.store.records import RunRecord, SessionRecord
from assay.store.store import Store
from assay.types import TrialState
from tests.store.sessions import make_run, make_session
from tests.store.stores import fill

__all__ = ["MODELS", "known_store", "of_run"]

MODELS = ("gpt-a", "gpt-b", "builtin/random")
_ENDS = ("died: zombie", "length", "max_turns", "terminate: enough", "step_limit", "time_limit")


def of_run(run: RunRecord, model: str, episode: int, **given: object) -> SessionRecord:
    """Return a session; its number determines its length and how it ended."""
    session = make_session(run, model, episode, turns=3 + episode % 4, **given)  # type: ignore[arg-type]
    assert session.end is not None
    if session.end.state is not TrialState.RESULT:
        return session
    end = replace(session.end, stop_reason=_ENDS[episode % len(_ENDS)])
    difficulty = "hard" if episode % 3 == 0 else "easy"
    header = replace(session.header, difficulty=difficulty, task=f"crafter/{difficulty}")
    return replace(session, header=header, end=end)


def known_store(path: Path) -> Store:
    """Create a database of three models in two runs: 22 episodes, some failed or unpriced."""
    first = make_run("run-1", MODELS, baselines=["builtin/random"])
    second = make_run("run-2", MODELS[:1], created_at=first.created_at + 1000)
    sessions = [of_run(first, model, episode) for model in MODELS for episode in range(6)]
    fill(path, first, sessions)
    others = [
        of_run(second, MODELS[0], 6, price=None),
        of_run(second, MODELS[0], 7, state=TrialState.INFRASTRUCTURE),
        of_run(second, MODELS[0], 8, price=None),
        replace(of_run(second, MODELS[0], 9), calls=[], messages=[]),
    ]
    store = fill(path, second, others)
    with store.writing() as connection:
        # assay does not write such a number, but a file may come from elsewhere.
        connection.execute(
            "UPDATE session_traces SET total_reward = 'NaN'"
            " WHERE run_id = 'run-2' AND episode = 8"
        )
    return store

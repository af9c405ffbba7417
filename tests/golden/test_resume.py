"""An unfinished run of commit 557b711 resumes today, and no request is sent twice."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support import Finished

from .commands import KILLED
from .files import command, differences, unpack
from .player import Player, find_answered_requests, playing

pytestmark = pytest.mark.usefixtures("compiled_engine")

_OF_THE_MOMENT = {
    *("at", "created_at", "updated_at", "finished_at"),
    *("duration_s", "latency_s", "waited_s"),
}


def test_a_killed_run_resumes_without_repeating_an_answered_request(tmp_path: Path) -> None:
    folder = unpack("killed", tmp_path)
    journaled = journals(folder)
    answered = [key for lines in journaled.values() for key in find_answered_requests(lines)]
    stored = calls(folder)
    assert (len(answered), len(stored)) == (21, 16)
    player, done = resume(folder, *KILLED)
    assert done.code == 0, done.errors
    result = json.loads(done.output)
    assert (result["run"], result["resumed"], result["status"]) == ("killed", True, "finished")
    assert len(set(player.requests)) == len(player.requests) == 6 * 8 - 21 - 16
    assert not set(player.requests) & set(answered)
    assert {*player.requests, *answered} <= set(all_requests(folder))
    assert not (folder / "killed.duckdb.journal").exists()
    after = calls(folder)
    assert stored.items() <= after.items()
    assert calls_in(journaled).items() <= after.items()


def test_a_resumed_run_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    folder = unpack("killed", tmp_path)
    player, done = resume(folder, *KILLED, "--run-id", "killed")
    assert done.code == 0, done.errors
    assert set(player.requests) <= set(all_requests(folder))
    export = ("--format", "jsonl", "--output", "now.jsonl", "--database", "killed.duckdb")
    assert command(folder, "traces", "export", *export).code == 0
    golden, now = (sessions(folder / name) for name in ("whole/sessions.jsonl", "now.jsonl"))
    assert differences(golden, now) == []


def resume(folder: Path, *arguments: str) -> tuple[Player, Finished]:
    with playing() as player:
        return player, command(folder, *arguments, base_url=player.url)


def journals(folder: Path) -> dict[str, list[bytes]]:
    """Return the lines of each journal by session."""
    found = (folder / "killed.duckdb.journal" / "killed").glob("*.jsonl")
    return {path.stem: path.read_bytes().splitlines() for path in found}


def all_requests(folder: Path) -> list[str]:
    """Return every request of the uninterrupted run."""
    requests: list[str] = json.loads((folder / "whole" / "asked.json").read_text("utf-8"))
    return requests


def calls_in(journaled: dict[str, list[bytes]]) -> dict[tuple[str, int], Any]:
    """Return the reply time of each call in the journals."""
    records = [
        (session, json.loads(line[9:]))
        for session, lines in journaled.items()
        for line in lines
    ]
    return {
        (session, record["turn"]): round(record["at"] * 1_000_000)
        for session, record in records
        if record["kind"] == "call"
    }


def calls(folder: Path) -> dict[tuple[str, int], Any]:
    """Return the reply time of each stored call."""
    with duckdb.connect(str(folder / "killed.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT session_id, turn, epoch_us(event_time) FROM events"
            " WHERE event_type = 'cais' AND session_id IN"
            " (SELECT session_id FROM session_traces WHERE subject = 'golden/player')"
        ).fetchall()
    return {(session, turn): at for session, turn, at in rows}


def sessions(path: Path) -> list[Any]:
    """Return all sessions of an export in the order of their ids, without times."""
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for session in found:
        del session["run"]["provenance"], session["run"]["command"]
    return sorted(map(_timeless, found), key=lambda session: str(session["session"]["id"]))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _timeless(inner) for key, inner in value.items() if key not in _OF_THE_MOMENT
        }
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value

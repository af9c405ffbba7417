"""Bad HTTP: each kind once at some call of a run; all episodes complete, each kind is named."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from assay.models.connections import MOST_BYTES
from tests.models.bad_http import BAD, framed, nested_arguments, raw_serving
from tests.models.server import completion
from tests.runs.remote import play

from .tried import FaultRow

__all__ = ["attack"]

_CALLS = 4 * 6
"""Number of calls of the run."""


def attack(folder: Path, chance: random.Random) -> Iterator[FaultRow]:
    """Send every kind of bad response, each at a random call."""
    kinds = {
        **BAD,
        "arguments nested 900 deep": framed(json.dumps(nested_arguments(900)).encode()),
        "64 MB": framed(b" " * (2 * MOST_BYTES)),
        "Retry-After: 1e400": _retry_after_response(b"1e400"),
        "Retry-After: -1": _retry_after_response(b"-1"),
    }
    bad = FaultRow("bad HTTP, then a valid response", note="each kind is retried and reported")
    for number, (name, raw) in enumerate(kinds.items()):
        bad.count(
            _run_with_bad_response(folder / str(number), name, raw, chance.randrange(_CALLS))
        )
    yield bad
    absurd = FaultRow("a count of 10^12 tokens", note="its model stops, the other continues")
    absurd.count(_run_with_absurd_usage(folder / "absurd"))
    yield absurd


def _retry_after_response(seconds: bytes) -> bytes:
    head = b"retry-after: " + seconds + b"\r\n"
    return framed(b"{}", head, b"503 Service Unavailable")


def _run_with_bad_response(folder: Path, name: str, raw: bytes, at: int) -> str:
    """Return the losses of a run that gets this response to one of its calls."""
    with raw_serving([framed(json.dumps(completion()).encode())] * at + [raw]) as server:
        result = play(folder, server.url, models=("stub",))
        requests = server.asked
    if result.status != "finished" or any(row.state != "result" for row in result.episodes):
        return f"{name}: {result.status}, {[str(row.state) for row in result.episodes]}"
    if not result.last_trouble:
        return f"{name}: no message"
    return "" if requests == _CALLS + 1 else f"{name}: {requests} calls"


def _run_with_absurd_usage(folder: Path) -> str:
    usage = {"prompt_tokens": 10**12, "completion_tokens": 1}
    lie = framed(json.dumps(completion(usage=usage)).encode())
    with raw_serving([lie]) as server:
        result = play(
            folder, server.url, models=("liar", "stub"), price="1/2", budget=10.0, episodes=1
        )
    ended = {row.model: str(row.state) for row in result.episodes}
    stopped = result.tallies["liar"].stop
    if ended != {"stub": "result"} or stopped is None:
        return f"{ended}, stopped: {stopped}"
    return ""

"""`assay-trace/1` round-trips exactly, and invalid files are reported."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UsageError
from assay.store.formats.trace_json import dump_line, dump_trace, parse_trace
from assay.store.records import SessionRecord, StoredExperiment, StoredRun, Trace
from assay.types import TrialState
from tests.store.sessions import START, make_run, make_session, rich_session


def trace_of(session: SessionRecord) -> Trace:
    run = make_run()
    return Trace(
        StoredRun(
            id=run.id,
            command=run.command,
            configuration=run.configuration,
            provenance=run.provenance,
            status="finished",
            created_at=START,
            finished_at=START + 9.5,
        ),
        StoredExperiment(
            id=session.header.experiment_id,
            name="builtin/forager v1.0",
            series="builtin/forager",
            version="v1.0",
            position=0,
            model="builtin/forager",
            fingerprint="f",
            description=None,
            created_at=START,
            updated_at=START,
            tags={"baseline": True},
            note="a note",
        ),
        session,
    )


KEPT = Path(__file__).parent / "kept" / "trace.json"
"""What an earlier commit wrote for `rich_session`."""


def test_trace_file_bytes_are_stable() -> None:
    assert dump_trace(trace_of(rich_session())) == KEPT.read_bytes()


def test_trace_file_of_an_earlier_version_is_read() -> None:
    assert parse_trace(KEPT.read_bytes()) == trace_of(rich_session())


TRACE = trace_of(make_session(make_run(), text="<script> \x1b[2J [bold] =1+1 ü\n"))


@pytest.mark.parametrize("dump", [dump_trace, dump_line])
@pytest.mark.parametrize("state", list(TrialState))
def test_trace_round_trips(dump: Any, state: TrialState) -> None:
    trace = trace_of(make_session(make_run(), state=state, text="ü\x00"))
    assert parse_trace(dump(trace)) == trace


def test_trace_file_starts_with_its_format_and_has_a_line_per_message() -> None:
    lines = dump_trace(TRACE).decode().splitlines()
    assert lines[1] == '"format": "assay-trace/1",'
    assert sum('"message":{' in line for line in lines) == len(TRACE.session.messages)
    assert dump_line(TRACE).count(b"\n") == 1


def changed(**changes: Any) -> bytes:
    """Return the trace as JSON with some values changed; `a__0__b` is the path a, 0, b."""
    value = json.loads(dump_trace(TRACE))
    for name, new in changes.items():
        *path, last = (int(part) if part.isdigit() else part for part in name.split("__"))
        place = value
        for part in path:
            place = place[part]
        if new is ...:
            del place[last]
        else:
            place[last] = new
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not complete, valid JSON"),
        (b"\xff\xfe", "not complete, valid JSON"),
        (dump_trace(TRACE)[:-100], "not complete, valid JSON"),
        (b"[" * 100_000, "not complete, valid JSON"),
        (b'{"format": "assay-results/1"}', "'assay-results/1'"),
        (b'{"schema_version": "ATIF-v1.7"}', "ATIF"),
        (b"{}", "'assay-trace/1'"),
        (b"3", "must be an object"),
        (changed(session__seed="x"), "session.seed: .*'x'"),
        (changed(session__seed=2**63), "session.seed"),
        (changed(session__id=""), "session.id: .*1 to 200"),
        (changed(session__id="a\x1b[31m"), "session.id: .*1 to 200"),
        (changed(session__extra=1), "session.extra: is not a field"),
        (changed(end=...), "end: is missing"),
        (changed(end__state="won"), "end.state"),
        (changed(end__state="failure"), "only a result has outcomes"),
        (changed(messages__1__position=5), "messages.1.position: 5 .*expected 1"),
        (changed(messages__1__message={}), "messages.1.message: .*no role"),
        (changed(messages__1__at=-1), "messages.1.at"),
        (changed(calls__0__turn="1"), "calls.0.turn: .*'1'"),
        (changed(calls__0__retries=True), "calls.0.retries: .*True"),
        (changed(played__0__steps__0__terminated=1), "terminated: must be true or false"),
        (changed(end__outcomes={"score": "3"}), "end.outcomes.score: .*'3'"),
        (changed(end__outcomes={"score": float("nan")}), "score: must be a finite number"),
        (changed(messages__1__message={"role": "user", "n": 1e999}), "messages.1.message"),
        (changed(messages__1__type=3), "messages.1.type: must be text"),
        (changed(messages__1__message_type="x"), "messages.1.message_type: is not a field"),
        (changed(session__session_id="x"), "session.session_id: is not a field"),
        (changed(session__run_id="x"), "session.run_id: 'x' .*run-1"),
        (changed(session=3), "session: must be an object, got 3"),
        (changed(messages=[3]), "messages.0: must be an object"),
        (changed(run=3), "run: must be an object"),
        (changed(calls__0__reply=99), "calls.0: 99 .*10 messages"),
        (changed(calls__2__turn=1), "calls.2.turn: 1 .*not decrease"),
        (changed(played__1__turn=1), "played.1.turn: 1 .*must increase"),
        (changed(calls__0__usage__prompt=2**31), "calls.0.usage.prompt"),
        (changed(played__0__steps__0__index=7), "played"),
        (changed(run__configuration={"a": float("nan")}), "cannot be represented in JSON"),
        (changed(played__0__steps__0__reward=float("inf")), "reward: must be a finite number"),
    ],
)
def test_damaged_trace_is_rejected_with_location_and_reason(content: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_trace(content)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_lone_surrogate_in_a_file_is_replaced() -> None:
    trace = parse_trace(changed(played__0__malformed="a\ud800", run__command="\udfff"))
    assert trace.session.played[0].malformed == "a\ufffd"
    assert trace.run.command == "\ufffd"

"""Records as JSON: formats are stable, and values round-trip with their types."""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints
from zlib import crc32

import pytest

from assay.core.canonical_json import canonical_json, content_hash, parse_json
from assay.errors import JournalError, UsageError
from assay.store import records
from assay.store import records as trace
from assay.store.codec import read_record
from assay.store.journal import Journal, read_journal
from assay.store.load import load_session
from assay.store.records import ErrorRecord, HookRecord, PlayedRecord, Record, StepRecord
from assay.store.rows import build_columns
from assay.types import Message, StopReason, Usage
from tests.store.sessions import make_run, make_session, rich_session
from tests.store.stores import fill
from tests.store.test_journal import write
from tests.support import run_python

KEPT = Path(__file__).parent / "kept" / "session.jsonl"
"""What an earlier commit wrote for `rich_session`."""
LINKED = KEPT.with_name("linked.jsonl")
"""The same, since each line has a hash of the one before."""


def test_journal_bytes_are_stable(tmp_path: Path) -> None:
    write(tmp_path / "s.jsonl", rich_session())
    assert (tmp_path / "s.jsonl").read_bytes() == LINKED.read_bytes()


@pytest.mark.parametrize("kept", [KEPT, LINKED], ids=["without hashes", "with hashes"])
def test_journal_of_an_earlier_version_is_read_and_resumed(kept: Path, tmp_path: Path) -> None:
    assert read_journal(kept) == rich_session()
    path = Path(shutil.copy(kept, tmp_path))
    journal, session = Journal.reopen(path)
    journal.append_played(PlayedRecord(turn=9, at=1.0))
    journal.append_played(PlayedRecord(turn=10, at=1.0))
    assert [*session.played, *read_journal(path).played[-2:]] == read_journal(path).played
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2] + lines[-1:]))
    with pytest.raises(JournalError, match="does not follow the previous line"):
        read_journal(path)


def test_session_with_every_field_set_round_trips_through_the_database(
    tmp_path: Path,
) -> None:
    session = rich_session()
    with fill(tmp_path / "t.duckdb", make_run(), [session]).reading() as connection:
        assert load_session(connection, session.header.session_id) == session


def rewritten(path: Path, number: int, **changes: Any) -> None:
    """Change fields of a line of a journal, as an earlier program would have written it."""
    bodies = [line[line.index(b"{") :] for line in path.read_bytes().splitlines()]
    lines = [b"%08x %s" % (crc32(body), body) for body in bodies]
    value = json.loads(bodies[number]) | changes
    body = json.dumps(value).encode()
    lines[number] = b"%08x %s" % (crc32(body), body)
    path.write_bytes(b"\n".join(lines) + b"\n")


HEADER, CALL, PLAYED, END = 0, 1, 2, 10
STEP = [1, "noop", 0.0, None]


@pytest.mark.parametrize(
    ("line", "changes", "said"),
    [
        pytest.param(HEADER, {"seed": "7"}, "line 1: seed: .*whole number, got '7'", id="text"),
        pytest.param(HEADER, {"episode": True}, "line 1: episode", id="true is not 1"),
        pytest.param(HEADER, {"metadata": {"a": float("nan")}}, "line 1: metadata", id="nan"),
        pytest.param(HEADER, {"more": 1}, "line 1: more: is not a field", id="unknown field"),
        pytest.param(CALL, {"turn": "1"}, "line 2: turn", id="turn as text"),
        pytest.param(CALL, {"usage": ["7"]}, "line 2: usage.prompt", id="tokens as text"),
        pytest.param(CALL, {"latency_s": float("inf")}, "latency_s: .*finite", id="infinite"),
        pytest.param(CALL, {"finish_reason": None}, "finish_reason: must be text", id="none"),
        pytest.param(PLAYED, {"steps": [[*STEP[:2], float("nan"), None]]}, "reward", id="step"),
        pytest.param(
            PLAYED, {"steps": [[*STEP, [], None, 1]]}, "terminated", id="1 is no true"
        ),
        pytest.param(
            PLAYED, {"steps": [[*STEP, [], None, True, True, 3]]}, "8 fields", id="long"
        ),
        pytest.param(PLAYED, {"asked": ["noop", 3]}, "asked.1: must be text", id="action"),
        pytest.param(END, {"outcomes": {"score": "3"}}, "outcomes.score", id="outcome"),
        pytest.param(END, {"state": "won"}, "line 11: state", id="state"),
        pytest.param(
            END, {"error": "ab"}, "'ab' is not a list of at most 3", id="text as a row"
        ),
        pytest.param(CALL, {"usage": {"prompt": 1}}, "is not a list of at most 4", id="object"),
        pytest.param(PLAYED, {"steps": [STEP[:3]]}, "steps.0.digest: is missing", id="short"),
        pytest.param(
            CALL, {"parameters": {"a": [float("nan")]}}, "parameters", id="nan within"
        ),
    ],
)
def test_journal_value_of_wrong_type_is_damage(
    line: int, changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(KEPT.read_bytes())
    rewritten(path, line, **changes)
    with pytest.raises(JournalError, match=said):
        read_journal(path)


def test_journal_keeps_values_beyond_column_bounds(
    tmp_path: Path,
) -> None:
    session = rich_session()
    odd = replace(
        session,
        header=replace(session.header, task="two\nlines " * 99, episode=-1),
        calls=[replace(call, latency_s=-0.5) for call in session.calls],
    )
    write(tmp_path / "s.jsonl", odd)
    assert read_journal(tmp_path / "s.jsonl") == odd


def test_missing_newer_fields_get_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(KEPT.read_bytes())
    rewritten(path, PLAYED, steps=[STEP], hooks=[["late", "L", 1, None]])
    played = read_journal(path).played[0]
    assert played.steps == (StepRecord(index=1, action="noop", reward=0.0, digest=None),)
    assert played.hooks == (HookRecord(name="late", code="L", priority=1, step=None),)


HALF = "a\ud800b"
WHOLE = "a\ufffdb"


def test_lone_surrogate_is_replaced_in_every_input(tmp_path: Path) -> None:
    session = rich_session()
    assert session.end is not None
    odd = replace(
        session,
        header=replace(session.header, subject=HALF, metadata={HALF: HALF}),
        played=[replace(session.played[0], malformed=HALF, asked=(HALF,))],
        end=replace(session.end, error=ErrorRecord(type=HALF, message="", traceback="")),
    )
    journal = Journal.create(tmp_path / "s.jsonl", odd.header)
    journal.append_played(odd.played[0])
    assert odd.end is not None
    journal.append_end(odd.end)
    rewritten(tmp_path / "s.jsonl", 1, malformed=HALF)  # as an escape
    read = read_journal(tmp_path / "s.jsonl")
    assert read.end is not None
    assert read.end.error is not None
    assert (read.header.subject, read.header.metadata) == (WHOLE, {WHOLE: WHOLE})
    assert (read.played[0].malformed, read.played[0].asked) == (WHOLE, (WHOLE,))
    assert read.end.error.type == WHOLE
    # Also what never was in a journal can be stored.
    with fill(tmp_path / "t.duckdb", make_run(), [odd]).reading() as connection:
        stored = load_session(connection, odd.header.session_id)
    assert (stored.header.subject, stored.played[0].asked) == (WHOLE, (WHOLE,))


def test_repaired_canonical_bytes_are_stable() -> None:
    odd = {"\ue000": 1, "\ud800": 2, "role": HALF}
    message = Message(odd)
    assert canonical_json(parse_json(message.encoded)) == message.encoded
    assert Message(message.value).hash == message.hash


@pytest.mark.parametrize("escape", [b'"\\ud800"', b'"\\uD800"', b'["\\udfff"]'])
def test_escaped_lone_surrogate_is_replaced_and_a_pair_is_kept(escape: bytes) -> None:
    assert "\ufffd" in json.dumps(parse_json(escape), ensure_ascii=False)
    assert parse_json(b'"\\ud83d\\ude00 \\\\ud800"') == "\U0001f600 \\ud800"


def test_body_bytes_match_their_hash(tmp_path: Path) -> None:
    session = make_session(make_run(), text=f"{HALF} ü 1.0 1e400 \x00")
    write(tmp_path / "s.jsonl", session)
    read = read_journal(tmp_path / "s.jsonl")
    with fill(tmp_path / "t.duckdb", make_run(), [read]).reading() as connection:
        bodies = connection.execute("SELECT hash::VARCHAR, body FROM message_bodies").fetchall()
        stored = load_session(connection, session.header.session_id)
    assert len(bodies) == len({record.message.hash for record in session.messages}) + 1
    for name, body in bodies:
        assert content_hash(body.encode()) == name.replace("-", "")
    for before, after in zip(session.messages, stored.messages, strict=True):
        assert after.message.encoded == before.message.encoded
        assert after.message.hash == before.message.hash


def test_imported_file_must_respect_column_bounds() -> None:
    value = {"index": 1, "action": "noop", "reward": 0, "digest": None}
    assert read_record(StepRecord, value).reward == 0.0
    with pytest.raises(UsageError, match="index: must be 1 or more, got 0"):
        read_record(StepRecord, {**value, "index": 0})
    assert read_record(StepRecord, {**value, "index": 0}, bounded=False).index == 0


KINDS: list[Any] = [
    Usage,
    *(
        kind
        for module in (records, trace)
        for kind in vars(module).values()
        if isinstance(kind, type) and is_dataclass(kind) and issubclass(kind, Record)
    ),
]


def leaves(hint: Any) -> Iterator[Any]:
    """Return the types in a hint; an annotated type counts as one."""
    if hasattr(hint, "__metadata__"):
        yield hint
    elif args := get_args(hint):
        for part in args:
            yield from leaves(part)
    else:
        yield hint


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_numeric_fields_reject_text(kind: Any) -> None:
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        bare = {leaf for leaf in leaves(hints[field.name]) if leaf in (int, float, bool)}
        assert not bare, f"{kind.__name__}.{field.name}: use a type of assay.core.values"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_has_a_column(kind: Any) -> None:
    assert isinstance(build_columns("", kind, []), Mapping)


def test_hook_is_an_object_in_exports_and_a_row_in_journals(tmp_path: Path) -> None:
    hook = HookRecord(name="h", code="h", priority=1, step=None, data={"x": 1})
    journal = Journal.create(tmp_path / "s.jsonl", rich_session().header)
    journal.append_played(PlayedRecord(turn=1, at=1.0, hooks=(hook,)))
    line = (tmp_path / "s.jsonl").read_bytes().splitlines()[1]
    assert json.loads(line[line.index(b"{") :])["hooks"] == [["h", "h", 1, None, "", {"x": 1}]]


def test_stop_reason_is_stored_as_text_and_unknown_ones_are_kept(tmp_path: Path) -> None:
    session = rich_session()
    assert session.end is not None
    for number, reason in enumerate(
        (StopReason.TOKEN_LIMIT, StopReason.TERMINATE.with_reason("bored"), "what they said")
    ):
        path = tmp_path / f"{number}.jsonl"
        write(path, replace(session, end=replace(session.end, stop_reason=reason)))
        read = read_journal(path).end
        assert read is not None
        assert read.stop_reason == reason
        assert type(read.stop_reason) is str
    texts = [path.read_text() for path in sorted(tmp_path.iterdir())]
    for text, said in zip(texts, ("token_limit", "terminate: bored", "what"), strict=True):
        assert f'"stop_reason":"{said}' in text


def test_writing_a_journal_imports_neither_pydantic_nor_duckdb() -> None:
    program = (
        "import sys, assay.store.journal, assay.store.journal as lines\n"
        "from assay.store.records import PlayedRecord\n"
        "lines.played_line(PlayedRecord(turn=1, at=1.0))\n"
        "print({'pydantic', 'duckdb', 'pyarrow'} & {*sys.modules})\n"
    )
    done = run_python("-c", program)
    assert done.output.strip() == "set()"

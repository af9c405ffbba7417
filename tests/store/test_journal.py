"""Journals survive any end of the process that writes them."""

import textwrap
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from assay.core import files
from assay.errors import JournalError, UsageError
from assay.store.journal import Journal, is_blank, read_journal, read_session, set_aside_damaged
from assay.store.records import EndRecord, HookRecord, PlayedRecord, SessionRecord
from assay.types import TrialState
from tests.store.sessions import make_run, make_session
from tests.support import run_python


def write(path: Path, session: SessionRecord) -> Journal:
    """Write the journal of a session."""
    journal = Journal.create(path, session.header)
    written = 0
    for call, played in zip(session.calls, session.played, strict=True):
        journal.append_call(call, session.messages[written : call.reply + 1])
        written = call.reply + 1
        journal.append_played(played)
    if session.messages[written:]:
        journal.append_messages(session.messages[written:])
    if session.end is not None:
        journal.append_end(session.end)
    return journal


@pytest.fixture
def session() -> SessionRecord:
    return make_session(make_run())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.jsonl"


def test_journal_round_trips(path: Path, session: SessionRecord) -> None:
    write(path, session)
    assert read_journal(path) == session


def test_messages_keep_their_bytes_and_hashes(path: Path) -> None:
    strange = '<script>\x00\x1b[31m "\ud83d\ude00\ud800 \u2019\n'
    session = make_session(make_run(), text=strange)
    write(path, session)
    read = read_journal(path)
    assert [m.message.encoded for m in read.messages] == [
        m.message.encoded for m in session.messages
    ]
    assert path.read_bytes().count(b"\n") == 2 * len(session.calls) + 3


def test_times_are_integer_microseconds(path: Path, session: SessionRecord) -> None:
    header = replace(session.header, created_at=1_760_000_000.123456789)
    Journal.create(path, header)
    assert read_journal(path).header.created_at == 1_760_000_000.123457


@pytest.mark.parametrize("lost", [1, 5, 40])
def test_partial_last_line_is_dropped(path: Path, session: SessionRecord, lost: int) -> None:
    write(path, session)
    whole = path.read_bytes()
    path.write_bytes(whole[:-lost])
    read = read_journal(path)
    assert read == replace(session, end=None)
    assert path.stat().st_size == len(whole) - lost, "reading changes nothing"
    journal, reopened = Journal.reopen(path)
    assert reopened == read
    assert session.end is not None
    journal.append_end(session.end)
    assert path.read_bytes() == whole


def test_corrupt_last_line_of_full_length_is_dropped(
    path: Path, session: SessionRecord
) -> None:
    write(path, session)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + b"\0" * (len(lines[-1]) - 1) + b"\n")
    assert read_journal(path) == replace(session, end=None)


def test_damage_in_the_middle_raises_an_error_with_the_line(
    path: Path, session: SessionRecord
) -> None:
    write(path, session)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"move", b"mole").replace(b"turn", b"burn")
    path.write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match="damaged in line 3"):
        read_journal(path)
    with pytest.raises(JournalError, match="damaged in line 3"):
        Journal.reopen(path)


def test_set_aside_journal_does_not_overwrite_another(tmp_path: Path) -> None:
    names = []
    for content in (b"first", b"second", b"third"):
        path = tmp_path / "run" / "s.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        names.append(set_aside_damaged(path))
        assert names[-1].read_bytes() == content
    name = "run.s.jsonl.damaged"
    assert [file.name for file in names] == [name, f"{name}-2", f"{name}-3"]
    assert [file.read_bytes() for file in names] == [b"first", b"second", b"third"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda lines: lines[:2] + lines[1:], "line 3 of 12 is repeated"),
        (lambda lines: lines[:1] + lines[2:], "line 2 of 10 does not follow"),
        (lambda lines: lines[:-2] + lines[-1:], "line 10 of 10 does not follow"),
        (lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]], "line 4 of 11 does not"),
        (lambda lines: lines[1:], "line 1 of 10 does not follow"),
    ],
    ids=["twice", "missing", "missing before the last", "swapped", "no header"],
)
def test_broken_line_chain_is_detected(
    path: Path, session: SessionRecord, spoil: Callable[[list[bytes]], list[bytes]], said: str
) -> None:
    write(path, session)
    path.write_bytes(b"".join(spoil(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(JournalError, match=said):
        read_journal(path)


def test_line_of_another_journal_is_detected(tmp_path: Path, session: SessionRecord) -> None:
    other = make_session(make_run(), episode=1)
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, each in zip(paths, (session, other), strict=True):
        write(path, each)
    a, b = (path.read_bytes().splitlines(keepends=True) for path in paths)
    paths[0].write_bytes(b"".join([*a[:3], b[3], *a[4:]]))
    with pytest.raises(JournalError, match="line 4 of 11 does not follow"):
        read_journal(paths[0])


def test_the_journal_of_another_session_or_run_is_refused(
    tmp_path: Path, session: SessionRecord
) -> None:
    name, run_id = session.header.session_id, session.header.run_id
    path = tmp_path / f"{name}.jsonl"
    write(path, session)
    assert read_session(path, run_id) == session
    with pytest.raises(JournalError, match=f"contains run '{run_id}', not 'r2'"):
        read_session(path, "r2")
    with pytest.raises(JournalError, match=f"contains session '{name}', not 'other'"):
        read_session(path.rename(tmp_path / "other.jsonl"), run_id)


def test_end_record_before_other_records_is_ignored(path: Path) -> None:
    session = make_session(make_run(), state=TrialState.INFRASTRUCTURE)
    journal = write(path, session)
    journal.append_played(PlayedRecord(turn=5, at=1.0))
    assert read_journal(path).end is None
    end = EndRecord(at=2.0, state=TrialState.RESULT, stop_reason="died", duration_s=1.0)
    journal.append_end(end)
    read = read_journal(path)
    assert read.end == end
    assert len(read.played) == len(session.played) + 1


def test_existing_journal_is_not_started_again(path: Path, session: SessionRecord) -> None:
    Journal.create(path, session.header)
    with pytest.raises(JournalError, match="exists already"):
        Journal.create(path, session.header)


def test_journal_without_a_header_is_restarted(path: Path, session: SessionRecord) -> None:
    assert is_blank(path)
    path.write_bytes(b"1234abcd {")
    assert is_blank(path)
    with pytest.raises(JournalError, match="no header"):
        read_journal(path)
    Journal.create(path, session.header)
    assert read_journal(path).header == session.header


def test_other_file_is_not_read_as_a_journal(path: Path) -> None:
    path.write_text("hello\nworld\n")
    with pytest.raises(JournalError, match="damaged in line 1"):
        read_journal(path)


def test_unserialisable_value_is_named_and_nothing_is_written(
    path: Path, session: SessionRecord
) -> None:
    journal = Journal.create(path, session.header)
    before = path.read_bytes()
    hook = HookRecord(name="h", code="h", priority=1, step=None, data={"x": float("nan")})
    with pytest.raises(UsageError, match="'played' cannot be serialised to JSON"):
        journal.append_played(PlayedRecord(turn=1, at=1.0, hooks=(hook,)))
    assert path.read_bytes() == before


def test_a_missing_folder_is_an_error_with_a_next_step(
    tmp_path: Path, session: SessionRecord
) -> None:
    with pytest.raises(JournalError, match="resume the run"):
        Journal.create(tmp_path / "gone" / "a.jsonl", session.header)


def test_full_disk_leaves_only_complete_lines(path: Path, tmp_path: Path) -> None:
    # A limit on the size of files stops a write half way, as a full disk does.
    program = textwrap.dedent("""
        import resource, signal, sys
        from pathlib import Path
        from assay.errors import JournalError
        from tests.store.sessions import make_run, make_session
        from tests.store.test_journal import write
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            write(Path(sys.argv[1]), make_session(make_run()))
        except JournalError as error:
            print(error)
    """)
    done = run_python("-c", program, str(path), folder=Path(__file__).parents[2])
    assert "free space" in done.output
    content = path.read_bytes()
    assert content.endswith(b"\n")
    assert read_journal(path).end is None


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are not listed")
def test_open_journals_keep_no_file_descriptors(tmp_path: Path) -> None:
    session = make_session(make_run())
    journals = [Journal.create(tmp_path / f"{i}.jsonl", session.header) for i in range(100)]
    # The thread that syncs them holds one for a moment; this waits for it.
    files._sync_queue.sync_all()
    held = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            held.append(descriptor.readlink())
    assert held
    assert not [path for path in held if path.is_relative_to(tmp_path)]
    assert len(journals) == 100

"""A key reaches only the provider: no file, table, terminal or process list."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from assay.core.secrets import Secret
from assay.store.schema import TABLES
from assay.store.views import VIEWS
from tests.support import Finished, call_assay

from .echo import (
    Answer,
    answering,
    error_page,
    key_in_error,
    key_in_finish_reason,
    key_in_refusal,
    key_in_reply,
)
from .programs import Program
from .remote import with_short_timeouts
from .tables import rows

pytestmark = pytest.mark.usefixtures("compiled_engine")

KEY = "sk-planted-0a1b2c3d4e5f6a7b8c9d"
SMALL = ("--episodes", "2", "--max-turns", "3", "--models", "any", "--no-baselines")
EXPORTS = ("json", "jsonl", "parquet", "atif")
# A part of the key would reveal most of it.
PIECE = KEY[:16].encode()


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def run(folder: Path, url: str, *more: str) -> Finished:
    given = ("run", *SMALL, "--database", "traces.duckdb", "--openai-base-url", url)
    return call_assay(folder, *given, *more)


def with_key(*arguments: str) -> int:
    os.environ["OPENAI_API_KEY"] = KEY
    return with_short_timeouts(*arguments)


def assert_clean(folder: Path, *texts: str, spare: str = "") -> None:
    """Check that neither a file nor a table, which may be compressed, contains the key."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != spare]
    assert files
    for path in files:
        assert PIECE not in path.read_bytes(), path
    for text in texts:
        assert PIECE.decode() not in text
    database = folder / "traces.duckdb"
    for source in (*TABLES, *VIEWS) if database.exists() else ():
        assert PIECE.decode() not in str(rows(database, source.name)), source.name


@pytest.mark.usefixtures("planted")
def test_a_key_in_a_reply_is_in_no_file_and_no_table(tmp_path: Path) -> None:
    seen: list[str] = []

    def answer(key: str) -> tuple[int, bytes]:
        seen.append(key)
        journals = (tmp_path / "traces.duckdb.journal").rglob("*")
        assert all(KEY.encode() not in path.read_bytes() for path in journals if path.is_file())
        return key_in_reply(key)

    with answering(answer) as url:
        done = run(tmp_path, url, "--cache", "replies.sqlite", "-vv")
    assert done.code == 0, done.errors
    assert set(seen) == {KEY}
    assert_clean(tmp_path, done.output, done.errors)
    messages = str(rows(tmp_path / "traces.duckdb", "messages"))
    assert "The key is [redacted]" in messages


@pytest.mark.extras
@pytest.mark.usefixtures("planted")
def test_known_keys_in_a_reply_are_redacted_and_lookalikes_are_kept(tmp_path: Path) -> None:
    other = Secret("planted-key-of-another-provider").reveal()
    made_up = "sk-made-up-0123456789abcdef"

    def answer(key: str) -> tuple[int, bytes]:
        return key_in_reply(f"{other[:-5]} {made_up}")

    with answering(answer) as url:
        assert run(tmp_path, url).code == 0
    assert_clean(tmp_path)
    messages = str(rows(tmp_path / "traces.duckdb", "messages"))
    assert f"The key is [redacted] {made_up}, and again" in messages
    assert "planted-key-of" not in messages
    verified = call_assay(tmp_path, "traces", "verify", "--database", "traces.duckdb")
    assert verified.code == 0, verified.errors


@pytest.mark.usefixtures("planted")
def test_text_like_a_key_in_an_error_is_redacted(tmp_path: Path) -> None:
    with answering(lambda _: key_in_error(400)("sk-of-somebody-0123456789abcdef")) as url:
        done = run(tmp_path, url, "-vv")
    assert done.code in (1, 2), done
    assert "Incorrect API key provided: [redacted]." in done.output + done.errors
    assert "of-somebody" not in done.output + done.errors


@pytest.mark.extras
@pytest.mark.usefixtures("planted")
def test_key_is_redacted_before_a_text_is_cut(tmp_path: Path) -> None:
    with answering(key_in_finish_reason) as url:
        assert run(tmp_path, url).code == 0
    assert_clean(tmp_path)


@pytest.mark.usefixtures("planted")
@pytest.mark.extras
def test_a_key_in_a_reply_is_in_no_export_and_no_view(tmp_path: Path) -> None:
    with answering(key_in_reply) as url:
        assert run(tmp_path, url).code == 0
    where = ("--database", "traces.duckdb")
    shown = [
        call_assay(tmp_path, "traces", "list", *where),
        call_assay(tmp_path, "traces", "show", "best", *where),
        call_assay(tmp_path, "traces", "verify", *where),
        *(
            call_assay(tmp_path, "traces", "export", "--format", kind, "--output", kind, *where)
            for kind in EXPORTS
        ),
    ]
    assert [done.code for done in shown] == [0] * 7, shown
    assert all((tmp_path / kind).exists() for kind in EXPORTS)
    assert_clean(tmp_path, *(text for done in shown for text in done[1:]))


@pytest.mark.extras
@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    "answer",
    [key_in_refusal, key_in_error(401), key_in_error(400)],
    ids=["refusal", "401", "400"],
)
def test_key_in_an_error_is_not_printed(tmp_path: Path, answer: Answer) -> None:
    with answering(answer) as url:
        done = run(tmp_path, url, "-vv")
    assert done.code in (1, 2), done
    assert "any" in done.errors + done.output
    assert_clean(tmp_path, done.output, done.errors)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        *(
            pytest.param(status, key_in_error(status), id=str(status), marks=pytest.mark.extras)
            for status in (429, 500, 503)
        ),
        pytest.param(500, error_page(380), id="page"),
    ],
)
def test_key_in_the_error_of_a_failed_episode_is_not_stored(
    tmp_path: Path, status: int, answer: Answer
) -> None:
    with answering(answer) as url:
        given = ("run", *SMALL, "--database", "traces.duckdb", "--openai-base-url", url)
        program = Program(tmp_path, *given, main=with_key)
        assert program.wait() == 3, program.errors
    stored = rows(tmp_path / "traces.duckdb", "session_traces")
    assert len(stored) == 2
    assert all(f"answered {status}" in row["error_message"] for row in stored)
    assert all("Traceback" in row["error_traceback"] for row in stored)
    assert_clean(tmp_path, program.output, program.errors)


@pytest.mark.extras
def test_a_key_in_a_file_is_used_warned_about_and_stored_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "mine.toml").write_text(f'[openai]\napi_key = "{KEY}"\n', "utf-8")
    seen: list[str] = []

    def answer(key: str) -> tuple[int, bytes]:
        seen.append(key)
        return key_in_reply(key)

    with answering(answer) as url:
        tried = run(tmp_path, url, "--config", "mine.toml", "--dry-run", "--json")
        done = run(tmp_path, url, "--config", "mine.toml", "--json")
    assert tried.code == done.code == 0, tried.errors + done.errors
    assert set(seen) == {KEY}
    assert "[openai] api_key is a secret in a file" in done.errors
    assert_clean(tmp_path, *tried[1:], *done[1:], spare="mine.toml")


def test_key_of_the_wrong_type_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f'[openai]\napi_key = ["{KEY}"]\n', "utf-8")
    done = run(tmp_path, "http://127.0.0.1:9/v1", "--config", "mine.toml")
    assert done.code == 2
    assert KEY not in done.errors + done.output


@pytest.mark.extras
def test_a_key_is_in_no_list_of_processes(tmp_path: Path) -> None:
    command_lines: set[bytes] = set()

    def answer(key: str) -> tuple[int, bytes]:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # the process has ended
                command_lines.add(path.read_bytes())
        return key_in_reply(key)

    with answering(answer) as url:
        given = ("run", *SMALL, "--openai-base-url", url, "--quiet")
        done = subprocess.run(
            [sys.executable, "-m", "assay", *given],
            cwd=tmp_path,
            env={**os.environ, "OPENAI_API_KEY": KEY},
            capture_output=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert any(b"--openai-base-url" in line for line in command_lines)
    assert not any(PIECE in line for line in command_lines)
    assert PIECE not in done.stdout + done.stderr

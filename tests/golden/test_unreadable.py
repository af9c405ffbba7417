"""An unreadable unfinished run stops the command; episodes are repeated only on request."""

import json
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from tests.support import Finished

from .commands import KILLED
from .files import command, unpack
from .player import Player, playing

JOURNALS = Path("killed.duckdb.journal") / "killed"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpack("killed", tmp_path)


def run(folder: Path, *more: str) -> tuple[Player, Finished]:
    with playing() as player:
        return player, command(folder, *KILLED, *more, base_url=player.url)


def journal_with(folder: Path, lines: int) -> Path:
    """Return the journal with this number of lines: 7 is unfinished, 18 is finished."""
    found = sorted((folder / JOURNALS).glob("*.jsonl"))
    return next(path for path in found if path.read_bytes().count(b"\n") == lines)


def files_of(folder: Path) -> dict[str, bytes]:
    paths = [path for path in (folder / JOURNALS).iterdir() if path.name != "lock"]
    return {path.name: path.read_bytes() for path in paths}


def later_format(path: Path) -> None:
    first, *lines = path.read_bytes().splitlines()
    body = first[9:].replace(b'"assay-journal/1"', b'"assay-journal/9"')
    path.write_bytes(b"\n".join((b"%08x %s" % (crc32(body), body), *lines, b"")))


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


_LATER = "has format 'assay-journal/9', but this assay reads 'assay-journal/1'"
_DAMAGED = "is damaged in line"


@pytest.mark.parametrize(
    ("spoil", "message", "lines", "more"),
    [
        pytest.param(later_format, _LATER, 7, (), id="later format, begun"),
        pytest.param(later_format, _LATER, 18, (), id="later format, ended"),
        pytest.param(damaged, _DAMAGED, 7, (), id="damaged, begun"),
        pytest.param(damaged, _DAMAGED, 18, ("--resume", "killed"), id="damaged, by name"),
        pytest.param(damaged, _DAMAGED, 7, ("--dry-run",), id="damaged, dry run"),
    ],
)
def test_an_unreadable_journal_stops_the_command_and_is_kept(
    folder: Path, spoil: Callable[[Path], None], message: str, lines: int, more: tuple[str, ...]
) -> None:
    path = journal_with(folder, lines)
    spoil(path)
    content = path.read_bytes()
    player, done = run(folder, *more)
    assert done.code == 2
    assert str(JOURNALS / path.name) in done.errors
    assert message in done.errors
    assert "move the file away to repeat its episode" in done.errors
    assert player.requests == []
    assert path.read_bytes() == content


def test_the_episode_of_a_removed_journal_is_played_again(folder: Path) -> None:
    path = journal_with(folder, 7)
    damaged(path)
    path.rename(folder / path.name)
    player, done = run(folder)
    assert done.code == 0, done.errors
    assert len(player.requests) == 6 * 8 - 37 + 3


def test_a_truncated_last_line_is_dropped_and_its_turn_repeated(
    folder: Path,
) -> None:
    path = journal_with(folder, 7)
    called = path.read_bytes().splitlines(keepends=True)[:-1]
    path.write_bytes(b"".join(called)[:-10])
    player, done = run(folder)
    assert done.code == 0, done.errors
    assert len(player.requests) == 6 * 8 - 37 + 1


def torn(record: bytes) -> bytes:
    return record[: len(record) // 2]


def later_run_format(record: bytes) -> bytes:
    return record.replace(b'"assay-run/1"', b'"assay-run/9"')


_LATER_RUN = "its format is 'assay-run/9', but this assay reads 'assay-run/1'"


@pytest.mark.parametrize(
    ("spoil", "message", "more"),
    [
        pytest.param(torn, "run.json cannot be read: ", (), id="torn"),
        pytest.param(torn, "run.json cannot be read: ", ("--dry-run",), id="torn, dry run"),
        pytest.param(later_run_format, _LATER_RUN, (), id="later format"),
        pytest.param(later_run_format, _LATER_RUN, ("--resume", "kill"), id="by its start"),
        pytest.param(later_run_format, _LATER_RUN, ("--run-id", "killed"), id="by its id"),
    ],
)
def test_an_unreadable_run_stops_the_command_and_is_kept(
    folder: Path, spoil: Callable[[bytes], bytes], message: str, more: tuple[str, ...]
) -> None:
    record = folder / JOURNALS / "run.json"
    record.write_bytes(spoil(record.read_bytes()))
    before = files_of(folder)
    player, done = run(folder, *more)
    assert done.code == 2
    assert str(JOURNALS / "run.json") in done.errors
    assert message in done.errors
    assert f"move {JOURNALS} away" in done.errors
    assert player.requests == []
    assert files_of(folder) == before
    assert [path.name for path in (folder / JOURNALS).parent.iterdir()] == ["killed"]


@pytest.mark.parametrize("more", [("--fresh",), ("--run-id", "other")], ids=str)
def test_a_new_run_can_be_started_next_to_an_unreadable_one(
    folder: Path, more: tuple[str, ...]
) -> None:
    record = folder / JOURNALS / "run.json"
    record.write_bytes(torn(record.read_bytes()))
    done = command(folder, *KILLED, *more, "--dry-run")
    assert done.code == 0, done.errors
    assert not json.loads(done.output)["resumes"]
    assert "run.json cannot be read" in done.errors

"""Files are written completely or not at all."""

import os
import stat
from pathlib import Path

import pytest

from assay.core.files import atomic_file, atomic_write
from assay.errors import OutputError


def test_a_file_is_written_with_its_parent_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.txt"
    atomic_write(path, b"content")
    assert path.read_bytes() == b"content"
    assert os.listdir(path.parent) == ["c.txt"]


def test_a_failed_write_keeps_the_old_content_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as stream:
        stream.write(bytes([1 // stream.tell()]))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["c.txt"]


def test_the_file_can_be_written_by_its_name(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "c.txt") as stream:
        Path(stream.name).write_text("by name")
    assert (tmp_path / "c.txt").read_text() == "by name"


def test_the_file_appears_only_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "c.txt"
    with atomic_file(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert not path.exists()
    assert path.read_bytes() == b"new"


def test_a_new_file_follows_the_umask_and_an_old_one_keeps_its_mode(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        atomic_write(tmp_path / "new", b"")
    finally:
        os.umask(mask)
    (tmp_path / "old").touch()
    (tmp_path / "old").chmod(0o600)
    atomic_write(tmp_path / "old", b"")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o600


@pytest.mark.parametrize("path", ["/dev/null/x", "/proc/nowhere/x"])
def test_the_error_names_a_path_that_cannot_be_written(path: str) -> None:
    with pytest.raises(OutputError, match=path):
        atomic_write(Path(path), b"")


def test_a_folder_at_the_path_is_an_error_and_stays_unchanged(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        atomic_write(tmp_path / "c", b"")
    assert os.listdir(tmp_path) == ["c"]

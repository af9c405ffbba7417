"""Tar files are unpacked on every Python, and nothing of them lands elsewhere."""

import io
import tarfile
from pathlib import Path

import pytest

from assay.core.archives import unpack_tar
from assay.errors import UsageError


def member(name: str, kind: bytes = tarfile.REGTYPE, *, content: bytes = b"") -> bytes:
    """A tar file of one member, with a mode that no file should get."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, "/etc/passwd", len(content)
    entry.mode, entry.uid, entry.mtime = 0o6777, 12, 1_000_000_000
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def unpacked(folder: Path, packed: bytes, *, max_bytes: int = 10_000) -> Path:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        unpack_tar(archive, folder, max_bytes=max_bytes)
    return folder


def test_a_file_keeps_its_content_its_time_and_whether_it_runs(tmp_path: Path) -> None:
    file = unpacked(tmp_path, member("a/b/run", content=b"text")) / "a" / "b" / "run"
    assert file.read_bytes() == b"text"
    found = file.stat()
    assert (found.st_mode & 0o7777, found.st_mtime) == (0o755, 1_000_000_000)
    assert found.st_uid == tmp_path.stat().st_uid


@pytest.mark.parametrize(
    "kind",
    [
        *(tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE),
        *(tarfile.CHRTYPE, tarfile.BLKTYPE),
    ],
)
def test_links_pipes_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(UsageError, match="is not a file or a folder"):
        unpacked(tmp_path, member("a", kind))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["/tmp/a", "../a", "a/../../b"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    with pytest.raises(UsageError, match="leads out of the folder"):
        unpacked(folder, member(name))
    assert list(tmp_path.rglob("*")) == [folder]


def test_too_much_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="more than 1,000 bytes"):
        unpacked(tmp_path, member("a", content=bytes(600)), max_bytes=1000)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_already_is_not_overwritten(tmp_path: Path) -> None:
    unpacked(tmp_path, member("a", content=b"first"))
    with pytest.raises(UsageError, match="'a' is there already"):
        unpacked(tmp_path, member("a", content=b"second"))
    assert (tmp_path / "a").read_bytes() == b"first"

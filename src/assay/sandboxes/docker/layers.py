"""What a container changed, as a tar file and back.

What was deleted is an empty file `.wh.NAME` there, as in the layers of images.
"""

import asyncio
import io
import json
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from assay.sandboxes.docker.engine import DockerEngine, EngineRefused
from assay.sandboxes.docker.images import derived_image
from assay.sandboxes.layers import PLAIN_MODE, WHITEOUT

_AT_ONCE: Final = 500
"""Paths in one command that deletes them."""
_MODIFIED, _ADDED, _DELETED = 0, 1, 2


class _LayerChange(NamedTuple):
    path: str
    kind: int


def deleted_in(layer: Path) -> list[str]:
    """The absolute paths that a layer deletes."""
    with tarfile.open(layer) as tar:
        names = [PurePosixPath("/", entry.name) for entry in tar]
    return [
        str(name.with_name(name.name.removeprefix(WHITEOUT)))
        for name in names
        if name.name.startswith(WHITEOUT)
    ]


async def without_deleted(
    engine: DockerEngine, image: str, paths: Sequence[str], name: str
) -> None:
    """Make an image that lacks some paths of another."""
    lines = [f"FROM {image}", "USER 0"]
    for start in range(0, len(paths), _AT_ONCE):
        part = paths[start : start + _AT_ONCE]
        lines.append(f"RUN {json.dumps(['rm', '-rf', '--', *part])}")
    await derived_image(engine, name, lines)


async def put_layer(
    engine: DockerEngine, container: str, layer: Path, *, exclude: Sequence[str]
) -> None:
    """Unpack the files of a layer into a container that does not run."""
    with tempfile.TemporaryDirectory(prefix="assay-layer-") as scratch:
        file = Path(scratch, "layer.tar")
        await asyncio.to_thread(_files_only, layer, file, exclude)
        await engine.send("PUT", f"{container}/archive", query={"path": "/"}, file=file)


def _files_only(layer: Path, target: Path, exclude: Sequence[str]) -> None:
    with tarfile.open(layer) as source, tarfile.open(target, "w") as tar:
        for entry in source:
            name = PurePosixPath("/", entry.name)
            if not name.name.startswith(WHITEOUT) and not _is_below(str(name), exclude):
                _copy(source, entry, tar)


async def export_layer(
    engine: DockerEngine,
    container: str,
    target: Path,
    *,
    exclude: Sequence[str],
    deleted: Sequence[str],
) -> None:
    """Write what a container that does not run changed to a tar file.

    `exclude` are absolute paths, left out with all below them; `deleted` is what was deleted
    before the container was made.
    """
    told = await engine.call("GET", f"{container}/changes") or []
    changes = [_LayerChange(change["Path"], change["Kind"]) for change in told]
    changes = [change for change in changes if not _is_below(change.path, exclude)]
    there = [change.path for change in changes if change.kind != _DELETED]
    gone = [change.path for change in changes if change.kind == _DELETED]
    gone += [path for path in deleted if path not in there and not _is_below(path, exclude)]
    with (
        tempfile.TemporaryDirectory(prefix="assay-layer-") as scratch,
        tarfile.open(target, "w") as tar,
    ):
        part = Path(scratch, "part.tar")
        for path, kind in _whole(changes):
            if await _fetched(engine, container, path, part):
                alone = kind == _MODIFIED
                await asyncio.to_thread(_append, part, path, tar, exclude, alone)
        for path in sorted(set(gone)):
            name = PurePosixPath(path)
            entry = tarfile.TarInfo(str(name.with_name(WHITEOUT + name.name)).lstrip("/"))
            tar.addfile(entry, io.BytesIO())


def _whole(changes: Sequence[_LayerChange]) -> list[_LayerChange]:
    """What is fetched: the outermost that was added, and what was changed in itself."""
    parents = {str(up) for change in changes for up in PurePosixPath(change.path).parents}
    found: list[_LayerChange] = []
    added: set[str] = set()
    for change in sorted(changes):
        above = {str(up) for up in PurePosixPath(change.path).parents}
        if change.kind == _DELETED or above & added:
            continue
        if change.kind == _ADDED:
            added.add(change.path)
        elif change.path in parents:  # a folder of which the content was changed
            continue
        found.append(change)
    return found


async def _fetched(engine: DockerEngine, container: str, path: str, target: Path) -> bool:
    """Whether there was such a path: one whose name is no text cannot be asked for."""
    try:
        await engine.fetch(f"{container}/archive", target, query={"path": path})
    except EngineRefused as error:
        if error.status != 404:
            raise
        return False
    return True


def _append(
    part: Path, path: str, tar: tarfile.TarFile, exclude: Sequence[str], alone: bool
) -> None:
    """Add the files of a part, which are named from its own top on; `alone` its top only."""
    parent = PurePosixPath(path).parent
    with tarfile.open(part) as source:
        for entry in source:
            name = parent / entry.name
            if _is_below(str(name), exclude):
                continue
            entry.name = str(name).lstrip("/")
            if entry.islnk():
                entry.linkname = str(parent / entry.linkname).lstrip("/")
            _copy(source, entry, tar)
            if alone:
                return


def _copy(source: tarfile.TarFile, entry: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
    """Copy an entry without setuid and setgid; a device is left out."""
    if entry.ischr() or entry.isblk():
        return
    entry.mode &= PLAIN_MODE
    tar.addfile(entry, source.extractfile(entry) if entry.isreg() else None)


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)

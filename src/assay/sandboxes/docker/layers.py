"""Changes of a container as a tar file, and back.

Deleted files are empty files `.wh.NAME`, as in image layers.
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
from assay.sandboxes.docker.images import build_derived_image
from assay.sandboxes.layers import PLAIN_MODE, WHITEOUT

_MAX_PATHS: Final = 500
"""Number of paths deleted by one command."""
_MODIFIED, _ADDED, _DELETED = 0, 1, 2


class _LayerChange(NamedTuple):
    path: str
    kind: int


def find_deleted(layer: Path) -> list[str]:
    """Return the absolute paths that a layer deletes."""
    with tarfile.open(layer) as tar:
        names = [PurePosixPath("/", entry.name) for entry in tar]
    return [
        str(name.with_name(name.name.removeprefix(WHITEOUT)))
        for name in names
        if name.name.startswith(WHITEOUT)
    ]


async def build_without(
    engine: DockerEngine, image: str, paths: Sequence[str], name: str
) -> None:
    """Build an image without some paths of another."""
    lines = [f"FROM {image}", "USER 0"]
    for start in range(0, len(paths), _MAX_PATHS):
        part = paths[start : start + _MAX_PATHS]
        lines.append(f"RUN {json.dumps(['rm', '-rf', '--', *part])}")
    await build_derived_image(engine, name, lines)


async def put_layer(
    engine: DockerEngine, container: str, layer: Path, *, exclude: Sequence[str]
) -> None:
    """Unpack the files of a layer into a stopped container."""
    with tempfile.TemporaryDirectory(prefix="assay-layer-") as scratch:
        file = Path(scratch, "layer.tar")
        await asyncio.to_thread(_filter_layer, layer, file, exclude)
        await engine.send("PUT", f"{container}/archive", query={"path": "/"}, file=file)


def _filter_layer(layer: Path, target: Path, exclude: Sequence[str]) -> None:
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
    """Write the changes of a container to a tar file.

    Args:
        engine: The engine of the container, which is stopped.
        container: Path of the container in the API.
        target: The tar file.
        exclude: Absolute paths that are left out, with everything below them.
        deleted: Paths that were deleted before the container was created.
    """
    listed = await engine.call("GET", f"{container}/changes") or []
    changes = [_LayerChange(change["Path"], change["Kind"]) for change in listed]
    changes = [change for change in changes if not _is_below(change.path, exclude)]
    existing = [change.path for change in changes if change.kind != _DELETED]
    gone = [change.path for change in changes if change.kind == _DELETED]
    gone += [path for path in deleted if path not in existing and not _is_below(path, exclude)]
    with (
        tempfile.TemporaryDirectory(prefix="assay-layer-") as scratch,
        tarfile.open(target, "w") as tar,
    ):
        part = Path(scratch, "part.tar")
        for path, kind in _select_fetched(changes):
            if await _fetch(engine, container, path, part):
                alone = kind == _MODIFIED
                await asyncio.to_thread(_append, part, path, tar, exclude, alone)
        for path in sorted(set(gone)):
            name = PurePosixPath(path)
            entry = tarfile.TarInfo(str(name.with_name(WHITEOUT + name.name)).lstrip("/"))
            tar.addfile(entry, io.BytesIO())


def _select_fetched(changes: Sequence[_LayerChange]) -> list[_LayerChange]:
    """Return the changes to fetch: outermost added paths, and other modified ones."""
    parents = {str(up) for change in changes for up in PurePosixPath(change.path).parents}
    found: list[_LayerChange] = []
    added: set[str] = set()
    for change in sorted(changes):
        above = {str(up) for up in PurePosixPath(change.path).parents}
        if change.kind == _DELETED or above & added:
            continue
        if change.kind == _ADDED:
            added.add(change.path)
        elif change.path in parents:  # a folder whose content was changed
            continue
        found.append(change)
    return found


async def _fetch(engine: DockerEngine, container: str, path: str, target: Path) -> bool:
    """Fetch a path; return False if it does not exist or its name is not valid UTF-8."""
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
    """Add the files of a part, named relative to its parent; with `alone`, only the first."""
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
    """Copy an entry without setuid and setgid; skip devices."""
    if entry.ischr() or entry.isblk():
        return
    entry.mode &= PLAIN_MODE
    tar.addfile(entry, source.extractfile(entry) if entry.isreg() else None)


def _is_below(path: str, folders: Sequence[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)

"""The file system of a sandbox on an image: its own, and what became of it.

As root it is an overlay of Linux: nothing is copied, and what was changed is a folder.
Everybody else gets a copy of the image; what was changed is what the kernel says changed since.
"""

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from assay.bench.sandboxes.folders import remove_folder
from assay.bench.sandboxes.layers import Changed, clear, unpack_layer
from assay.errors import SandboxUnavailable

__all__ = ["CopiedRoot", "ImageRoot", "OverlaidRoot", "copy_tree", "overlays", "private_root"]

_OPAQUE: Final = "trusted.overlay.opaque"
"""What the kernel writes to a folder that was removed and made anew."""
_TICK_S: Final = 0.02
"""Longer than the clock of the files stands still."""


class ImageRoot(Protocol):
    """A file system that one sandbox has."""

    path: Path
    """Where it is, for who runs below `prefix`."""
    prefix: tuple[str, ...]
    """What stands before the command line that needs it."""
    writable: Path
    """The folder that grows when something is written."""

    def changes(self) -> Iterator[Changed]:
        """All that differs from the image, folders before what is in them."""
        ...

    def find(self, path: str) -> Path | None:
        """A file of it on this machine, by its path without a slash before it."""
        ...


def private_root(layers: Sequence[Path], folder: Path, layer: Path | None) -> ImageRoot:
    """A file system of one's own over an image.

    Args:
        layers: The folders of the image, the topmost first.
        folder: Where it may be made; it is the caller's to remove.
        layer: A tar file that is unpacked over it.
    """
    made = OverlaidRoot if overlays() else CopiedRoot
    return made(layers, folder, layer)


@cache
def overlays() -> bool:
    """Whether the kernel lets us lay one folder over another."""
    mount, unshare = shutil.which("mount"), shutil.which("unshare")
    if os.geteuid() != 0 or mount is None or unshare is None:
        return False
    import tempfile

    with tempfile.TemporaryDirectory(prefix="assay-overlay-") as name:
        folder = Path(name)
        (folder / "below").mkdir()
        root = OverlaidRoot([folder / "below"], folder, None)
        done = subprocess.run([*root.prefix, "true"], capture_output=True, check=False)
        remove_folder(folder / "work")
    return done.returncode == 0


class OverlaidRoot:
    """An overlay, mounted anew for every command in a namespace that ends with it."""

    def __init__(self, layers: Sequence[Path], folder: Path, layer: Path | None) -> None:
        self._layers = layers
        self.writable, work, self.path = (folder / name for name in ("upper", "work", "root"))
        for path in (self.writable, work, self.path):
            path.mkdir(exist_ok=True)
        shutil.copystat(layers[0], self.writable)
        if layer is not None:
            unpack_layer(layer, self.writable, self._whiteout)
        below = ":".join(str(path) for path in layers)
        options = f"lowerdir={below},upperdir={self.writable},workdir={work}"
        options += ",redirect_dir=off,metacopy=off,index=off"
        script = f'{shutil.which("mount")} -t overlay overlay -o "$1" "$2" && shift 2 && '
        script += 'exec "$@"'
        self.prefix: tuple[str, ...] = (
            *(str(shutil.which("unshare")), "--mount", "--propagation", "private"),
            *("/bin/sh", "-c", script, "mounted", options, str(self.path)),
        )

    def _whiteout(self, place: Path) -> None:
        clear(place)
        os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(0, 0))

    def changes(self) -> Iterator[Changed]:
        """What the kernel put into the upper folder."""
        for path, entry in _walk(self.writable):
            status = entry.lstat()
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
                yield Changed(path, None)
                continue
            yield Changed(path, entry)
            if stat.S_ISDIR(status.st_mode) and _is_opaque(entry):
                kept = {inner.name for inner in entry.iterdir()}
                for name in sorted(self._names_below(path) - kept):
                    yield Changed(f"{path}/{name}", None)

    def _names_below(self, path: str) -> set[str]:
        names: set[str] = set()
        for layer in self._layers:
            folder = layer / path
            if folder.is_dir() and not folder.is_symlink():
                names |= set(os.listdir(folder))
        return names

    def find(self, path: str) -> Path | None:
        """From the topmost layer that has it."""
        for layer in (self.writable, *self._layers):
            if (layer / path).is_file():
                return layer / path
        return None


class CopiedRoot:
    """A copy of an image that is one folder."""

    prefix: tuple[str, ...] = ()

    def __init__(self, layers: Sequence[Path], folder: Path, layer: Path | None) -> None:
        if len(layers) != 1:
            raise SandboxUnavailable(
                "this image was built as root, by layers; build it again as who runs it"
            )
        self._image = layers[0]
        self.path = self.writable = folder / "root"
        copy_tree(self._image, self.path)
        time.sleep(_TICK_S)
        mark = folder / "mark"
        mark.touch()
        self._since = mark.lstat().st_ctime_ns
        time.sleep(_TICK_S)
        if layer is not None:
            unpack_layer(layer, self.path, clear)

    def changes(self) -> Iterator[Changed]:
        """What has changed since it was copied, and what is gone."""
        changed: set[str] = set()
        for path, entry in _walk(self.path):
            if entry.lstat().st_ctime_ns <= self._since:
                continue
            folder = ""
            for part in path.split("/")[:-1]:  # what is in a folder comes after it
                folder = f"{folder}{part}"
                if folder not in changed:
                    changed.add(folder)
                    yield Changed(folder, self.path / folder)
                folder += "/"
            if path not in changed:
                changed.add(path)
                yield Changed(path, entry)
        gone: set[str] = set()
        for path, _ in _walk(self._image):
            if path.rpartition("/")[0] in gone:
                gone.add(path)
            elif not os.path.lexists(self.path / path):
                gone.add(path)
                yield Changed(path, None)

    def find(self, path: str) -> Path | None:
        """From the copy."""
        found = self.path / path
        return found if found.is_file() else None


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder with owners, rights, times and links.

    Raises:
        SandboxUnavailable: It cannot be copied.
    """
    done = subprocess.run(
        ["cp", "-a", "--reflink=auto", "--", str(source), str(target)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise SandboxUnavailable(f"{source} cannot be copied: {done.stderr.strip()[-300:]}")


def _walk(root: Path) -> Iterator[tuple[str, Path]]:
    """All below a folder, sorted, folders before what is in them; no link is followed."""
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(root / folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = f"{folder}{entry.name}"
            yield path, Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{path}/")


def _is_opaque(folder: Path) -> bool:
    try:
        return os.getxattr(folder, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False

"""Files that go to a sandbox of Modal and come back: mounts, layers, and what was changed.

A machine of somebody else mounts nothing of this one: all of it is copied, as tar files over
the streams of programs. What comes back is not trusted.

Images of Modal: of a task's Dockerfile, and one with Python for tasks that bring none.

Modal builds them, reaches the network to do so, and keeps each under a hash of its content.
"""

import asyncio
import io
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Final, NamedTuple, TypeAlias

import modal

from assay.core.files import remove_folder
from assay.sandboxes.base import MIB, PROGRAM, ImageRecipe, Mount
from assay.sandboxes.folders import bytes_in
from assay.sandboxes.layers import Changed, is_excluded, layer_paths, unpack_layer, write_layer
from assay.sandboxes.modal.names import APP, plain_name
from assay.sandboxes.modal.remote import (
    PrintedTooMuch,
    Remote,
    RemoteFailed,
    answering,
    bounded,
)
from assay.sandboxes.roots import links_of

_OF_THE_MACHINE: Final = ("/proc", "/sys", "/dev", "/__modal")
_ITS_OWN: Final = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")
"""What Modal writes, and no command."""
_LIST: Final = (
    "{ find / \\( "
    + " -o ".join(f"-path {place}" for place in _OF_THE_MACHINE)
    + r" \) -prune -o -printf '%y %m %U %G %s %T@ %C@\t%P\0'; printf 'end %s' $?; } | gzip -1"
)
"""Its last line says that it is whole; 1 if something was gone before it was looked at."""
_MOST_BACK: Final = 4
"""Times the limit on the disk that is taken from a sandbox, so that it cannot fill this one."""
_MOST_LISTED: Final = 512 * MIB

Listing: TypeAlias = Mapping[str, "_Entry"]
"""All files of a sandbox, by their paths without a slash before them."""


class _Entry(NamedTuple):
    kind: str
    """As find has it: d for a folder, f for a file, l for a link."""
    about: tuple[str, ...]
    """Mode, owner, group, size, and when content and anything else was changed last."""

    def differs(self, other: "_Entry") -> bool:
        """Whether something was done to it; a folder is not what is in it."""
        ours, theirs = self.about, other.about
        if self.kind == other.kind == "d":
            ours, theirs = ours[:3], theirs[:3]
        return (self.kind, ours) != (other.kind, theirs)


# To the sandbox


async def put_mounts(remote: Remote, mounts: Sequence[Mount], writer: int) -> None:
    """Copy mounts to where they belong.

    Those that are written to belong to the user `writer`, the others to root.
    """
    if not mounts:
        return
    with tempfile.TemporaryFile(prefix="assay-modal-") as file:
        await asyncio.to_thread(_pack, mounts, writer, file)
        file.seek(0)
        await remote.call("tar -x -p -f - -C /", stdin=file)


def _pack(mounts: Sequence[Mount], writer: int, file: io.BufferedIOBase) -> None:
    ordered = sorted(mounts, key=lambda mount: len(PurePosixPath(mount.target).parts))
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for mount in ordered:
            dress = partial(dressed, owner=writer if mount.writable else 0)
            tar.add(mount.source.resolve(), mount.target.lstrip("/"), filter=dress)


def dressed(member: tarfile.TarInfo, *, owner: int) -> tarfile.TarInfo:
    """A file as the sandbox has it: everybody can read it, as you can here."""
    member.uid = member.gid = owner
    member.uname = member.gname = ""
    member.mode |= 0o555 if member.isdir() or member.mode & 0o100 else 0o444
    return member


async def put_layer(remote: Remote, layer: Path, *, exclude: Sequence[str]) -> None:
    """Unpack what another sandbox had changed, without these absolute paths."""
    gone = [path for path, deleted in layer_paths(layer) if deleted]
    names = "\0".join(f"/{path}" for path in gone if not is_excluded(path, exclude))
    if names:
        await remote.call("xargs -0 rm -rf --", stdin=io.BytesIO(_encoded(names)))
    left_out = [f"--exclude={path.lstrip('/')}" for path in exclude]
    with layer.open("rb") as file:
        await remote.call(
            "tar -x -p -f - -C / --numeric-owner --exclude='.wh.*' --anchored "
            '--no-wildcards "$@"',
            *left_out,
            stdin=file,
        )


def _encoded(names: str) -> bytes:
    """Names as the system has them, those as well that are no text."""
    return names.encode(errors="surrogateescape")


# From the sandbox


async def fetch_mount(remote: Remote, mount: Mount, disk_mb: int) -> None:
    """Let the folder of a mount be as it is in the sandbox.

    It stays as it was where more is there than the limit on the disk explains.
    """
    with tempfile.TemporaryDirectory(prefix="assay-modal-") as scratch:
        packed = Path(scratch, "mount.tar")
        began = await asyncio.to_thread(bytes_in, [mount.source])
        with packed.open("wb") as file, suppress(PrintedTooMuch):
            await remote.call(
                'tar -c -f - -C "$1" --format=posix --owner=0 --group=0 --numeric-owner .',
                mount.target,
                take=bounded(file.write, began + _MOST_BACK * disk_mb * MIB),
            )
            file.flush()
            with _untrusted():
                await asyncio.to_thread(_replace, mount.source, packed)


@contextmanager
def _untrusted() -> Iterator[None]:
    """Where what cannot be read is the fault of the sandbox."""
    try:
        yield
    except (tarfile.TarError, zlib.error, ValueError) as error:
        raise RemoteFailed(f"what came from a sandbox of Modal is damaged: {error}") from error


def _replace(folder: Path, packed: Path) -> None:
    """Put the content of a tar file in the place of what is in a folder."""
    new = Path(tempfile.mkdtemp(prefix=".assay-", dir=folder.parent))
    try:
        unpack_layer(packed, new)
        for old in list(folder.iterdir()):
            if old.is_dir() and not old.is_symlink():
                remove_folder(old)
            else:
                old.unlink()
        for path in list(new.iterdir()):
            path.rename(folder / path.name)
    finally:
        remove_folder(new)


async def listing(remote: Remote) -> Listing:
    """What a sandbox has, of all that commands can change."""
    packed = bytearray()
    await remote.call(_LIST, take=bounded(packed.extend, _MOST_LISTED))
    with _untrusted():
        return await asyncio.to_thread(_read_listing, bytes(packed))


def _read_listing(packed: bytes) -> Listing:
    found = {}
    unpacked = zlib.decompressobj(wbits=31).decompress(packed, _MOST_LISTED)
    *rows, end = unpacked.split(b"\0")
    if end not in (b"end 0", b"end 1"):
        raise ValueError("the list of its files is not whole")
    for row in rows:
        about, _, path = row.partition(b"\t")
        if path:
            kind, *rest = about.decode().split(" ")
            found[path.decode(errors="surrogateescape")] = _Entry(kind, tuple(rest))
    return found


async def export_changes(
    remote: Remote, before: Listing, target: Path, *, exclude: Sequence[str], disk_mb: int
) -> None:
    """Write all that differs from an earlier listing to a tar file, as a layer.

    `exclude` are absolute paths, left out with all below them.

    Raises:
        RemoteFailed: It has no programs any more that can tell.
    """
    after = await listing(remote)
    left_out = (*exclude, *_ITS_OWN)
    changed = [
        path
        for path, entry in sorted(after.items())
        if path not in before or entry.differs(before[path])
    ]
    names = "\0".join(path for path in changed if not is_excluded(path, left_out))
    with target.open("wb") as file:
        await remote.call(
            # With 1 it says that something is there no more, or is no file.
            "tar -c -f - -C / --format=posix --numeric-owner --null --no-recursion -T -; "
            "[ $? -le 1 ]",
            stdin=io.BytesIO(_encoded(names)),
            take=bounded(file.write, _MOST_BACK * disk_mb * MIB),
        )
    with _untrusted():
        await asyncio.to_thread(_note_deleted, target, before, after, left_out)


def write_broken(target: Path) -> None:
    """Write the layer of a sandbox that is broken: what else it changed cannot be read."""
    write_layer(target, [Changed("bin/sh", None)], ())


def _note_deleted(
    target: Path, before: Listing, after: Listing, exclude: Sequence[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-modal-") as scratch:
        notes = Path(scratch, "deleted.tar")
        write_layer(notes, _deleted(before, after), exclude)
        with tarfile.open(notes) as source, tarfile.open(target, "a") as tar:
            for member in source:
                tar.addfile(member)


def _deleted(before: Listing, after: Listing) -> Iterable[Changed]:
    """The outermost that are gone, or are no folders any more."""
    for path, entry in sorted(before.items()):
        now = after.get(path)
        is_gone = now is None or (entry.kind == "d" and now.kind != "d")
        parent = str(PurePosixPath(path).parent)
        has_parent = parent == "." or (parent in after and after[parent].kind == "d")
        if is_gone and has_parent:
            yield Changed(path, None)


async def app() -> modal.App:
    """What Modal lists our sandboxes under."""
    with answering():
        return await modal.App.lookup.aio(APP, create_if_missing=True)


async def task_image(recipe: ImageRecipe, app: modal.App) -> modal.Image:
    """Build the image of a recipe, unless Modal has it."""
    image = modal.Image.from_dockerfile(
        recipe.context / recipe.dockerfile,
        context_dir=recipe.context,
        build_args=dict(recipe.arguments),
    )
    # Whatever it starts by itself, commands are started by assay.
    return await _built(image.entrypoint([]), app)


async def plain_image(app: modal.App) -> modal.Image:
    """Build the image for tasks without a Dockerfile, unless Modal has it.

    It has Python of the same version at the paths that it has here, pytest, and git.
    """
    # As a whole first, since agents in Python look for its library beside it.
    links = {sys.base_prefix: "$(python3 -c 'import sys; print(sys.base_prefix)')"}
    links |= dict.fromkeys(links_of(sys.executable), '"$(command -v python3)"')
    lines = [
        f"FROM {plain_name()}",
        "RUN command -v git || { apt-get update && apt-get install -y --no-install-recommends "
        "git && rm -rf /var/lib/apt/lists/*; }",
        f"RUN python3 -c 'import pytest' || python3 -m pip install --no-cache-dir {_pytest()}",
        # Both may be below a home.
        "RUN chmod 755 /root",
    ]
    for path, target in links.items():
        folder, name = quote(str(Path(path).parent)), quote(path)
        lines.append(f"RUN [ -e {name} ] || {{ mkdir -p {folder} && ln -s {target} {name}; }}")
    with tempfile.TemporaryDirectory(prefix="assay-modal-") as scratch:
        file = Path(scratch, "Dockerfile")
        file.write_text("\n".join(lines) + "\n", "utf-8")
        return await _built(modal.Image.from_dockerfile(file, context_dir=scratch), app)


def _pytest() -> str:
    try:
        return f"pytest=={version('pytest')}"
    except PackageNotFoundError:
        return "pytest"


async def with_program(image: modal.Image, folder: Path, app: modal.App) -> modal.Image:
    """Build an image that has the files of an agent, over another, unless Modal has it."""
    with tempfile.TemporaryDirectory(prefix="assay-modal-") as scratch:
        packed = Path(scratch, "agent.tar")
        await asyncio.to_thread(_pack_program, folder, packed)
        # As one file: the client would follow links, of which agents are full.
        image = image.add_local_file(packed, "/opt/agent.tar", copy=True).run_commands(
            f"mkdir -p {PROGRAM} && tar -x -p -f /opt/agent.tar -C {PROGRAM} "
            "&& rm /opt/agent.tar"
        )
        return await _built(image, app)


def _pack_program(folder: Path, target: Path) -> None:
    """Pack a folder; equal content gives an equal file, which is sent and unpacked once."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, str(path.relative_to(folder)), recursive=False, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = 0
    return dressed(member, owner=0)


async def _built(image: modal.Image, app: modal.App) -> modal.Image:
    with answering():
        built = await image.build.aio(app)
    # As it is, it would be read again by those that are built over it.
    return modal.Image.from_id(built.object_id)

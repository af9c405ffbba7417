"""Files copied to and from Modal sandboxes (mounts, layers, changes), and Modal images.

A remote machine cannot mount folders of this one: everything is copied, as tar files over the
streams of programs. Data that comes back is not trusted. Images come from a task's Dockerfile,
or have Python for tasks without one. Modal builds them with network access, and stores each
under a hash of its content.
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
from assay.sandboxes.folders import measure_folders
from assay.sandboxes.layers import Changed, is_excluded, layer_paths, unpack_layer, write_layer
from assay.sandboxes.modal.names import APP, default_image_name
from assay.sandboxes.modal.remote import (
    PrintedTooMuch,
    Remote,
    RemoteFailed,
    convert_errors,
    limit_bytes,
)
from assay.sandboxes.roots import follow_links

_SYSTEM_PATHS: Final = ("/proc", "/sys", "/dev", "/__modal")
_MODAL_FILES: Final = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")
"""Files written by Modal, not by commands."""
_LIST: Final = (
    "{ find / \\( "
    + " -o ".join(f"-path {place}" for place in _SYSTEM_PATHS)
    + r" \) -prune -o -printf '%y %m %U %G %s %T@ %C@\t%P\0'; printf 'end %s' $?; } | gzip -1"
)
"""The last line shows that the list is complete; 1 if a file disappeared meanwhile."""
_MAX_FETCHED: Final = 4
"""Maximum data fetched from a sandbox, in multiples of its disk limit."""
_MAX_LISTED: Final = 512 * MIB

Listing: TypeAlias = Mapping[str, "_Entry"]
"""All files of a sandbox, by path without a leading slash."""


class _Entry(NamedTuple):
    kind: str
    """As reported by find: d for a folder, f for a file, l for a link."""
    status: tuple[str, ...]
    """Mode, owner, group, size, and times of the last content and status change."""

    def differs(self, other: "_Entry") -> bool:
        """Return whether the entry was changed; for a folder, its content is ignored."""
        ours, theirs = self.status, other.status
        if self.kind == other.kind == "d":
            ours, theirs = ours[:3], theirs[:3]
        return (self.kind, ours) != (other.kind, theirs)


# To the sandbox


async def put_mounts(remote: Remote, mounts: Sequence[Mount], writer: int) -> None:
    """Copy mounts to their targets; read-only ones are owned by root.

    Args:
        remote: The sandbox.
        mounts: The mounts.
        writer: Uid of the owner of writable mounts.
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
            adjust = partial(set_owner, owner=writer if mount.writable else 0)
            tar.add(mount.source.resolve(), mount.target.lstrip("/"), filter=adjust)


def set_owner(member: tarfile.TarInfo, *, owner: int) -> tarfile.TarInfo:
    """Set the owner of a file, and make it readable for all, as it is for the user here."""
    member.uid = member.gid = owner
    member.uname = member.gname = ""
    member.mode |= 0o555 if member.isdir() or member.mode & 0o100 else 0o444
    return member


async def put_layer(remote: Remote, layer: Path, *, exclude: Sequence[str]) -> None:
    """Unpack the changes of another sandbox, without these absolute paths."""
    gone = [path for path, deleted in layer_paths(layer) if deleted]
    names = "\0".join(f"/{path}" for path in gone if not is_excluded(path, exclude))
    if names:
        await remote.call("xargs -0 rm -rf --", stdin=io.BytesIO(_encode(names)))
    left_out = [f"--exclude={path.lstrip('/')}" for path in exclude]
    with layer.open("rb") as file:
        await remote.call(
            "tar -x -p -f - -C / --numeric-owner --exclude='.wh.*' --anchored "
            '--no-wildcards "$@"',
            *left_out,
            stdin=file,
        )


def _encode(names: str) -> bytes:
    """Encode file names as bytes, including names that are not valid UTF-8."""
    return names.encode(errors="surrogateescape")


# From the sandbox


async def fetch_mount(remote: Remote, mount: Mount, disk_mb: int) -> None:
    """Update the folder of a mount from the sandbox.

    The folder is not changed if there is more data than the disk limit allows.
    """
    with tempfile.TemporaryDirectory(prefix="assay-modal-") as scratch:
        packed = Path(scratch, "mount.tar")
        size_before = await asyncio.to_thread(measure_folders, [mount.source])
        with packed.open("wb") as file, suppress(PrintedTooMuch):
            await remote.call(
                'tar -c -f - -C "$1" --format=posix --owner=0 --group=0 --numeric-owner .',
                mount.target,
                take=limit_bytes(file.write, size_before + _MAX_FETCHED * disk_mb * MIB),
            )
            file.flush()
            with _convert_data_errors():
                await asyncio.to_thread(_replace, mount.source, packed)


@contextmanager
def _convert_data_errors() -> Iterator[None]:
    """Convert errors of damaged data to RemoteFailed."""
    try:
        yield
    except (tarfile.TarError, zlib.error, ValueError) as error:
        raise RemoteFailed(f"damaged data from a Modal sandbox: {error}") from error


def _replace(folder: Path, packed: Path) -> None:
    """Replace the content of a folder with that of a tar file."""
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


async def list_files(remote: Remote) -> Listing:
    """List the files of a sandbox that commands can change."""
    packed = bytearray()
    await remote.call(_LIST, take=limit_bytes(packed.extend, _MAX_LISTED))
    with _convert_data_errors():
        return await asyncio.to_thread(_read_listing, bytes(packed))


def _read_listing(packed: bytes) -> Listing:
    found = {}
    unpacked = zlib.decompressobj(wbits=31).decompress(packed, _MAX_LISTED)
    *rows, end = unpacked.split(b"\0")
    if end not in (b"end 0", b"end 1"):
        raise ValueError("the list of its files is incomplete")
    for row in rows:
        status, _, path = row.partition(b"\t")
        if path:
            kind, *rest = status.decode().split(" ")
            found[path.decode(errors="surrogateescape")] = _Entry(kind, tuple(rest))
    return found


async def export_changes(
    remote: Remote, before: Listing, target: Path, *, exclude: Sequence[str], disk_mb: int
) -> None:
    """Write all changes since an earlier listing to a tar file, as a layer.

    Args:
        remote: The sandbox.
        before: The files at the start.
        target: The tar file.
        exclude: Absolute paths that are left out, with everything below them.
        disk_mb: The disk limit of the sandbox.

    Raises:
        RemoteFailed: The programs needed for this are missing in the sandbox.
    """
    after = await list_files(remote)
    left_out = (*exclude, *_MODAL_FILES)
    changed = [
        path
        for path, entry in sorted(after.items())
        if path not in before or entry.differs(before[path])
    ]
    names = "\0".join(path for path in changed if not is_excluded(path, left_out))
    with target.open("wb") as file:
        await remote.call(
            # Exit code 1 means that a file disappeared or is not a file any more.
            "tar -c -f - -C / --format=posix --numeric-owner --null --no-recursion -T -; "
            "[ $? -le 1 ]",
            stdin=io.BytesIO(_encode(names)),
            take=limit_bytes(file.write, _MAX_FETCHED * disk_mb * MIB),
        )
    with _convert_data_errors():
        await asyncio.to_thread(_append_deleted, target, before, after, left_out)


def write_broken_layer(target: Path) -> None:
    """Write the layer of a broken sandbox, whose other changes cannot be read."""
    write_layer(target, [Changed("bin/sh", None)], ())


def _append_deleted(
    target: Path, before: Listing, after: Listing, exclude: Sequence[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-modal-") as scratch:
        deletions = Path(scratch, "deleted.tar")
        write_layer(deletions, _find_deleted(before, after), exclude)
        with tarfile.open(deletions) as source, tarfile.open(target, "a") as tar:
            for member in source:
                tar.addfile(member)


def _find_deleted(before: Listing, after: Listing) -> Iterable[Changed]:
    """Yield the outermost paths that are deleted, or are folders no longer."""
    for path, entry in sorted(before.items()):
        now = after.get(path)
        is_gone = now is None or (entry.kind == "d" and now.kind != "d")
        parent = str(PurePosixPath(path).parent)
        has_parent = parent == "." or (parent in after and after[parent].kind == "d")
        if is_gone and has_parent:
            yield Changed(path, None)


async def get_app() -> modal.App:
    """Return the app under which Modal lists our sandboxes."""
    with convert_errors():
        return await modal.App.lookup.aio(APP, create_if_missing=True)


async def build_task_image(recipe: ImageRecipe, app: modal.App) -> modal.Image:
    """Build the image of a recipe unless Modal has it."""
    image = modal.Image.from_dockerfile(
        recipe.context / recipe.dockerfile,
        context_dir=recipe.context,
        build_args=dict(recipe.arguments),
    )
    # Commands are started by assay, not by an entrypoint.
    return await _build(image.entrypoint([]), app)


async def build_default_image(app: modal.App) -> modal.Image:
    """Build the image for tasks without a Dockerfile unless Modal has it.

    It has the same Python version as here, at the same paths, pytest, and git.
    """
    # The prefix first, because Python agents look for the library next to it.
    links = {sys.base_prefix: "$(python3 -c 'import sys; print(sys.base_prefix)')"}
    links |= dict.fromkeys(follow_links(sys.executable), '"$(command -v python3)"')
    lines = [
        f"FROM {default_image_name()}",
        "RUN command -v git || { apt-get update && apt-get install -y --no-install-recommends "
        "git && rm -rf /var/lib/apt/lists/*; }",
        f"RUN python3 -c 'import pytest' || python3 -m pip install --no-cache-dir {_pytest()}",
        # Both may be below a home directory.
        "RUN chmod 755 /root",
    ]
    for path, target in links.items():
        folder, name = quote(str(Path(path).parent)), quote(path)
        lines.append(f"RUN [ -e {name} ] || {{ mkdir -p {folder} && ln -s {target} {name}; }}")
    with tempfile.TemporaryDirectory(prefix="assay-modal-") as scratch:
        file = Path(scratch, "Dockerfile")
        file.write_text("\n".join(lines) + "\n", "utf-8")
        return await _build(modal.Image.from_dockerfile(file, context_dir=scratch), app)


def _pytest() -> str:
    try:
        return f"pytest=={version('pytest')}"
    except PackageNotFoundError:
        return "pytest"


async def build_with_program(image: modal.Image, folder: Path, app: modal.App) -> modal.Image:
    """Build an image that adds the files of an agent to another, unless Modal has it."""
    with tempfile.TemporaryDirectory(prefix="assay-modal-") as scratch:
        packed = Path(scratch, "agent.tar")
        await asyncio.to_thread(_pack_program, folder, packed)
        # As one file, because the client would follow links, which agents have many of.
        image = image.add_local_file(packed, "/opt/agent.tar", copy=True).run_commands(
            f"mkdir -p {PROGRAM} && tar -x -p -f /opt/agent.tar -C {PROGRAM} "
            "&& rm /opt/agent.tar"
        )
        return await _build(image, app)


def _pack_program(folder: Path, target: Path) -> None:
    """Write a reproducible tar file, so that it is sent and unpacked once."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, str(path.relative_to(folder)), recursive=False, filter=_normalize)


def _normalize(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = 0
    return set_owner(member, owner=0)


async def _build(image: modal.Image, app: modal.App) -> modal.Image:
    with convert_errors():
        built = await image.build.aio(app)
    # Otherwise it would be read again by images built on it.
    return modal.Image.from_id(built.object_id)

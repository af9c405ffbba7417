"""Images of Docker's engine that assay makes: roots of this machine's programs, and of tasks.

All are named by their content, so that one that is there is never made again, and have the
label `assay`. Nothing is pulled: an image that a Dockerfile starts from is there, or is named
before anything is built.
"""

import asyncio
import hashlib
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from assay.core.text import cut
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.base import ImageRecipe
from assay.sandboxes.docker.engine import DockerEngine, EngineRefused
from assay.sandboxes.dockerfile import Dockerfile, ignored_paths
from assay.sandboxes.roots import root_links

LABEL: Final = "assay"
"""What all that is ours has in the engine; its value says what it is."""
_SAID: Final = 2000
"""Characters of the end of a failed build that are shown."""


async def has_image(engine: DockerEngine, name: str) -> Mapping[str, Any] | None:
    """What the engine knows of an image; None if it has none of this name."""
    found: Mapping[str, Any] | None = await engine.call(
        "GET", f"/images/{name}/json", accept=(404,)
    )
    return found


async def root_image(engine: DockerEngine) -> str:
    """An image of nothing but the links at the top, for mounts of this machine's /usr."""
    links = root_links()
    name = f"assay-root:{_digest(json.dumps(sorted(links.items())))}"
    if await has_image(engine, name) is None:
        with tempfile.TemporaryDirectory(prefix="assay-image-") as scratch:
            file = Path(scratch, "root.tar")
            with tarfile.open(file, "w") as tar:
                for link, target in links.items():
                    entry = tarfile.TarInfo(link.lstrip("/"))
                    entry.type, entry.linkname = tarfile.SYMTYPE, target
                    tar.addfile(entry)
            await _import(engine, name, file, "root")
    return name


async def _import(engine: DockerEngine, name: str, file: Path, kind: str) -> None:
    repository, _, tag = name.partition(":")
    query = {"fromSrc": "-", "repo": repository, "tag": tag, "changes": f"LABEL {LABEL}={kind}"}
    for line in await engine.send("POST", "/images/create", query=query, file=file):
        if "error" in line:
            raise SandboxUnavailable(f"Docker's engine cannot import {name}: {line['error']}")


async def build_image(engine: DockerEngine, recipe: ImageRecipe, *, network: str) -> str:
    """Build the image of a recipe, unless the engine has it; its name."""
    name = await _task_image(engine, recipe, _dockerfile(recipe), network)
    image = await has_image(engine, name)
    volumes = sorted(((image or {}).get("Config") or {}).get("Volumes") or {})
    if volumes:
        raise UsageError(
            f"{recipe.context / recipe.dockerfile}: the image has volumes "
            f"({', '.join(volumes)}), whose files would be lost; take the VOLUME out of it or "
            "of its base"
        )
    return name


def _dockerfile(recipe: ImageRecipe) -> Dockerfile:
    path = recipe.context / recipe.dockerfile
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return Dockerfile(text, recipe.arguments)


async def _task_image(
    engine: DockerEngine, recipe: ImageRecipe, dockerfile: Dockerfile, network: str
) -> str:
    """The image of a recipe over the bases that are here, built if it is not there."""
    path = recipe.context / recipe.dockerfile
    bases = {
        name: await _base(engine, name, recipe.base_images.get(name), path)
        for name in dockerfile.bases
    }
    text = dockerfile.with_bases({name: base["Id"] for name, base in bases.items()})
    content = await asyncio.to_thread(_content, recipe, text, dockerfile)
    settings = {"arguments": dict(recipe.arguments), "network": recipe.network}
    name = f"assay-task:{_digest(content, json.dumps(settings, sort_keys=True))}"
    if await has_image(engine, name) is None:
        with tempfile.TemporaryDirectory(prefix="assay-image-") as scratch:
            context = Path(scratch, "context.tar")
            await asyncio.to_thread(_pack, recipe, text, dockerfile, context)
            await _build(
                engine,
                name,
                context,
                recipe.dockerfile,
                network=network,
                arguments=recipe.arguments,
                kind="task",
            )
    return name


async def derived_image(engine: DockerEngine, name: str, lines: list[str]) -> None:
    """Build an image from the text of a Dockerfile alone, for one sandbox."""
    with tempfile.TemporaryDirectory(prefix="assay-image-") as scratch:
        context = Path(scratch, "context.tar")
        (Path(scratch) / "Dockerfile").write_text("\n".join(lines), "utf-8")
        with tarfile.open(context, "w") as tar:
            tar.add(Path(scratch) / "Dockerfile", "Dockerfile")
        await _build(
            engine, name, context, "Dockerfile", network="none", arguments={}, kind="layer"
        )


async def _build(
    engine: DockerEngine,
    name: str,
    context: Path,
    dockerfile: str,
    *,
    network: str,
    arguments: Mapping[str, str],
    kind: str,
) -> None:
    query = {
        "t": name,
        "dockerfile": dockerfile,
        "networkmode": network,
        "buildargs": json.dumps(dict(arguments)),
        "labels": json.dumps({LABEL: kind}),
        "rm": "1",
        "forcerm": "1",
    }
    try:
        lines = await engine.send("POST", "/build", query=query, file=context)
    except EngineRefused as error:
        if error.status != 400:
            raise
        raise UsageError(f"Docker's engine does not take the Dockerfile: {error}") from error
    for line in lines:
        if "error" in line:
            said = "".join(line.get("stream", "") for line in lines)[-_SAID:].strip()
            if (line.get("errorDetail") or {}).get("code"):
                raise SandboxUnavailable(f"the image was not built: {line['error']}\n{said}")
            raise UsageError(f"the image cannot be built: {cut(line['error'], 500)}")


async def _base(
    engine: DockerEngine, name: str, mapped: str | None, path: Path
) -> Mapping[str, Any]:
    """What the engine knows of the image that stands for a name after FROM."""
    if mapped is not None and Path(mapped).exists():
        local = await _imported(engine, Path(mapped))
    else:
        local = mapped or name
    found = await has_image(engine, local)
    if found is None:
        said = "is not in the engine" if mapped is None else f"({name}) is not in the engine"
        raise UsageError(
            f"{path}: the base image {local!r} {said}, and nothing is pulled; give one that "
            f"stands for it, --base-image {name}=LOCAL (an image of the engine, or a folder or "
            f"tar file with a file system), or pull it: docker pull {local}"
        )
    return found


async def _imported(engine: DockerEngine, source: Path) -> str:
    """A file system of this machine as an image, imported once."""
    digest = await asyncio.to_thread(_digest_of_path, source)
    name = f"assay-base:{digest}"
    if await has_image(engine, name) is None:
        if source.is_file():
            await _import(engine, name, source, "base")
        else:
            with tempfile.TemporaryDirectory(prefix="assay-image-") as scratch:
                file = Path(scratch, "base.tar")
                await asyncio.to_thread(_pack_folder, source, file)
                await _import(engine, name, file, "base")
    return name


def _pack_folder(source: Path, file: Path) -> None:
    with tarfile.open(file, "w") as tar:
        for entry in sorted(source.iterdir()):
            tar.add(entry, entry.name)


def _content(recipe: ImageRecipe, text: str, dockerfile: Dockerfile) -> str:
    """A hash of all that a build is given, with this text as its Dockerfile."""
    total = hashlib.sha256(text.encode())
    for path, name in _context(recipe, dockerfile):
        total.update(_told(path, name))
    return total.hexdigest()


def _pack(recipe: ImageRecipe, text: str, dockerfile: Dockerfile, target: Path) -> None:
    """Write the context of a build."""
    with tarfile.open(target, "w") as tar:
        for path, name in _context(recipe, dockerfile):
            for tree, mode in dockerfile.trees.items():
                stored = f"{tree}/{name}" if tree else name
                tar.add(path, stored, recursive=False, filter=partial(_as_copied, mode=mode))
        scratch = target.with_name("Dockerfile")
        scratch.write_text(text, "utf-8")
        tar.add(scratch, recipe.dockerfile, filter=partial(_as_copied, mode=0o644))


def _context(recipe: ImageRecipe, dockerfile: Dockerfile) -> Iterator[tuple[Path, str]]:
    """The files that can be copied; the Dockerfile at its own place is written anew."""
    ignored = ignored_paths(recipe.context, keep=recipe.dockerfile)
    for path, name in _below(recipe.context):
        if name not in ignored and not (name == recipe.dockerfile and "" in dockerfile.trees):
            yield path, name


def _as_copied(entry: tarfile.TarInfo, *, mode: int | None) -> tarfile.TarInfo:
    """What is copied belongs to root in an image, whoever has it here."""
    entry.mode = entry.mode if mode is None else mode
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _below(folder: Path) -> Iterator[tuple[Path, str]]:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(parent, name)
            yield path, path.relative_to(folder).as_posix()


def _told(path: Path, name: str) -> bytes:
    """What a hash is told of a file: its name, its kind, its mode and its content."""
    status = path.lstat()
    if path.is_symlink():
        content = os.readlink(path).encode(errors="surrogateescape")
    elif path.is_file():
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
    else:
        content = b""
    head = json.dumps([name, status.st_mode, len(content)]).encode(errors="surrogateescape")
    return head + content


def _digest_of_path(source: Path) -> str:
    if source.is_file():
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    total = hashlib.sha256()
    for path, name in _below(source):
        total.update(_told(path, name))
    return total.hexdigest()[:32]


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

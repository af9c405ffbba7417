"""Docker images created by assay: the root for this machine's programs, and task images.

All are named after a hash of their content, so that an existing one is reused, and have the
label `assay`. Nothing is pulled: every base image of a Dockerfile must exist, and a missing one
is reported before the build.
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
"""Label of everything that assay creates in the engine; its value is the kind."""
_SHOWN_OUTPUT: Final = 2000
"""Number of characters shown from the end of a failed build."""


async def find_image(engine: DockerEngine, name: str) -> Mapping[str, Any] | None:
    """Return the engine's description of an image, or None if it does not exist."""
    found: Mapping[str, Any] | None = await engine.call(
        "GET", f"/images/{name}/json", accept=(404,)
    )
    return found


async def ensure_root_image(engine: DockerEngine) -> str:
    """Return an image that has only the links at the root, for mounting this machine's /usr."""
    links = root_links()
    name = f"assay-root:{_hash(json.dumps(sorted(links.items())))}"
    if await find_image(engine, name) is None:
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
    """Build the image of a recipe unless the engine has it; return its name."""
    name = await _build_task_image(engine, recipe, _read_dockerfile(recipe), network)
    image = await find_image(engine, name)
    volumes = sorted(((image or {}).get("Config") or {}).get("Volumes") or {})
    if volumes:
        raise UsageError(
            f"{recipe.context / recipe.dockerfile}: the image has volumes "
            f"({', '.join(volumes)}), whose files would be lost; remove the VOLUME from it or "
            "from its base"
        )
    return name


def _read_dockerfile(recipe: ImageRecipe) -> Dockerfile:
    path = recipe.context / recipe.dockerfile
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    return Dockerfile(text, recipe.arguments)


async def _build_task_image(
    engine: DockerEngine, recipe: ImageRecipe, dockerfile: Dockerfile, network: str
) -> str:
    """Return the image of a recipe on its local base images; build it if necessary."""
    path = recipe.context / recipe.dockerfile
    bases = {
        name: await _find_base(engine, name, recipe.base_images.get(name), path)
        for name in dockerfile.bases
    }
    text = dockerfile.replace_bases({name: base["Id"] for name, base in bases.items()})
    content = await asyncio.to_thread(_hash_content, recipe, text, dockerfile)
    settings = {"arguments": dict(recipe.arguments), "network": recipe.network}
    name = f"assay-task:{_hash(content, json.dumps(settings, sort_keys=True))}"
    if await find_image(engine, name) is None:
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


async def build_derived_image(engine: DockerEngine, name: str, lines: list[str]) -> None:
    """Build an image for one sandbox from the text of a Dockerfile alone."""
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
        raise UsageError(f"Docker's engine rejects the Dockerfile: {error}") from error
    for line in lines:
        if "error" in line:
            output = "".join(line.get("stream", "") for line in lines)[-_SHOWN_OUTPUT:].strip()
            if (line.get("errorDetail") or {}).get("code"):
                raise SandboxUnavailable(f"the image was not built: {line['error']}\n{output}")
            raise UsageError(f"the image cannot be built: {cut(line['error'], 500)}")


async def _find_base(
    engine: DockerEngine, name: str, mapped: str | None, path: Path
) -> Mapping[str, Any]:
    """Return the engine's description of the image to use for a FROM name."""
    if mapped is not None and Path(mapped).exists():
        local = await _import_base(engine, Path(mapped))
    else:
        local = mapped or name
    found = await find_image(engine, local)
    if found is None:
        original = "" if mapped is None else f" ({name})"
        raise UsageError(
            f"{path}: the base image {local!r}{original} is not in the engine, and nothing is "
            f"pulled; replace it with --base-image {name}=LOCAL (an image of the engine, or a "
            f"folder or tar file with a file system), or pull it: docker pull {local}"
        )
    return found


async def _import_base(engine: DockerEngine, source: Path) -> str:
    """Import a file system of this machine as an image, once; return its name."""
    digest = await asyncio.to_thread(_hash_path, source)
    name = f"assay-base:{digest}"
    if await find_image(engine, name) is None:
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


def _hash_content(recipe: ImageRecipe, text: str, dockerfile: Dockerfile) -> str:
    """Hash all input of a build, with this text as its Dockerfile."""
    total = hashlib.sha256(text.encode())
    for path, name in _list_context(recipe, dockerfile):
        total.update(_hash_input(path, name))
    return total.hexdigest()


def _pack(recipe: ImageRecipe, text: str, dockerfile: Dockerfile, target: Path) -> None:
    """Write the context of a build."""
    with tarfile.open(target, "w") as tar:
        for path, name in _list_context(recipe, dockerfile):
            for tree, mode in dockerfile.trees.items():
                stored = f"{tree}/{name}" if tree else name
                tar.add(path, stored, recursive=False, filter=partial(_normalize, mode=mode))
        scratch = target.with_name("Dockerfile")
        scratch.write_text(text, "utf-8")
        tar.add(scratch, recipe.dockerfile, filter=partial(_normalize, mode=0o644))


def _list_context(recipe: ImageRecipe, dockerfile: Dockerfile) -> Iterator[tuple[Path, str]]:
    """Yield the files that can be copied; the Dockerfile itself is rewritten by `_pack`."""
    ignored = ignored_paths(recipe.context, keep=recipe.dockerfile)
    for path, name in _walk(recipe.context):
        if name not in ignored and not (name == recipe.dockerfile and "" in dockerfile.trees):
            yield path, name


def _normalize(entry: tarfile.TarInfo, *, mode: int | None) -> tarfile.TarInfo:
    """Set the owner to root, and the mode if given."""
    entry.mode = entry.mode if mode is None else mode
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _walk(folder: Path) -> Iterator[tuple[Path, str]]:
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*folders, *files]):
            path = Path(parent, name)
            yield path, path.relative_to(folder).as_posix()


def _hash_input(path: Path, name: str) -> bytes:
    """Return the input of a hash for a file: its name, type, mode and content."""
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


def _hash_path(source: Path) -> str:
    if source.is_file():
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    total = hashlib.sha256()
    for path, name in _walk(source):
        total.update(_hash_input(path, name))
    return total.hexdigest()[:32]


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

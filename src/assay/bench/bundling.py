"""Tasks, built images and installed agents in one file, for a machine without a network.

    bundle.json         what is in it, each with its SHA-256
    tasks/<name>.tar    the folder of a task
    images/<hash>.tar   an image, or the base of one, of the bubblewrap sandbox
    docker-images/<name>.tar   an image of Docker's engine
    agents/<name>.tar   an agent, as 'assay bench agents install' left it

Nothing of a bundle is put into its place before all of it has been checked. An image of
Docker's engine has all its layers, so that its base is not needed.
"""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay._util.names import unknown_name
from assay.bench.cache import cache_folder
from assay.bench.coders import PROGRAMS, installed_agent
from assay.bench.coders.programs import agents_folder
from assay.bench.harbor import BaseImages, HarborTask, load_any_task
from assay.bench.harbor.trial import image_backend, recipes
from assay.bench.sandboxes import BubblewrapBackend, choose_backend
from assay.bench.sandboxes.docker import DockerBackend
from assay.bench.sandboxes.docker_archives import load_archive, rewrite_archive, save_archive
from assay.bench.sandboxes.docker_engine import DockerEngine
from assay.bench.sandboxes.docker_images import bundled_name, is_bundled_name
from assay.bench.sandboxes.images import base_image, images_folder, load_image, name_bases
from assay.errors import AssayError, OutputError, SandboxUnavailable, UsageError

__all__ = ["BundlePart", "make_bundle", "open_bundle"]

FORMAT: Final = "assay-bundle/1"
_CONTENTS: Final = "bundle.json"
_DOCKER_IMAGES: Final = "docker-images"
_KINDS: Final = ("tasks", "images", _DOCKER_IMAGES, "agents")
_LARGEST_CONTENTS: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BundlePart:
    """One thing in a bundle."""

    kind: str
    """tasks, images, docker-images or agents."""
    name: str
    sha256: str
    size: int
    place: Path | None = None
    """Where it is now, if it was unpacked to a folder."""
    added: bool = True
    """False: it was there already."""


async def make_bundle(
    tasks: Sequence[Path],
    output: Path,
    bases: BaseImages,
    agents: Sequence[str] | None = None,
    sandbox: str | None = None,
) -> tuple[BundlePart, ...]:
    """Pack tasks with all that they need; images are built if they are not there.

    Args:
        tasks: Their folders.
        output: The file to write.
        bases: What images are built over.
        agents: Which installed agents; all of them unless given.
        sandbox: Whose images: bubblewrap or docker; chosen as for a run unless given.

    Raises:
        UsageError: A task cannot be read, or its image cannot be built.
        SandboxUnavailable: A build failed, or no engine answers.
        OutputError: The file cannot be written.
    """
    folders: dict[str, Path] = {}
    names: dict[str, str] = {}
    images: dict[str, None] = {}
    docker_images: dict[str, str] = {}
    backend = choose_backend(sandbox)
    for folder in tasks:
        task = load_any_task(folder)
        if folders.setdefault(task.task_id, task.folder) != task.folder:
            raise UsageError(f"two tasks are called {task.task_id!r}; pack them apart")
        for recipe in recipes(task, bases) if isinstance(task, HarborTask) else ():
            name = await image_backend(backend).build(recipe)
            if isinstance(backend, DockerBackend):
                docker_images[bundled_name(recipe)] = name
            elif isinstance(backend, BubblewrapBackend):
                layers = (path.parent.name for path in load_image(name).layers)
                images |= dict.fromkeys([name, *layers])
                names.update([base_image(recipe)])
            else:
                raise UsageError(
                    f"images of the sandbox {backend.name!r} cannot be packed; use "
                    "--sandbox bubblewrap or docker"
                )
    wanted = _agents(agents)
    with tempfile.TemporaryDirectory(prefix="assay-bundle-") as scratch:
        made = Path(scratch)
        parts = [
            *(_packed(made, "tasks", name, folder) for name, folder in folders.items()),
            *(_packed(made, "images", name, images_folder() / name) for name in images),
            *[await _saved(made, name, image) for name, image in docker_images.items()],
            *(_packed(made, "agents", name, agents_folder() / name) for name in wanted),
        ]
        contents = {
            "format": FORMAT,
            "base_images": names,
            "parts": [
                {"kind": part.kind, "name": part.name, "sha256": part.sha256} for part in parts
            ],
        }
        (made / _CONTENTS).write_text(json.dumps(contents, indent=2), "utf-8")
        try:
            with tarfile.open(output, "w") as tar:
                tar.add(made / _CONTENTS, _CONTENTS)
                for part in parts:
                    tar.add(made / f"{part.kind}-{part.name}.tar", _member(part))
        except OSError as error:
            raise OutputError(f"{output} cannot be written: {error}") from error
    return tuple(parts)


async def open_bundle(file: Path, into: Path) -> tuple[BundlePart, ...]:
    """Check a bundle, and put all of it into its place; what is there already stays.

    Args:
        file: The bundle.
        into: Gets the folders of its tasks; images and agents go to the cache folder, and
            images of Docker to its engine.

    Raises:
        UsageError: It is no bundle, or something in it is not what it was when it was packed.
        SandboxUnavailable: It has images of Docker, and no engine takes them.
        OutputError: A file cannot be written.
    """
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".bundle-", dir=cache) as scratch:
            checked = Path(scratch)
            contents = _checked(file, checked)
            loaded = await _loaded(file, contents["parts"], checked)
            homes = {"tasks": into, "images": images_folder(), "agents": agents_folder()}
            placed = [
                _placed(part, checked, homes[part["kind"]])
                for part in contents["parts"]
                if part["kind"] in homes
            ]
            name_bases(contents["base_images"])
    except AssayError:  # some are an OSError, too
        raise
    except OSError as error:
        raise OutputError(f"{file} cannot be unpacked: {error}") from error
    return (*loaded, *placed)


def _agents(said: Sequence[str] | None) -> list[str]:
    if said is None:
        return [name for name in PROGRAMS if installed_agent(name) is not None]
    for name in said:
        if name not in PROGRAMS:
            raise UsageError(unknown_name("agent", name, PROGRAMS))
        if installed_agent(name) is None:
            raise UsageError(f"agent {name!r} is not installed; 'assay bench agents install'")
    return list(said)


def _member(part: BundlePart) -> str:
    return f"{part.kind}/{part.name}.tar"


def _packed(made: Path, kind: str, name: str, folder: Path) -> BundlePart:
    """A folder as a tar file, with owners, links and what an overlay needs."""
    target = made / f"{kind}-{name}.tar"
    _tar("--create", "--file", str(target), "-C", str(folder), ".")
    return BundlePart(kind=kind, name=name, sha256=_sha256(target), size=target.stat().st_size)


async def _saved(made: Path, name: str, image: str) -> BundlePart:
    """An image of Docker's engine as a tar file."""
    target = made / f"{_DOCKER_IMAGES}-{name}.tar"
    async with DockerEngine.connected() as engine:
        await save_archive(engine, image, target, name)
    return BundlePart(
        kind=_DOCKER_IMAGES, name=name, sha256=_sha256(target), size=target.stat().st_size
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tar(*arguments: str) -> None:
    command = ["tar", "--numeric-owner", "--xattrs", "--xattrs-include=*", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        raise OutputError(f"tar failed: {done.stderr.strip()[-300:]}")


def _checked(file: Path, target: Path) -> dict[str, Any]:
    """Unpack the parts of a bundle side by side, and compare each with its hash."""
    try:
        with tarfile.open(file) as tar:
            contents = _contents(tar, file)
            for part in contents["parts"]:
                name = f"{part['kind']}/{part['name']}.tar"
                source = tar.extractfile(name)
                if source is None:
                    raise KeyError(name)
                place = target / name.replace("/", "-")
                with source, place.open("xb") as copy:
                    shutil.copyfileobj(source, copy)
                if _sha256(place) != part["sha256"]:
                    raise UsageError(
                        f"{file}: {name} is not what it was when it was packed: its "
                        "SHA-256 is another; copy the bundle again"
                    )
    except (tarfile.TarError, KeyError, FileNotFoundError) as error:
        raise UsageError(f"{file} is no whole bundle: {error}") from error
    return contents


def _contents(tar: tarfile.TarFile, file: Path) -> dict[str, Any]:
    source = tar.extractfile(_CONTENTS)
    assert source is not None, "it would have been a KeyError"
    try:
        said = json.loads(source.read(_LARGEST_CONTENTS))
        parts = list(_parts(said))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} is no bundle of assay: {error}") from error
    return {"parts": parts, "base_images": dict(said["base_images"])}


def _parts(said: Any) -> Iterator[dict[str, str]]:
    if said["format"] != FORMAT:
        raise ValueError(f"its format is {said['format']!r}, not {FORMAT!r}")
    for part in said["parts"]:
        name = part["name"]
        if part["kind"] not in _KINDS or Path(name).name != name or name.startswith("."):
            raise ValueError(f"{part['kind']}/{name} cannot be in one")
        if part["kind"] == _DOCKER_IMAGES and not is_bundled_name(name):
            raise ValueError(f"an image of Docker cannot be called {name!r} in one")
        yield {"kind": part["kind"], "name": name, "sha256": part["sha256"]}


async def _loaded(
    file: Path, parts: Sequence[Mapping[str, str]], checked: Path
) -> list[BundlePart]:
    """Give the images of Docker to its engine, if there are any."""
    archives = {
        part["name"]: checked / f"{_DOCKER_IMAGES}-{part['name']}.tar"
        for part in parts
        if part["kind"] == _DOCKER_IMAGES
    }
    for name, archive in archives.items():
        own = archive.with_suffix(".own")
        rewrite_archive(archive, name, own, name)
        own.replace(archive)
    if not archives:
        return []
    try:
        async with DockerEngine.connected() as engine:
            return [
                BundlePart(
                    kind=_DOCKER_IMAGES,
                    name=name,
                    sha256=_sha256(archive),
                    size=archive.stat().st_size,
                    added=await load_archive(engine, archive, name),
                )
                for name, archive in archives.items()
            ]
    except SandboxUnavailable as error:
        raise SandboxUnavailable(
            f"{file} has images of Docker, and {error}. Nothing else of it was unpacked"
        ) from error


def _placed(part: dict[str, str], checked: Path, home: Path) -> BundlePart:
    kind, name = part["kind"], part["name"]
    packed, place = checked / f"{kind}-{name}.tar", home / name
    added = not place.exists()
    if added:
        home.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".unpacked-", dir=home))
        try:
            _tar("--extract", "--preserve-permissions", "-f", str(packed), "-C", str(made))
            made.rename(place)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    size = packed.stat().st_size
    return BundlePart(
        kind=kind, name=name, sha256=part["sha256"], size=size, place=place, added=added
    )

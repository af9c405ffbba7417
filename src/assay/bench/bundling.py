"""Tasks, built images and installed agents in one file, for a machine without a network.

    bundle.json         what is in it, each with its SHA-256
    tasks/<name>.tar    the folder of a task
    images/<hash>.tar   an image, or the base of one, of the bubblewrap sandbox
    agents/<name>.tar   an agent, as 'assay bench agents install' left it

Nothing of a bundle is put into its place before all of it has been checked.
"""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from assay._util.names import unknown_name
from assay.bench.cache import cache_folder
from assay.bench.coders import PROGRAMS, installed_agent
from assay.bench.coders.programs import agents_folder
from assay.bench.harbor import BaseImages, HarborTask, load_any_task
from assay.bench.harbor.trial import recipes
from assay.bench.sandboxes import BubblewrapBackend
from assay.bench.sandboxes.images import base_image, images_folder, load_image, name_bases
from assay.errors import OutputError, UsageError

__all__ = ["BundlePart", "make_bundle", "open_bundle"]

FORMAT: Final = "assay-bundle/1"
_CONTENTS: Final = "bundle.json"
_KINDS: Final = ("tasks", "images", "agents")
_LARGEST_CONTENTS: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BundlePart:
    """One thing in a bundle."""

    kind: str
    """tasks, images or agents."""
    name: str
    sha256: str
    size: int
    place: Path | None = None
    """Where it is now, if it was unpacked."""
    added: bool = True
    """False: it was there already."""


async def make_bundle(
    tasks: Sequence[Path], output: Path, bases: BaseImages, agents: Sequence[str] | None = None
) -> tuple[BundlePart, ...]:
    """Pack tasks with all that they need; images are built if they are not there.

    Args:
        tasks: Their folders.
        output: The file to write.
        bases: What images are built over.
        agents: Which installed agents; all of them unless given.

    Raises:
        UsageError: A task cannot be read, or its image cannot be built.
        OutputError: The file cannot be written.
    """
    folders: dict[str, Path] = {}
    names: dict[str, str] = {}
    images: dict[str, None] = {}
    backend = BubblewrapBackend()
    for folder in tasks:
        task = load_any_task(folder)
        if folders.setdefault(task.task_id, task.folder) != task.folder:
            raise UsageError(f"two tasks are called {task.task_id!r}; pack them apart")
        for recipe in recipes(task, bases) if isinstance(task, HarborTask) else ():
            built = load_image(await backend.build(recipe))
            images |= dict.fromkeys([built.name, *(path.parent.name for path in built.layers)])
            names.update([base_image(recipe)])
    wanted = _agents(agents)
    with tempfile.TemporaryDirectory(prefix="assay-bundle-") as scratch:
        made = Path(scratch)
        parts = [
            *(_packed(made, "tasks", name, folder) for name, folder in folders.items()),
            *(_packed(made, "images", name, images_folder() / name) for name in images),
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


def open_bundle(file: Path, into: Path) -> tuple[BundlePart, ...]:
    """Check a bundle, and put all of it into its place; what is there already stays.

    Args:
        file: The bundle.
        into: Gets the folders of its tasks; images and agents go to the cache folder.

    Raises:
        UsageError: It is no bundle, or something in it is not what it was when it was packed.
        OutputError: A file cannot be written.
    """
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".bundle-", dir=cache) as scratch:
            checked = Path(scratch)
            contents = _checked(file, checked)
            homes = {"tasks": into, "images": images_folder(), "agents": agents_folder()}
            parts = tuple(
                _placed(part, checked, homes[part["kind"]]) for part in contents["parts"]
            )
            name_bases(contents["base_images"])
    except OSError as error:
        raise OutputError(f"{file} cannot be unpacked: {error}") from error
    return parts


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
    with target.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return BundlePart(kind=kind, name=name, sha256=digest, size=target.stat().st_size)


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
                with place.open("rb") as copy:
                    if hashlib.file_digest(copy, "sha256").hexdigest() != part["sha256"]:
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
        yield {"kind": part["kind"], "name": name, "sha256": part["sha256"]}


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

"""Images that are built by our own steps: a Dockerfile over a file system of this machine.

    <cache>/images/<hash>/layer/        what this image has beside those below it
    <cache>/images/<hash>/image.json    its layers, variables, working directory and user

The hash is of all that an image is made of: the Dockerfile, the files beside it, its arguments
and its base. An image is complete when it is there: it is made elsewhere and moved there.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

from assay._util.canonical import canonical_json
from assay._util.files import atomic_write
from assay.bench.cache import cache_folder
from assay.bench.sandboxes.dockerfile import (
    Instruction,
    expanded,
    pairs_of,
    parse_dockerfile,
    shell_script,
)
from assay.bench.sandboxes.folders import remove_folder
from assay.bench.sandboxes.image_roots import ImageRoot, copy_tree, overlays, private_root
from assay.bench.sandboxes.image_users import Find, owner_of
from assay.bench.sandboxes.roots import IMAGE_ENVIRONMENT
from assay.bench.seams import (
    SHARED,
    Command,
    ImageRecipe,
    ImageSandbox,
    Mount,
    ResourceLimits,
    SandboxSpec,
)
from assay.errors import SandboxUnavailable, UsageError

__all__ = [
    "Image",
    "base_image",
    "build_image",
    "check_recipe",
    "images_folder",
    "load_image",
    "name_bases",
    "named_bases",
]

FORMAT: Final = "assay-image/1"
_RECORD: Final = "image.json"
_NAMES: Final = "names.json"
_MAKING: Final = ".making-"
_LOCK: Final = "lock"
_RUN_S: Final = 3600.0
_LAST: Final = 1500
"""Characters of what a failed RUN printed that are shown."""
_NEEDED: Final = ("bin/sh", "usr/bin/setsid")
_EMPTIED: Final = ("etc/hosts", "etc/resolv.conf")
"""Files of a base that are mounted over, and may be links that lead nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image that is there."""

    name: str
    layers: tuple[Path, ...]
    """The topmost first."""
    environment: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str | None = None

    def find(self, path: str) -> Path | None:
        """A file of it on this machine, by its path without a slash before it."""
        places = (layer / path for layer in self.layers)
        return next((place for place in places if place.is_file()), None)


OpenRoot: TypeAlias = Callable[
    [SandboxSpec, ImageRoot, Image, Find], AbstractAsyncContextManager[ImageSandbox]
]


def images_folder() -> Path:
    """Where images are kept."""
    return cache_folder() / "images"


def load_image(name: str) -> Image:
    """An image that was built.

    Raises:
        SandboxUnavailable: There is none of this name.
    """
    home = images_folder()
    try:
        said = json.loads((home / name / _RECORD).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SandboxUnavailable(f"there is no image {name!r} in {home}; build it") from error
    return Image(
        name=name,
        layers=tuple(home / layer / "layer" for layer in said["layers"]),
        environment=said["environment"],
        workdir=said["workdir"],
        user=said["user"],
    )


def check_recipe(recipe: ImageRecipe) -> None:
    """Find out whether an image can be built by our own steps, before anything is started.

    Raises:
        UsageError: An instruction or a base image cannot be honoured; it is named.
    """
    _plan(recipe)


async def build_image(recipe: ImageRecipe, open_root: OpenRoot) -> str:
    """Build an image, unless it is there.

    Args:
        recipe: What it is built from.
        open_root: Makes a sandbox on a file system that is being built.
    """
    plan = await asyncio.to_thread(_plan, recipe)
    base = await asyncio.to_thread(_base_image, plan)
    name = await asyncio.to_thread(_hash_of, recipe, plan, base)
    async with _making(name) as folder:
        if folder is None:
            return name
        root = await asyncio.to_thread(private_root, base.layers, folder, None)
        image = await _Builder(recipe, plan, base, root, open_root).build()
        remove_folder(root.writable / SHARED.lstrip("/"))
        layers = [name, *(layer.parent.name for layer in base.layers)] if overlays() else [name]
        root.writable.rename(folder / "layer")
        for rest in ("work", "root", "mark"):
            remove_folder(folder / rest)
        _write_record(folder, image, layers)
    return name


@dataclass(frozen=True, slots=True)
class _Plan:
    """A Dockerfile that can be built."""

    source: str
    steps: tuple[Instruction, ...]
    """After FROM."""
    arguments: Mapping[str, str]
    """Of ARG before FROM."""
    base_name: str
    base: Path | str
    """A folder or tar file, or the name of an image that came in a bundle."""


def _plan(recipe: ImageRecipe) -> _Plan:
    path = recipe.context / recipe.dockerfile
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    steps = parse_dockerfile(text, str(path))
    if (recipe.context / ".dockerignore").exists():
        raise UsageError(f"{recipe.context / '.dockerignore'} cannot be honoured here")
    arguments: dict[str, str] = {}
    while steps[0].name == "ARG":
        name, _, default = steps[0].text.partition("=")
        arguments[name] = recipe.arguments.get(name, expanded(default, arguments))
        steps = steps[1:]
    words = expanded(steps[0].text, arguments).split()
    if len(words) not in (1, 3):
        raise UsageError(f"{path}:{steps[0].line}: FROM {steps[0].text!r} cannot be read")
    for step in steps:
        if step.name in ("COPY", "ADD"):
            _sources(recipe.context, step, {}, str(path), check=True)
    return _Plan(str(path), steps[1:], arguments, words[0], _mapped(words[0], recipe))


def _mapped(name: str, recipe: ImageRecipe) -> Path | str:
    for known in (name, f"{name}:latest", name.removesuffix(":latest")):
        if known in recipe.base_images:
            path = Path(recipe.base_images[known]).expanduser()
            if path.exists():
                return path
            raise UsageError(f"--base-image {known}={path}: there is no such folder or file")
    if name in (named := named_bases()):
        return named[name]
    raise UsageError(
        f"base image {name!r} is not here; give a folder or tar file with a file system for "
        f"it: --base-image {name}=LOCAL, such as 'debootstrap --variant=minbase bookworm "
        "LOCAL' makes"
    )


def base_image(recipe: ImageRecipe) -> tuple[str, str]:
    """The name after FROM, and the image that stands for it, taken over if it is not here."""
    plan = _plan(recipe)
    return plan.base_name, _base_image(plan).name


def named_bases() -> dict[str, str]:
    """The images that stand for names after FROM where nothing else does."""
    try:
        said: dict[str, str] = json.loads((images_folder() / _NAMES).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return said


def name_bases(names: Mapping[str, str]) -> None:
    """Let images stand for names after FROM, beside those that do so already."""
    text = json.dumps({**named_bases(), **names}, indent=2, sort_keys=True)
    atomic_write(images_folder() / _NAMES, text.encode())


def _base_image(plan: _Plan) -> Image:
    """A base as an image of its own, taken over once."""
    path, name = plan.base, plan.base_name
    if isinstance(path, str):
        return load_image(path)
    mark = hashlib.sha256(
        canonical_json([FORMAT, "base", _fingerprint(path.resolve())])
    ).hexdigest()
    with _claimed(mark) as folder:
        if folder is not None:
            layer = folder / "layer"
            _take_over(path, layer)
            for needed in _NEEDED:
                if not _is_there(layer, needed):
                    raise UsageError(
                        f"--base-image {name}={path} has no /{needed}; give a folder or tar "
                        "file with a whole file system"
                    )
            for emptied in _EMPTIED:
                (layer / emptied).unlink(missing_ok=True)
                (layer / emptied).touch()
            path_of = {"PATH": IMAGE_ENVIRONMENT["PATH"]}
            _write_record(folder, Image(name=mark, layers=(), environment=path_of), [mark])
            _put(folder, mark)
    return load_image(mark)


def _is_there(layer: Path, path: str) -> bool:
    """Whether a file system has a path, links of its own followed and those of ours not."""
    place = PurePosixPath("/")
    parts = list(PurePosixPath(path).parts)
    for _ in range(40):
        if not parts:
            return True
        inner = place / parts.pop(0)
        real = layer / inner.relative_to("/")
        if real.is_symlink():
            target = PurePosixPath(os.readlink(real))
            parts = [part for part in target.parts if part != "/"] + parts
            place = PurePosixPath("/") if target.is_absolute() else place
            continue
        if parts[:1] == [".."]:
            continue
        if not real.exists():
            return False
        place = inner
    return False


def _take_over(path: Path, layer: Path) -> None:
    if path.is_dir():
        copy_tree(path.resolve(), layer)
        return
    layer.mkdir()
    tar = ["tar", "--extract", "--numeric-owner", "--preserve-permissions"]
    done = subprocess.run(
        [*tar, "--exclude=dev/*", "--exclude=./dev/*", "-C", str(layer), "-f", str(path)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise UsageError(f"{path} cannot be unpacked: {done.stderr.strip()[-300:]}")


@cache
def _fingerprint(path: Path) -> str:
    """A hash of a base: of a tar file all of it, of a folder its paths, sizes and times."""
    digest = hashlib.sha256()
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted([*names, *folders]):
            place = Path(folder, name)
            status = place.lstat()
            said = [str(place.relative_to(path)), status.st_mode, status.st_size]
            if not stat.S_ISDIR(status.st_mode):
                said.append(status.st_mtime_ns)
            digest.update(canonical_json(said))
    return digest.hexdigest()


def _hash_of(recipe: ImageRecipe, plan: _Plan, base: Image) -> str:
    """A hash of all that decides what an image holds."""
    files = []
    for path in sorted(recipe.context.rglob("*")):
        status = path.lstat()
        content = ""
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        relative = str(path.relative_to(recipe.context))
        files.append([relative, bool(status.st_mode & 0o100), content])
    whole = [FORMAT, overlays(), base.name, recipe.dockerfile, dict(recipe.arguments), files]
    return hashlib.sha256(canonical_json(whole)).hexdigest()


# One after another


@asynccontextmanager
async def _making(name: str) -> AsyncIterator[Path | None]:
    """A folder to make an image in, which is put into its place; None if it is there."""
    claim = _claimed(name)
    folder = await asyncio.to_thread(claim.__enter__)
    try:
        yield folder
        if folder is not None:
            _put(folder, name)
    finally:
        await asyncio.shield(asyncio.to_thread(claim.__exit__, None, None, None))


@contextmanager
def _claimed(name: str) -> Iterator[Path | None]:
    """A folder of one's own to make an image in; None if it is there by now."""
    home = images_folder()
    home.mkdir(parents=True, exist_ok=True)
    with (home / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (home / name / _RECORD).is_file():
            yield None
            return
        _sweep(home)
        folder = Path(tempfile.mkdtemp(prefix=_MAKING, dir=home))
        try:
            # As long as it is locked, its owner lives.
            with (folder / _LOCK).open("w") as own:
                fcntl.flock(own, fcntl.LOCK_EX)
                yield folder
        finally:
            if folder.exists():
                remove_folder(folder)


def _sweep(home: Path) -> None:
    """Remove what builds left that were killed."""
    for folder in home.glob(f"{_MAKING}*"):
        try:
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(folder)
        except OSError:  # in use, or not locked yet
            continue


def _put(folder: Path, name: str) -> None:
    folder.chmod(0o755)
    (folder / _LOCK).unlink()
    folder.rename(folder.with_name(name))


def _write_record(folder: Path, image: Image, layers: list[str]) -> None:
    said: dict[str, Any] = {
        "format": FORMAT,
        "layers": layers,
        "environment": dict(image.environment),
        "workdir": image.workdir,
        "user": image.user,
    }
    (folder / _RECORD).write_text(json.dumps(said, indent=2), "utf-8")


# Steps


class _Builder:
    """Does the steps of a Dockerfile, one after another."""

    def __init__(
        self,
        recipe: ImageRecipe,
        plan: _Plan,
        base: Image,
        root: ImageRoot,
        open_root: OpenRoot,
    ) -> None:
        self._recipe, self._plan, self._root, self._open = recipe, plan, root, open_root
        self._image = replace(base, name="being built")
        self._arguments: dict[str, str] = {}

    async def build(self) -> Image:
        """All of them; what the image is then."""
        for step in self._plan.steps:
            await self._do(step)
        return self._image

    @property
    def _variables(self) -> dict[str, str]:
        return {**self._arguments, **self._image.environment}

    async def _do(self, step: Instruction) -> None:
        image = self._image
        text = expanded(step.text, self._variables)
        match step.name:
            case "ARG":
                name, _, default = text.partition("=")
                known = self._plan.arguments.get(name, default.strip("\"'"))
                self._arguments[name] = self._recipe.arguments.get(name, known)
            case "ENV":
                pairs = pairs_of(step, self._variables, self._plan.source)
                self._image = replace(image, environment={**image.environment, **pairs})
            case "USER":
                self._image = replace(image, user=text)
            case "WORKDIR":
                place = str(PurePosixPath(image.workdir, text.strip("\"'")))
                await self._run(step, ("mkdir", "-p", "--", place), user="0")
                self._image = replace(image, workdir=place)
            case "RUN":
                argv = step.words or ("/bin/sh", "-c", shell_script(step))
                await self._run(step, argv, user=image.user)
            case _:
                await self._copy(step)

    async def _run(
        self,
        step: Instruction,
        argv: tuple[str, ...],
        *,
        user: str | None,
        mounts: tuple[Mount, ...] = (),
    ) -> None:
        spec = SandboxSpec(
            mounts=mounts,
            environment=self._variables,
            workdir=self._image.workdir,
            limits=ResourceLimits(
                cpus=float(os.cpu_count() or 1),
                memory_mb=4096,
                processes=2048,
                disk_mb=20_480,
                network=self._recipe.network,
            ),
            user=user,
        )
        async with self._open(spec, self._root, self._image, self._root.find) as sandbox:
            end = await sandbox.run(Command(argv=argv, timeout_s=_RUN_S))
        if end.exit_code == 0:
            return
        said = end.output.decode(errors="replace").strip()[-_LAST:]
        offline = (
            "" if self._recipe.network else "; it had no network: --build-network gives one"
        )
        raise SandboxUnavailable(
            f"{self._plan.source}:{step.line}: {step.name} {step.text[:200]!r} ended with "
            f"{'a timeout' if end.timed_out else f'code {end.exit_code}'}{offline}:\n{said}"
        )

    async def _copy(self, step: Instruction) -> None:
        """Put files of the context into the image, as root whatever USER says."""
        recipe, where = self._recipe, self._plan.source
        sources, target = _sources(recipe.context, step, self._variables, where)
        said = expanded(step.flags.get("chown", "0:0"), self._variables)
        owner = owner_of(self._root.find, said)
        target_path = str(PurePosixPath(self._image.workdir, target))
        alone = len(sources) == 1 and not sources[0].is_dir() and not target.endswith("/")
        with tempfile.TemporaryDirectory(prefix="assay-stage-") as name:
            stage = Path(name) / "stage"
            stage.mkdir()
            unpacked = await asyncio.to_thread(_stage, sources, stage, step, owner)
            script = _INTO_FILE if alone and not unpacked else _INTO_FOLDER
            argv = ("/bin/sh", "-c", script, "copy", target_path, sources[0].name)
            await self._run(step, argv, user="0", mounts=(Mount(stage, SHARED),))


_INTO_FOLDER: Final = f"""\
mkdir -p -- "$1" && cd {SHARED} || exit 1
for file in .[!.]* ..?* *; do
  if [ -e "$file" ] || [ -L "$file" ]; then cp -a -- "$file" "$1/" || exit 1; fi
done"""
_INTO_FILE: Final = f"""\
mkdir -p -- "$(dirname -- "$1")" || exit 1
if [ -d "$1" ]; then exec cp -a -- "{SHARED}/$2" "$1/"; fi
exec cp -a -- "{SHARED}/$2" "$1" """


def _sources(
    context: Path,
    step: Instruction,
    variables: Mapping[str, str],
    where: str,
    *,
    check: bool = False,
) -> tuple[list[Path], str]:
    """What COPY or ADD names, and where it goes.

    Raises:
        UsageError: One of them is not in the context, or not a local file.
    """
    place = f"{where}:{step.line}"
    words = step.words or tuple(step.text.split())
    if len(words) < 2:
        raise UsageError(f"{place}: {step.name} {step.text!r} has no target")
    *named, target = (word if check else expanded(word, variables) for word in words)
    if "chmod" in step.flags and not step.flags["chmod"].isdecimal():
        raise UsageError(f"{place}: --chmod={step.flags['chmod']} is not a number such as 755")
    found: list[Path] = []
    for word in named:
        if "://" in word or word.startswith("git@"):
            raise UsageError(f"{place}: {step.name} of {word} cannot be honoured here; copy it")
        if check and "$" in word:
            continue
        inner = os.path.normpath(word.lstrip("/") or ".")
        if inner.startswith(".."):
            raise UsageError(f"{place}: {step.name} {word} leads out of the folder")
        matches = sorted(context.glob(inner)) if set(inner) & set("*?[") else [context / inner]
        real = context.resolve()
        for path in matches or [context / inner]:
            if not os.path.lexists(path) or not path.resolve().is_relative_to(real):
                raise UsageError(f"{place}: {step.name}: there is no {word!r} in {context}")
            found.append(path)
    return found, target


def _stage(sources: list[Path], stage: Path, step: Instruction, owner: tuple[int, int]) -> bool:
    """Copy files with the owner and rights they are to have; whether one was unpacked."""
    unpacked = False
    for source in sources:
        if source.is_dir():
            shutil.copytree(source, stage, symlinks=True, dirs_exist_ok=True)
        elif step.name == "ADD" and tarfile.is_tarfile(source):
            unpacked = True
            tar = ["tar", "--extract", "--numeric-owner", "-C", str(stage), "-f", str(source)]
            done = subprocess.run(tar, capture_output=True, text=True, check=False)
            if done.returncode:
                raise UsageError(f"{source} cannot be unpacked: {done.stderr.strip()[-300:]}")
        else:
            shutil.copy2(source, stage / source.name)
    for path in stage.rglob("*"):
        if os.geteuid() == 0:
            os.chown(path, *owner, follow_symlinks=False)
        if "chmod" in step.flags and not path.is_symlink():
            path.chmod(int(step.flags["chmod"], 8))
    return unpacked

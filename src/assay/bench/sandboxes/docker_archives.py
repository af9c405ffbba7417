"""Images of Docker's engine as files: written for a bundle, checked, and loaded from one.

Which files of an archive an engine reads, and under which names it loads what is in them,
differs between its versions. So it gets only archives that are written here: one image, its
layers, one name. An archive of somebody else cannot replace an image of the user's own.
"""

import io
import json
import posixpath
import tarfile
from pathlib import Path
from typing import IO, Final

from assay.bench.sandboxes.docker_engine import DockerEngine
from assay.bench.sandboxes.docker_images import has_image
from assay.errors import SandboxUnavailable, UsageError

__all__ = ["load_archive", "rewrite_archive", "save_archive"]

_MANIFEST: Final = "manifest.json"
_CONFIG: Final = "config.json"
_LARGEST_MANIFEST: Final = 1 << 20


async def save_archive(engine: DockerEngine, image: str, target: Path, name: str) -> None:
    """Write an image of the engine to a file, under another name."""
    saved = target.with_suffix(".saved")
    await engine.fetch(f"/images/{image}/get", saved, query={})
    rewrite_archive(saved, image, target, name)
    saved.unlink()


def rewrite_archive(source: Path, said: str, target: Path, name: str) -> None:
    """Copy the image of an archive under a name, and nothing else of it.

    Args:
        source: As an engine saved it, or as it was written here.
        said: The one name that it may have in there.
        target: The archive to write.
        name: What it is called from now on.

    Raises:
        UsageError: It is no archive of one image of that name.
    """
    try:
        with tarfile.open(source, "r:") as old, tarfile.open(target, "w") as new:
            with _file(old, _MANIFEST) as file:
                (image,) = json.loads(file.read(_LARGEST_MANIFEST))
            if image["RepoTags"] != [said]:
                raise UsageError(
                    f"the image {said} calls itself {image['RepoTags']!r}, and would replace "
                    "another; it is not loaded"
                )
            layers = {f"{n}.tar": path for n, path in enumerate(image["Layers"] or ())}
            manifest = {"Config": _CONFIG, "RepoTags": [name], "Layers": [*layers]}
            _add(new, _MANIFEST, io.BytesIO(json.dumps([manifest]).encode()))
            for stored, path in {_CONFIG: image["Config"], **layers}.items():
                with _file(old, path) as file:
                    _add(new, stored, file)
    except UsageError:
        raise
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{said} is no whole image of Docker: {error}") from error


def _file(tar: tarfile.TarFile, path: str) -> IO[bytes]:
    """A file of an archive; an engine stores a layer that it has twice as a link."""
    member = tar.getmember(path)
    if member.issym():
        member = tar.getmember(
            posixpath.normpath(posixpath.join(posixpath.dirname(path), member.linkname))
        )
    file = tar.extractfile(member) if member.isreg() else None
    if file is None:
        raise KeyError(f"{path} is no file")
    return file


def _add(tar: tarfile.TarFile, name: str, file: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = file.seek(0, io.SEEK_END)
    file.seek(0)
    tar.addfile(entry, file)


async def load_archive(engine: DockerEngine, archive: Path, name: str) -> bool:
    """Load an image that was rewritten; False if the engine had just this one already.

    Raises:
        SandboxUnavailable: The engine does not take it.
    """
    before = await has_image(engine, name)
    lines = await engine.send("POST", "/images/load", query={"quiet": "1"}, file=archive)
    for line in lines:
        if "error" in line:
            raise SandboxUnavailable(f"Docker's engine does not load {name}: {line['error']}")
    after = await has_image(engine, name)
    if after is None:
        raise SandboxUnavailable(f"Docker's engine took {name} and does not have it")
    return before is None or before["Id"] != after["Id"]

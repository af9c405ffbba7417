"""Images of Modal: of a task's Dockerfile, and one with Python for tasks that bring none.

Modal builds them, reaches the network to do so, and keeps each under a hash of its content.
"""

import asyncio
import sys
import tarfile
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote

import modal

from assay.bench.sandboxes.base import PROGRAM, ImageRecipe
from assay.bench.sandboxes.modal_files import dressed
from assay.bench.sandboxes.modal_names import APP, plain_name
from assay.bench.sandboxes.modal_remote import answering
from assay.bench.sandboxes.roots import links_of

__all__ = ["app", "plain_image", "task_image", "with_program"]


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
    """The same file for the same content, so that it is sent and unpacked once."""
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

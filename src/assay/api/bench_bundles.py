"""Tasks, images and agents for machines without a network."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay._util.loops import run_apart
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.bench.bundling import BundlePart

__all__ = ["bench_bundle", "bench_unbundle"]


def bench_bundle(
    *tasks: Path | str,
    output: Path | str,
    base_images: Sequence[str] = (),
    build_network: bool = False,
    agents: Sequence[str] | None = None,
    sandbox: str | None = None,
) -> "tuple[BundlePart, ...]":
    """Pack tasks, their built images and installed agents into one file, with their hashes.

    Args:
        *tasks: Folders of tasks.
        output: The file to write.
        base_images: What stands for an image of FROM, each as NAME=LOCAL.
        build_network: Whether building an image reaches the network.
        agents: Which installed agents; all of them unless given.
        sandbox: Whose images: bubblewrap or docker; by default what `$SANDBOX_BACKEND` says,
            else bubblewrap.

    Raises:
        UsageError: A task cannot be read, or its image cannot be built.
        SandboxUnavailable: A build failed, or no engine answers.
        OutputError: The file cannot be written.
    """
    from assay.bench.bundling import make_bundle
    from assay.bench.harbor import BaseImages

    if not tasks:
        raise UsageError("no task was named; name folders of tasks")
    bases = BaseImages.of(base_images, network=build_network)
    folders = [Path(task) for task in tasks]

    async def make() -> "tuple[BundlePart, ...]":
        return await make_bundle(folders, Path(output), bases, agents, sandbox)

    return run_apart(make)


def bench_unbundle(
    file: Path | str, *, into: Path | str = "data/tasks/bundled"
) -> "tuple[BundlePart, ...]":
    """Check a bundle and put all of it into its place; what is there already stays.

    Args:
        file: The bundle.
        into: Gets the folders of its tasks; images and agents go to the cache folder, and
            images of Docker to its engine.

    Raises:
        UsageError: It is no bundle, or something in it is not what it was when it was packed.
        SandboxUnavailable: It has images of Docker, and no engine takes them.
        OutputError: A file cannot be written.
    """
    from assay.bench.bundling import open_bundle

    async def unpack() -> "tuple[BundlePart, ...]":
        return await open_bundle(Path(file), Path(into))

    return run_apart(unpack)

"""`assay bench bundle` and `unbundle`: for machines without a network."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from assay.cli.bench.options import Flag, Pairs, base_images_of
from assay.cli.output import Show, say, say_json, working

if TYPE_CHECKING:
    from assay.bench.bundling import BundlePart

__all__ = ["bundle", "unbundle"]


def bundle(
    *tasks: Path,
    output: Path,
    base_image: Pairs = None,
    build_network: Flag = False,
    agent: Annotated[
        list[str] | None, Parameter(negative="", show_default="all that are installed")
    ] = None,
    sandbox: Annotated[str | None, Parameter(show_default="bubblewrap")] = None,
    show: Show = Show(),
) -> int:
    """Pack tasks, their built images and installed agents into one file, with their hashes.

    'assay bench unbundle' unpacks it on a machine without a network.

    For example:

        assay bench bundle tasks/one tasks/two --output bundle.tar
        assay bench bundle tasks/one --sandbox docker --output bundle.tar

    Args:
        tasks: Folders of tasks.
        output: The file to write.
        base_image: What stands for an image of FROM: NAME=LOCAL. May be repeated.
        build_network: Let the building of an image reach the network.
        agent: An installed agent to pack. May be repeated.
        sandbox: Which sandbox the images are for: bubblewrap or docker.
        show: What to print.
    """
    from assay import api

    with working(show, "packing"):
        parts = api.bench_bundle(
            *tasks,
            output=output,
            base_images=base_images_of(base_image),
            build_network=build_network,
            agents=agent,
            sandbox=sandbox,
        )
    _tell(parts, show)
    return 0


def unbundle(
    file: Path,
    /,
    *,
    into: Path = Path("data/tasks/bundled"),
    show: Show = Show(),
) -> int:
    """Check a bundle, and put its tasks, images and agents into their places.

    What is there already stays as it is. Nothing is unpacked if one hash is another.

    For example:

        assay bench unbundle bundle.tar

    Args:
        file: The bundle.
        into: Gets the folders of its tasks; images and agents go to the cache folder, and
            images of Docker to its engine.
        show: What to print.
    """
    from assay import api

    with working(show, "unpacking"):
        parts = api.bench_unbundle(file, into=into)
    _tell(parts, show)
    return 0


def _tell(parts: "tuple[BundlePart, ...]", show: Show) -> None:
    if show.json:
        rows = [
            {
                "kind": part.kind,
                "name": part.name,
                "sha256": part.sha256,
                "size": part.size,
                "place": part.place and str(part.place),
                "added": part.added,
            }
            for part in parts
        ]
        say_json({"parts": rows})
        return
    for part in () if show.quiet else parts:
        where = "" if part.place is None else f", {part.place}"
        size = f"{part.size / 1e6:.1f} MB"
        there = "" if part.added else ", was there already"
        say(f"{part.kind}/{part.name}: {size}, sha256 {part.sha256}{where}{there}")

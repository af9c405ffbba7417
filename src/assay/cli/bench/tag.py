"""`assay bench tag`: names for rollouts."""

from assay.cli.bench.options import DEFAULT_DATA_DIR, DataDir, Flag
from assay.cli.output import Show, say, say_json

__all__ = ["tag"]


def tag(
    rollout: str,
    tag: str,
    /,
    *,
    remove: Flag = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    show: Show = Show(),
) -> int:
    """Give a rollout a tag, which other commands take in its place.

    For example:

        assay bench tag my_benchmark@20250824 v1
        assay bench compare v1 my_benchmark

    Args:
        rollout: A benchmark (its latest rollout), name@stamp, another tag of it, or a path.
        tag: A letter and then letters, digits, '.', '_' or '-'. One rollout has it.
        remove: Take the tag away.
        data_dir: Where benchmarks are.
        show: What to print.
    """
    from assay import api

    found = api.bench_tag(rollout, tag, data_dir=data_dir, remove=remove)
    if show.json:
        say_json({"rollout": found.label, "tags": list(found.manifest.tags)})
    elif not show.quiet:
        tags = ", ".join(found.manifest.tags)
        say(f"{found.label} has {f'the tags {tags}' if tags else 'no tags'}")
    return 0

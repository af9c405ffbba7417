"""Names that somebody gives to rollouts; a tag stands for one rollout of a data folder."""

import re
from dataclasses import replace
from pathlib import Path

from assay.bench.manifest import read_manifest, stamps_of, write_tags
from assay.bench.selecting import Rollout, all_rollouts
from assay.errors import UsageError

__all__ = ["tag_rollout"]

_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")


def tag_rollout(rollout: Rollout, tag: str, data_dir: Path, *, remove: bool = False) -> Rollout:
    """Give a rollout a tag, or take it away.

    Raises:
        UsageError: The tag is no good name, another rollout has it, or this one lacks it.
    """
    if _TAG.fullmatch(tag) is None:
        raise UsageError(
            f"{tag!r} cannot be a tag; give a letter and then letters, digits, '.', '_' or"
            " '-', 64 at most, such as v1.2"
        )
    own = read_manifest(rollout.path).tags
    if remove:
        if tag not in own:
            has = f"it has {', '.join(own)}" if own else "it has none"
            raise UsageError(f"{rollout.label} has no tag {tag!r}; {has}")
        own = tuple(name for name in own if name != tag)
    elif tag not in own:
        if stamps_of(data_dir, tag):
            raise UsageError(
                f"{tag!r} is the name of a benchmark in {str(data_dir)!r}; choose another tag"
            )
        for path, manifest in all_rollouts(data_dir).items():
            if tag in manifest.tags:
                where = f"{path.parent.name}@{path.name}"
                raise UsageError(
                    f"{where} has the tag {tag!r}; choose another, or take it away first:"
                    f" 'assay bench tag {where} {tag} --remove'"
                )
        own = (*own, tag)
    write_tags(rollout.path, own)
    return Rollout(rollout.path, replace(rollout.manifest, tags=own))

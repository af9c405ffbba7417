"""Rollouts of benchmarks: selection by name, stamp, tag or path; tags; loading in scripts.

    my_benchmark                      its latest rollout
    my_benchmark@20250824__12-34-56   that rollout; the beginning of a stamp is enough
    20250824__12                      the rollout of any benchmark whose stamp begins so
    v1                                the rollout with this tag
    data/rollouts/my_benchmark/2025…  its folder, the beginning of one, or its manifest.json

A tag is a name that a user gives to one rollout of a data folder. Only tagging writes a file.
For scripts:

    from assay.bench import benchmark_tasks, get_task_score, load_benchmark

    old = load_benchmark("data/rollouts/my_benchmark/20250824")
    for task in benchmark_tasks:
        print(task, get_task_score(old, task))
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from assay.bench.manifest import (
    Manifest,
    RolloutFolder,
    is_stamp,
    list_stamps,
    read_manifest,
    write_tags,
)
from assay.bench.summary import get_counted_score
from assay.core.text import counted, resolve_name, unknown_name_error
from assay.errors import UsageError

DATA_DIR = Path("data")
"""Default folder of benchmarks."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout of a benchmark: its folder and its manifest."""

    path: Path
    manifest: Manifest

    @property
    def label(self) -> str:
        """Its name with its stamp; untrusted text."""
        return f"{self.manifest.name}@{self.manifest.created_at}"


def find_rollout(
    text: str, data_dir: Path = DATA_DIR, *, latest: bool = False, stamp: str | None = None
) -> Rollout:
    """Find the rollout for a name, a tag or a path.

    Args:
        text: A benchmark, `name@stamp`, the beginning of a stamp, a tag, or a path.
        data_dir: The folder of benchmarks.
        latest: Select the latest rollout of the benchmark, as a name alone does.
        stamp: Stamp of the rollout of the benchmark, or the beginning of it.

    Raises:
        UsageError: The rollout is missing or damaged, or `text` already selects one.
        AmbiguousName: Several rollouts match.
    """
    if latest and stamp is not None:
        raise UsageError("--latest and --rollout cannot be combined; give one of them")
    names = _list_benchmarks(data_dir)
    if text in names:
        return _read_named_rollout(text, stamp, data_dir)
    name, separator, stamp_start = text.rpartition("@")
    rollout = _find_by_path(Path(text)) or (
        _read_named_rollout(name, stamp_start, data_dir)
        if separator and name in names
        else None
    )
    if rollout is None:
        rollout = _find_by_tag(text, data_dir) or _find_by_stamp(text, data_dir, names)
    if rollout is None:
        raise _make_unknown_error(text, data_dir, names)
    if latest or stamp is not None:
        option = "--latest" if latest else "--rollout"
        raise UsageError(
            f"{text!r} already selects a rollout, {rollout.label}; omit {option},"
            " or give the name of a benchmark"
        )
    return rollout


def read_rollout(path: Path) -> Rollout:
    """Read the rollout in a folder, with the current results of its trials.

    Raises:
        UsageError: It is missing or damaged.
    """
    return Rollout(path, RolloutFolder.from_path(path).refresh(read_manifest(path)))


def read_manifests(data_dir: Path) -> dict[Path, Manifest]:
    """Read the manifests below a data folder, by folder, without current trial results.

    Damaged manifests are skipped here; selecting one raises an error.
    """
    manifests = {}
    for name in _list_benchmarks(data_dir):
        for stamp in list_stamps(data_dir, name):
            path = data_dir / "rollouts" / name / stamp
            with suppress(UsageError):
                manifests[path] = read_manifest(path)
    return manifests


def _list_benchmarks(data_dir: Path) -> list[str]:
    """Return the benchmarks that have a rollout."""
    folder = data_dir / "rollouts"
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if list_stamps(data_dir, path.name))


def _read_named_rollout(name: str, start: str | None, data_dir: Path) -> Rollout:
    stamps = list_stamps(data_dir, name)
    stamp = stamps[-1] if start is None else _match_stamp(start, stamps, f"rollout of {name!r}")
    return read_rollout(data_dir / "rollouts" / name / stamp)


def _match_stamp(start: str, stamps: Sequence[str], kind: str) -> str:
    match = resolve_name(kind, start, [(stamp, stamp) for stamp in stamps])
    if match is None:
        # The latest first, because they are more likely to be meant.
        raise unknown_name_error(kind, start, stamps[::-1])
    return match.id


def _find_by_path(path: Path) -> Rollout | None:
    """Return the rollout at a path; None if the path does not belong to one."""
    if path.name == "manifest.json" and path.is_file():
        return read_rollout(path.parent)
    if (path / "manifest.json").is_file():
        return read_rollout(path)
    if path.parent.name and path.parent.is_dir() and not path.exists():
        stamps = sorted(
            folder.name
            for folder in path.parent.iterdir()
            if (folder / "manifest.json").is_file()
        )
        if any(map(is_stamp, stamps)):
            kind = f"rollout in {str(path.parent)!r}"
            return read_rollout(path.parent / _match_stamp(path.name, stamps, kind))
    return None


def _find_by_tag(tag: str, data_dir: Path) -> Rollout | None:
    paths = [path for path, known in read_manifests(data_dir).items() if tag in known.tags]
    if len(paths) > 1:
        where = ", ".join(f"{path.parent.name}@{path.name}" for path in paths)
        raise UsageError(
            f"{counted(len(paths), 'rollout')} have the tag {tag!r}: {where}; remove it from"
            " all but one with 'assay bench tag --remove'"
        )
    return read_rollout(paths[0]) if paths else None


def _find_by_stamp(start: str, data_dir: Path, names: Sequence[str]) -> Rollout | None:
    if not start[:1].isdecimal():
        return None
    candidates = [
        (str(data_dir / "rollouts" / name / stamp), stamp)
        for name in names
        for stamp in list_stamps(data_dir, name)
    ]
    match = resolve_name("rollout", start, candidates)
    return None if match is None else read_rollout(Path(match.id))


def _make_unknown_error(text: str, data_dir: Path, names: Sequence[str]) -> UsageError:
    tags = [tag for manifest in read_manifests(data_dir).values() for tag in manifest.tags]
    name, separator, _ = text.rpartition("@")
    return unknown_name_error(
        "benchmark",
        name if separator else text,
        [*names, *tags],
        empty=f"no benchmark has run in {str(data_dir)!r}; --data-dir selects another folder",
    )


_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")


def tag_rollout(rollout: Rollout, tag: str, data_dir: Path, *, remove: bool = False) -> Rollout:
    """Add a tag to a rollout, or remove it.

    Raises:
        UsageError: The tag is invalid or in use, or the tag to remove does not exist.
    """
    if _TAG.fullmatch(tag) is None:
        raise UsageError(
            f"{tag!r} is not a valid tag; use a letter, then letters, digits, '.', '_' or"
            " '-', at most 64 characters, such as v1.2"
        )
    tags = read_manifest(rollout.path).tags
    if remove:
        if tag not in tags:
            available = f"it has {', '.join(tags)}" if tags else "it has none"
            raise UsageError(f"{rollout.label} has no tag {tag!r}; {available}")
        tags = tuple(name for name in tags if name != tag)
    elif tag not in tags:
        if list_stamps(data_dir, tag):
            raise UsageError(
                f"{tag!r} is the name of a benchmark in {str(data_dir)!r}; choose another tag"
            )
        for path, manifest in read_manifests(data_dir).items():
            if tag in manifest.tags:
                where = f"{path.parent.name}@{path.name}"
                raise UsageError(
                    f"{where} has the tag {tag!r}; choose another, or remove it first:"
                    f" 'assay bench tag {where} {tag} --remove'"
                )
        tags = (*tags, tag)
    write_tags(rollout.path, tags)
    return Rollout(rollout.path, replace(rollout.manifest, tags=tags))


class _LoadedTasks:
    """Tasks of all benchmarks loaded so far, in order of first appearance."""

    def __init__(self) -> None:
        self._list_benchmarks: dict[str, None] = {}

    def add(self, manifest: Manifest) -> None:
        """Add the tasks of a benchmark."""
        self._list_benchmarks |= dict.fromkeys(result.task_id for result in manifest.results)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._list_benchmarks])

    def __len__(self) -> int:
        return len(self._list_benchmarks)

    def __repr__(self) -> str:
        return f"benchmark_tasks({', '.join(self._list_benchmarks)})"


benchmark_tasks = _LoadedTasks()
"""All tasks of the benchmarks loaded so far, for `for task in benchmark_tasks`."""


def load_benchmark(rollout: str | Path, data_dir: str | Path = DATA_DIR) -> Manifest:
    """Load a rollout of a benchmark.

    Args:
        rollout: Its folder, or the beginning of the folder's name; or a name, `name@stamp` or
            a tag, as for `assay bench summarize`.
        data_dir: The folder of benchmarks, for names and tags.

    Raises:
        UsageError: The rollout is missing or damaged.
    """
    manifest = find_rollout(str(rollout), Path(data_dir)).manifest
    benchmark_tasks.add(manifest)
    return manifest


def get_task_score(results: Manifest, task_name: str, arm: str | None = None) -> float | None:
    """Return the mean score of a task over its trials that count; None if there are none.

    Trials whose agent failed count as 0; infrastructure errors do not count. Different arms are
    never averaged.

    Args:
        results: A manifest from `load_benchmark`.
        task_name: The id of the task, or the name of its folder.
        arm: The arm; required if several arms ran the task.

    Raises:
        UsageError: Several arms ran the task and `arm` is None, or `arm` did not run it.
    """
    trials = [
        result
        for result in results.results
        if task_name in (result.task_id, Path(result.task_dir).name)
    ]
    arms = list(dict.fromkeys(result.arm for result in trials))
    if arm is not None and arm not in arms and trials:
        raise UsageError(f"no arm {arm!r} ran {task_name!r}; choose from: {', '.join(arms)}")
    if arm is None and len(arms) > 1:
        raise UsageError(
            f"{len(arms)} arms ran {task_name!r}, and their scores are not averaged; select one"
            f" with arm=: {', '.join(arms)}"
        )
    scores = [
        score
        for result in trials
        if arm in (None, result.arm) and (score := get_counted_score(result)) is not None
    ]
    return sum(scores) / len(scores) if scores else None

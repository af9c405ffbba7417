"""The manifest of a launch, written before its first run, with everything needed to repeat it.

benchmark_git_hash.txt   the commit of the training code
dirty.diff               uncommitted changes
seeds.txt, run_ids.txt   one per line
config.json              the full configuration, defaults included
difference.txt           differences from the control, or from the defaults
versions.json            versions of Python and packages; the machine
trainer_changes.diff     changes of the trainer since the last benchmark
manifest.json            machine-readable form, with every set that was added later
"""

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from assay.core.files import atomic_write
from assay.core.git import WorkingCopy, find_working_copy, run_working_copy_git
from assay.errors import UsageError

_FORMAT: Final = "assay-launch/1"
_MAX_BYTES = 16 << 20
_PACKAGES: Final = ("assay", "numpy", "numba", "torch", "safetensors", "mettagrid", "ray")
_SOURCE_ROOT: Final = Path(__file__).resolve().parents[4]
_UNKNOWN: Final = "unknown"
_DIFF_COMMAND: Final = ("diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all")


@dataclass(frozen=True, slots=True)
class LaunchSet:
    """Seeds that were launched together."""

    launch: str
    """Id of the launch in the table `runs`."""
    at: float
    seeds: tuple[int, ...]
    run_ids: tuple[str, ...]
    commit: str


@dataclass(frozen=True, slots=True)
class LaunchManifest:
    """Manifest of one benchmark, with all its sets."""

    base_run_name: str
    architecture: str
    configuration: Mapping[str, Any]
    commit: str
    sets: tuple[LaunchSet, ...]
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def seeds(self) -> tuple[int, ...]:
        """All seeds, in the order they were launched."""
        return tuple(seed for part in self.sets for seed in part.seeds)

    @property
    def run_ids(self) -> tuple[str, ...]:
        """All run ids, in the order of `seeds`."""
        return tuple(run_id for part in self.sets for run_id in part.run_ids)


@dataclass(frozen=True, slots=True)
class TrainerSource:
    """Location and version of the training code."""

    root: Path
    paths: tuple[str, ...]
    """Paths of the trainer, relative to the root."""
    commit: str
    dirty: str
    """Uncommitted changes, as a diff."""
    copy: WorkingCopy | None


@dataclass(frozen=True, slots=True)
class TrainerChanges:
    """Changes of the trainer since a commit."""

    since: str
    origin: str
    """Origin of that commit, in words."""
    stat: str
    """Summary of the changes; empty if there are none."""
    diff: str


def locate_trainer(builtin: bool) -> TrainerSource:
    """Locate the training code: assay's, or the repository of the working directory."""
    if builtin:
        root, paths = _SOURCE_ROOT, ["src/assay/training", "src/assay/crafter"]
    else:
        root, paths = Path.cwd(), ["."]
    copy = find_working_copy(root)
    if copy is None or (builtin and copy.root != root):
        return TrainerSource(root, tuple(paths), _UNKNOWN, "", None)
    dirty = run_working_copy_git(copy, *_DIFF_COMMAND, "HEAD") or ""
    return TrainerSource(copy.root, tuple(paths), copy.commit or _UNKNOWN, dirty, copy)


def find_trainer_changes(
    trainer: TrainerSource, since: str | None, latest: LaunchManifest | None
) -> TrainerChanges | None:
    """Return changes of the trainer since a commit or the last benchmark; None if unknown.

    Raises:
        UsageError: The given commit does not exist.
    """
    if since is not None:
        name = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{since}^{{commit}}")
        commit = trainer.copy and run_working_copy_git(trainer.copy, *name)
        if not commit:
            raise UsageError(
                f"--since {since!r} is not a commit of {str(trainer.root)!r}; 'git log' there "
                "lists the commits"
            )
        origin = f"--since {since}"
    elif latest is not None and latest.commit != _UNKNOWN:
        commit, origin = latest.commit, f"{latest.base_run_name!r}, the last benchmark"
    else:
        return None
    if trainer.copy is None:
        return None
    paths_argument = ("--end-of-options", commit, "--", *trainer.paths)
    diff = run_working_copy_git(trainer.copy, *_DIFF_COMMAND, *paths_argument)
    if diff is None:
        return None
    stat = (
        run_working_copy_git(trainer.copy, *_DIFF_COMMAND, "--shortstat", *paths_argument) or ""
    )
    return TrainerChanges(commit, origin, stat, diff)


def list_differences(configuration: Mapping[str, Any], control: Mapping[str, Any]) -> list[str]:
    """Return the differences between a configuration and a control's, as lines."""
    ignored = {"base_run_name", "seeds", "parallel", "folder", "database", "extended_from"}
    ignored |= {"retries", "executor", "ray_address", "checkpoint_every", "wandb"}
    settings, control_settings = (
        dict(_flatten_settings(values)) for values in (configuration, control)
    )
    return [
        f"{name}: {control_settings.get(name)!r} -> {settings.get(name)!r}"
        for name in dict.fromkeys((*control_settings, *settings))
        if name not in ignored and settings.get(name) != control_settings.get(name)
    ]


def _flatten_settings(configuration: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in configuration.items():
        if isinstance(value, Mapping):
            yield from value.items()
        else:
            yield name, value


def read_launch_manifest(folder: Path, name: str) -> LaunchManifest:
    """Read the manifest of a benchmark by its base name.

    Raises:
        UsageError: It is missing or damaged.
    """
    path = folder / name / "manifest" / "manifest.json"
    try:
        if (size := path.stat().st_size) > _MAX_BYTES:
            raise ValueError(f"it has {size:,} bytes; the limit is {_MAX_BYTES:,}")
        content = json.loads(path.read_bytes())
        if content.pop("format") != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT!r}")
        sets = [
            LaunchSet(
                **part | {"seeds": tuple(part["seeds"]), "run_ids": tuple(part["run_ids"])}
            )
            for part in content.pop("sets")
        ]
        return LaunchManifest(**content, sets=tuple(sets))
    except FileNotFoundError:
        names = sorted(p.parents[1].name for p in folder.glob("*/manifest/manifest.json"))
        raise UsageError(
            f"no benchmark {name!r} in {str(folder)!r}; there "
            + (
                f"are: {', '.join(names)}"
                if names
                else "is none yet; 'assay launch' creates one"
            )
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{str(path)!r} is not a valid launch manifest: {error}") from error


def find_latest_manifest(folder: Path, excluded: str) -> LaunchManifest | None:
    """Return the manifest of the newest other benchmark in a folder, if any."""
    manifests = []
    for path in folder.glob("*/manifest/manifest.json"):
        name = path.parents[1].name
        if name != excluded:
            try:
                manifests.append(read_launch_manifest(folder, name))
            except UsageError:
                continue
    return max(manifests, key=lambda manifest: manifest.sets[-1].at, default=None)


def write_launch_manifest(
    place: Path,
    manifest: LaunchManifest,
    trainer: TrainerSource,
    changes: TrainerChanges | None,
    difference: Sequence[str],
) -> LaunchManifest:
    """Write the manifest folder of a benchmark, or rewrite it with a set that is added."""
    folder = place / "manifest"
    manifest = LaunchManifest(
        manifest.base_run_name,
        manifest.architecture,
        manifest.configuration,
        manifest.commit,
        manifest.sets,
        _describe_machine(),
        _collect_versions(),
    )
    files = {
        "benchmark_git_hash.txt": f"{trainer.commit}\n",
        "dirty.diff": f"{trainer.dirty}\n" if trainer.dirty else "",
        "seeds.txt": "".join(f"{seed}\n" for seed in manifest.seeds),
        "run_ids.txt": "".join(f"{run_id}\n" for run_id in manifest.run_ids),
        "config.json": _format_json(manifest.configuration),
        "difference.txt": "".join(f"{line}\n" for line in difference),
        "versions.json": _format_json({**manifest.versions, "machine": manifest.machine}),
        "trainer_changes.diff": changes.diff + "\n" if changes and changes.diff else "",
        "manifest.json": _format_json({"format": _FORMAT, **asdict(manifest)}),
    }
    for name, text in files.items():
        atomic_write(folder / name, text.encode())
    return manifest


def _format_json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def _collect_versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _describe_machine() -> dict[str, Any]:
    return {
        "name": platform.node(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": sys.executable,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }

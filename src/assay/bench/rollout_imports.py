"""Import of rollouts from other machines, and of Harbor jobs, into a data folder.

Existing data is not changed: a rollout that is already here is not copied again, and a rollout
whose stamp is in use gets the next one that is free. A damaged or incomplete rollout is refused
as a whole. Symbolic links are refused, because they would point to files of this machine.

A Harbor job becomes a rollout with the job's trials. Each trial is a folder with a
`result.json`; if one has no result, the job is incomplete. Rewards become scores from 0 to 1.
"""

import hashlib
import re
import shutil
import stat
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from assay.bench.harbor.rewards import classify_score, select_reward
from assay.bench.manifest import (
    LAUNCH_FAILED,
    LAUNCHED,
    ArmEntry,
    Manifest,
    RolloutFolder,
    TrialResult,
    claim_rollout,
    is_stamp,
)
from assay.bench.rollouts import Rollout, read_manifests, read_rollout
from assay.bench.tasks.tree import format_path, is_too_long, walk
from assay.core.canonical_json import canonical_json
from assay.core.files import remove_folder
from assay.core.text import counted
from assay.errors import OutputError, UsageError
from assay.store.formats.harbor import harbor_session, is_trial
from assay.store.records import Trace
from assay.types import TrialState

_STAMP: Final = "%Y%m%d__%H-%M-%S"
_NOT_REWARDS: Final = ("turns", "tokens", "cost_usd", "duration_s")
"""Outcomes of an imported session that are not rewards."""
_TOKENS: Final = ("prompt", "completion", "cached")
_TASK_PREFIX: Final = "harbor/"


def find_harbor_jobs(source: Path) -> list[Path]:
    """Return the folders of Harbor jobs at a path or in it; empty if there are none."""
    if not source.is_dir():
        return []
    if _list_trial_folders(source):
        return [source]
    return [
        folder
        for folder in sorted(source.iterdir())
        if folder.is_dir() and _list_trial_folders(folder)
    ]


def _list_trial_folders(job: Path) -> list[Path]:
    return [
        folder
        for folder in sorted(job.iterdir())
        if folder.is_dir() and is_trial(folder, {path.name for path in folder.iterdir()})
    ]


def convert_harbor_job(job: Path) -> tuple[Manifest, dict[str, Path | None]]:
    """Convert a job to the manifest of a rollout; also return the folder of each trial.

    Raises:
        UsageError: A trial is damaged or has not ended, or there is a link in its folder.
    """
    trials: list[tuple[Path, Trace]] = []
    for folder in _list_trial_folders(job):
        try:
            trace = harbor_session(folder)
        except UsageError as error:
            raise UsageError(f"trial {folder.name} {error}") from error
        if trace is None or trace.session.end is None:
            raise UsageError(
                f"it is incomplete: trial {folder.name} has no result.json; finish the job "
                "with Harbor first"
            )
        for path, status in walk(folder):
            if status is None or is_too_long(path):
                raise UsageError(f"trial {folder.name} has a path that is too long")
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                raise UsageError(
                    f"trial {folder.name} has a symbolic link or a special file, which is not "
                    f"imported: {format_path(path)}"
                )
        trials.append((folder, trace))
    started_at = min(trace.session.header.created_at for _, trace in trials)
    stamp = time.strftime(_STAMP, time.gmtime(started_at))
    counts: Counter[tuple[str, str]] = Counter()
    results, arms = [], dict[str, ArmEntry]()
    runs: dict[str, Path | None] = {}
    for number, (folder, trace) in enumerate(trials):
        agent = trace.run.configuration["agent"]
        arm = trace.experiment.model
        task = trace.session.header.task.removeprefix(_TASK_PREFIX)
        run_id = f"{stamp}-{number}"
        results.append(_make_result(trace, run_id, folder, arm, task, counts[arm, task]))
        counts[arm, task] += 1
        runs[run_id] = folder
        arms[arm] = ArmEntry(label=arm, agent=agent["name"], model=agent["model"] or None)
    name = re.sub(r"[^\w.+-]", "-", job.resolve().name, flags=re.ASCII).lstrip(".+-") or "job"
    manifest = Manifest(
        config="",
        name=name[:200],
        created_at=stamp,
        results=tuple(results),
        arms=tuple(arms.values()),
        provenance={"program": "Harbor", "trials": counted(len(results), "trial")},
        finished=True,
    )
    return manifest, runs


def _make_result(
    trace: Trace, run_id: str, folder: Path, arm: str, task: str, rollout: int
) -> TrialResult:
    session, end = trace.session, trace.session.end
    assert end is not None, "a trial that has not ended is refused before"
    agent = trace.run.configuration["agent"]
    rewards = {name: value for name, value in end.outcomes.items() if name not in _NOT_REWARDS}
    task_rewards = {name: value for name, value in rewards.items() if "/" not in name}
    score = min(1.0, max(0.0, select_reward(task_rewards))) if task_rewards else None
    is_result = end.state is TrialState.RESULT
    totals = session.imported_totals
    tokens = {kind: totals.get(f"{kind}_tokens") or 0 for kind in _TOKENS}
    return TrialResult(
        run_id=run_id,
        run_dir=str(folder),
        task_dir=task,
        task_id=task.rpartition("/")[2],
        arm=arm,
        agent=agent["name"],
        model=agent["model"] or None,
        rollout=rollout,
        session_id=session.header.session_id,
        task_checksum=str(session.header.metadata.get("task_checksum", "")),
        status=LAUNCHED,
        launch_rc=0,
        state=end.state,
        outcome=classify_score(score).value if is_result else end.stop_reason,
        score=(0.0 if score is None else score) if is_result else None,
        custom_metrics=rewards,
        error=None if end.error is None else end.error.message,
        seconds={"agent": round(end.duration_s, 3)},
        tokens=tokens,
        cost_usd=end.outcomes.get("cost_usd"),
        ended_at=end.at,
    )


_NAME = re.compile(r"[\w][\w .+-]{0,199}")
_MAX_MANIFEST_BYTES = 256 << 20
_MAX_FOLDER_BYTES = 8 << 30
_RUN_ID = re.compile(r"[\w][\w.-]{0,199}")


class ImportedRollout(NamedTuple):
    """A rollout that is now in the data folder."""

    source: Path
    rollout: Rollout
    added: bool
    """False if it was there before."""


class RefusedRollout(NamedTuple):
    """A rollout that was not imported, with the reason."""

    source: Path
    reason: str


class RolloutImports(NamedTuple):
    """Result of an import."""

    imported: tuple[ImportedRollout, ...]
    refused: tuple[RefusedRollout, ...]
    sessions: int = 0
    """Number of sessions stored from Harbor jobs."""


def import_rollouts(sources: Sequence[Path], data_dir: Path) -> RolloutImports:
    """Copy rollouts to a data folder.

    Args:
        sources: Rollout folders or their parents, such as the data folder of another machine,
            with the folders of runs in `runs/` next to `rollouts/`. Or folders of Harbor
            jobs or their parents.
        data_dir: The target folder.

    Raises:
        UsageError: A source contains no rollout.
        OutputError: A file cannot be written.
    """
    imported: list[ImportedRollout] = []
    refused: list[RefusedRollout] = []
    for source in sources:
        jobs = find_harbor_jobs(source)
        for path in jobs or _find_rollout_folders(source):
            try:
                if jobs:
                    rollout = convert_harbor_job(path)
                    imported.append(_copy_rollout(path, *rollout, data_dir))
                    continue
                imported.append(_import_rollout(path, data_dir))
            except UsageError as error:
                refused.append(RefusedRollout(path, str(error)))
    return RolloutImports(tuple(imported), tuple(refused))


def _find_rollout_folders(source: Path) -> list[Path]:
    if not source.is_dir():
        raise UsageError(f"folder {str(source)!r} not found; name rollout folders")
    patterns = ("manifest.json", "*/manifest.json", "*/*/manifest.json")
    for pattern in (*patterns, "rollouts/*/*/manifest.json"):
        if files := sorted(source.glob(pattern)):
            return [file.parent for file in files]
    raise UsageError(
        f"no rollout in {str(source)!r}; name a folder with a manifest.json, or the"
        " data folder of another machine"
    )


def _import_rollout(path: Path, data_dir: Path) -> ImportedRollout:
    _check_files(path.resolve(), "")
    source = read_rollout(path.resolve())
    _check_rollout(source)
    runs = {r.run_id: _find_run_folder(source, r) for r in source.manifest.results}
    return _copy_rollout(path, source.manifest, runs, data_dir)


def _copy_rollout(
    path: Path, manifest: Manifest, runs: Mapping[str, Path | None], data_dir: Path
) -> ImportedRollout:
    """Copy a rollout with the folders of its runs, unless it is already here."""
    fingerprint = _compute_fingerprint(manifest)
    for existing, other in read_manifests(data_dir).items():
        if other.name == manifest.name and fingerprint in (
            other.provenance.get("imported_as"),
            _compute_fingerprint(RolloutFolder.from_path(existing).refresh(other)),
        ):
            return ImportedRollout(path, read_rollout(existing), added=False)
    folder = claim_rollout(data_dir, manifest.name, manifest.created_at)
    results = [_relocate(result, manifest.created_at, folder) for result in manifest.results]
    try:
        for before, after in zip(manifest.results, results, strict=True):
            run = runs[before.run_id]
            if run is not None:
                shutil.copytree(run, folder.get_run_dir(after.run_id))
            folder.write_result(after)
    except OSError as error:
        for path in (folder.path, *(folder.get_run_dir(after.run_id) for after in results)):
            remove_folder(path)
        raise OutputError(f"{folder.path} cannot be written: {error}") from error
    used_tags = {tag for other in read_manifests(data_dir).values() for tag in other.tags}
    imported = replace(
        manifest,
        created_at=folder.stamp,
        results=tuple(results),
        tags=tuple(tag for tag in manifest.tags if tag not in used_tags),
        provenance={
            **manifest.provenance,
            "imported_as": fingerprint,
            "imported_stamp": manifest.created_at,
        },
    )
    folder.write(
        imported
    )  # last, because a folder without a manifest does not count as a rollout
    return ImportedRollout(path, Rollout(folder.path, imported), added=True)


def _check_rollout(source: Rollout) -> None:
    """Raise UsageError if a rollout is incomplete, or a name in it is not safe as a path."""
    manifest = source.manifest
    if _NAME.fullmatch(manifest.name) is None or manifest.name == "temp":
        raise UsageError(f"{manifest.name!r} is not a valid benchmark name")
    if not is_stamp(manifest.created_at):
        raise UsageError(
            f"its created_at {manifest.created_at!r} is not a stamp such as 20250824__12-34-56"
        )
    if not manifest.results:
        raise UsageError("it has no trials")
    ids = [result.run_id for result in manifest.results]
    for id in ids:
        if _RUN_ID.fullmatch(id) is None:
            raise UsageError(f"{id!r} is not a valid run id")
    if len({*ids}) < len(ids):
        raise UsageError("two of its trials have the same run_id")
    if pending := sum(result.state is None for result in manifest.results):
        raise UsageError(
            f"{pending} of its {counted(len(ids), 'trial')} have not run; finish it where it"
            " was started, with 'assay bench resume'"
        )


def _find_run_folder(source: Rollout, result: TrialResult) -> Path | None:
    """Return the folder of a run in the rollout's data folder; None if the run never started.

    Raises:
        UsageError: It is missing, or there is a symbolic link in it.
    """
    folder = RolloutFolder.from_path(source.path).get_run_dir(result.run_id)
    if not folder.is_dir():
        if result.status == LAUNCH_FAILED:
            return None
        raise UsageError(
            f"it is incomplete: the folder of run {result.run_id} is missing, {str(folder)!r};"
            " copy 'runs' next to 'rollouts'"
        )
    _check_files(folder, f" of run {result.run_id}")
    return folder


def _check_files(folder: Path, suffix: str) -> None:
    """Refuse links, special files, and excessive paths and sizes, before anything is read."""
    total = 0
    for path, status in ((folder.name, folder.lstat()), *walk(folder)):
        name = f"{format_path(path.rpartition('/')[2])!r}{suffix or ' in it'}"
        if status is None or is_too_long(path):
            raise UsageError(f"{name} cannot be read, or its path is too long")
        if stat.S_ISLNK(status.st_mode):
            raise UsageError(f"{name} is a symbolic link, which is not imported")
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise UsageError(f"{name} is a pipe, socket or device")
        total += status.st_size
        if path == "manifest.json" and status.st_size > _MAX_MANIFEST_BYTES:
            raise UsageError(f"{name} has more than {_MAX_MANIFEST_BYTES:,} bytes")
    if total > _MAX_FOLDER_BYTES:
        raise UsageError(f"the files{suffix} have {total:,} bytes, over {_MAX_FOLDER_BYTES:,}")


def _relocate(result: TrialResult, stamp: str, folder: RolloutFolder) -> TrialResult:
    """Return a trial with its id and folder in this data folder."""
    run_id = result.run_id
    if folder.stamp != stamp:
        run_id = f"{folder.stamp}{run_id.removeprefix(stamp)}"
    return replace(result, run_id=run_id, run_dir=str(folder.get_run_dir(run_id)))


def _compute_fingerprint(manifest: Manifest) -> str:
    """Return a hash that does not change when a rollout is copied."""
    trials = [
        {**result.as_json(), "run_id": None, "run_dir": None} for result in manifest.results
    ]
    return hashlib.sha256(canonical_json([manifest.name, trials])).hexdigest()[:16]

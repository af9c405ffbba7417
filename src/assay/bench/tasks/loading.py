"""Reading of a task folder. Nothing in the folder is ever changed.

The agent may see `overlay_files`, `overlay_repo_files` and the repository. The reference patch,
tests, rubrics and everything in `evaluation/` are read into separate fields. `overrides.json`
changes the loaded task, never its folder.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from assay.bench.base import (
    NOTHING_ALLOWED,
    Allowed,
    CodingTask,
    MetricsScript,
    RepoSource,
    Rubric,
    TestScript,
)
from assay.bench.tasks.meta import (
    EvaluationPart,
    MetaFile,
    OverridesFile,
    RepoPart,
    ScriptPart,
    read_json,
    validate_content,
)
from assay.bench.tasks.source import FILES, find_repository, remove_password
from assay.bench.tasks.tree import Entry, decode_path, format_path, scan
from assay.bench.tasks.workspace import INSTRUCTIONS
from assay.core.canonical_json import canonical_json, content_hash
from assay.core.files import read_plain_file
from assay.core.text import shown
from assay.errors import UsageError

HIDDEN: Final = ("diff.patch", "tb_meta.json", "repo_info.json", "notes.md", "overrides.json")
"""Files that are never part of an overlay, even if other tools put them there."""
REPLACES_SOURCE: Final = frozenset({"git_url", "branch", "start_commit_sha"})
"""Keys of `repo` that select another commit than the one stored with a task."""


def apply_task_overrides(
    change: OverridesFile, evaluation: EvaluationPart, path: Path
) -> tuple[str | None, EvaluationPart]:
    """Apply overrides to a task.

    Returns:
        The new instructions, None if they are not changed, and the evaluation.

    Raises:
        UsageError: Two keys contradict each other, or one would expose a hidden file.
    """
    texts = {
        "prompt": change.prompt,
        "lm_instructions": change.lm_instructions,
        f"overlay_files.{INSTRUCTIONS}": change.overlay_files.get(INSTRUCTIONS),
    }
    given = {key: text for key, text in texts.items() if text is not None}
    if len(set(given.values())) > 1:
        raise UsageError(f"{path}: {' and '.join(given)} differ; keep one of them")
    if change.evaluation is not None and (change.rubrics, change.test_scripts) != (None, None):
        raise UsageError(
            f"{path}: evaluation cannot be combined with rubrics or test_scripts; move "
            "them into evaluation"
        )
    for name in change.overlay_files:
        if name in HIDDEN:
            raise UsageError(
                f"{path}: overlay_files: {name!r} is not allowed: the agent must not see it; "
                "choose another name"
            )
    if change.evaluation is not None:
        evaluation = change.evaluation
    replaced = {"rubrics": change.rubrics, "test_scripts": change.test_scripts}
    evaluation = evaluation.model_copy(
        update={key: value for key, value in replaced.items() if value is not None}
    )
    return next(iter(given.values()), None), evaluation


META = "tb_meta.json"
BUNDLE = "repo.bundle"
EVALUATION = "evaluation"
REFERENCE = "diff.patch"
_FORMAT = "assay-task/1"


def load_task(
    folder: Path,
    overrides: Path | None = None,
    *,
    repository: bool = True,
    allowed: Allowed = NOTHING_ALLOWED,
) -> CodingTask:
    """Read a task.

    Args:
        folder: The task folder, which has `tb_meta.json`.
        overrides: A file with changes; `overrides.json` in the folder is not applied by itself.
        repository: Whether to read the repository too. Otherwise it may be missing, its commit
            is not resolved, and the task has no checksum.
        allowed: Data outside its folder that the user lets the task read.

    Raises:
        UsageError: A file is missing or invalid; the message says where.
        ServiceError: The commit of a remote repository is not given in full, and the server
            cannot be reached.
    """
    path = folder / META
    if not path.is_file():
        raise UsageError(
            f"no task in {str(folder)!r}: it has neither {META} nor Harbor's task.toml; "
            "create a task with 'assay bench new'"
        )
    meta = validate_content(MetaFile, read_json(path, folder), path)
    change = OverridesFile()
    if overrides is not None:
        within = folder if overrides.absolute().is_relative_to(folder.absolute()) else None
        change = validate_content(OverridesFile, read_json(overrides, within), overrides)
    overlay = _read_folder(folder / "overlay_files")
    instructions = _read_instructions(folder, meta, overlay)
    evaluation = meta.evaluation
    if overrides is not None:
        replaced, evaluation = apply_task_overrides(change, evaluation, overrides)
        instructions = replaced or instructions
    if instructions is None or not instructions.strip():
        raise UsageError(
            f"{str(folder)!r} has no instructions: neither overlay_files/{INSTRUCTIONS} nor "
            f"lm.instructions in {META}; write one of them"
        )
    evaluation_file = overrides if overrides is not None and change.changes_evaluation else path
    hidden = _read_folder(folder / EVALUATION)
    rubrics, tests, metrics = _make_evaluation(evaluation, hidden, evaluation_file)
    scripts = {script.path for script in tests} | ({metrics.path} if metrics else set())
    visible = {name: content for name, content in overlay.items() if name not in HIDDEN}
    visible.pop(INSTRUCTIONS, None)
    added = {name: text.encode() for name, text in change.overlay_files.items()}
    added.pop(INSTRUCTIONS, None)
    task_id = meta.task_id or folder.resolve().name
    reference = read_optional_file(folder, REFERENCE)
    task = CodingTask(
        folder=folder.resolve(),
        task_id=task_id,
        title=meta.metadata.title or task_id,
        instructions=instructions,
        repo=replace(
            _resolve_repo(folder, meta.repo, change.repo, overrides),
            allowed=tuple(os.path.abspath(path) for path in allowed.repos),
        ),
        tags=tuple(meta.metadata.tags),
        rubrics=rubrics,
        test_scripts=tests,
        metrics_script=metrics,
        evaluation_files={
            name: content for name, content in hidden.items() if name not in scripts
        },
        overlay_files={**visible, **added},
        overlay_repo_files={
            **_read_folder(folder / "overlay_repo_files"),
            **change.repository_files,
        },
        remove_repo_paths=tuple(change.remove_repo_paths),
        environment={**meta.environment_variables, **change.environment_variables},
        limits={
            name: float(value)
            for name, value in meta.limits.model_dump(exclude_none=True).items()
        },
        reference_patch=overlay.get(REFERENCE) if reference is None else reference,
    )
    if not repository:
        return task
    source = find_repository(task.repo, task.folder)
    task = replace(task, repo=source.repo)
    return replace(task, checksum=_compute_checksum(task, source.files))


def _read_folder(folder: Path) -> dict[str, bytes]:
    """Read all files in a folder of the task, by relative path; empty if it is missing."""
    if not folder.is_dir():
        return {}
    scanned = scan(folder)
    links = [path for path, status in scanned.files.items() if stat.S_ISLNK(status.st_mode)]
    invalid = [*links, *(path for paths in scanned.left_out.values() for path in paths)]
    if invalid:
        raise UsageError(
            f"{str(folder / format_path(invalid[0]))!r} is not a plain file; a task must not "
            "contain links or git folders"
        )
    return {
        path: read_plain_file(folder / path)
        for path in scanned.files
        if not path.endswith(".pyc") and "__pycache__" not in path.split("/")
    }


def _read_instructions(
    folder: Path, meta: MetaFile, overlay: Mapping[str, bytes]
) -> str | None:
    content = overlay.get(INSTRUCTIONS)
    if content is None:
        content = read_optional_file(folder, INSTRUCTIONS)
    if content is None:
        return meta.lm.instructions
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{INSTRUCTIONS} of {str(folder)!r} is not UTF-8: {error}") from error


def read_optional_file(folder: Path, name: str) -> bytes | None:
    """Read a file of a task without following links; return None if it does not exist.

    Raises:
        UsageError: It is a link, its path contains a link, or it is not a plain file.
    """
    try:
        return read_plain_file(folder / name, within=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(
            f"cannot read {str(folder / name)!r}: {error.strerror}; files of a task must "
            "be plain files in its folder, not links"
        ) from error


def _resolve_repo(
    folder: Path, meta: RepoPart, change: RepoPart | None, overrides: Path | None
) -> RepoSource:
    """Return the source of the repository: the task folder, or else the URL in the task."""
    values = {name: getattr(meta, name) for name in meta.model_fields_set}
    stored = True
    if change is not None:
        changed = {name: getattr(change, name) for name in change.model_fields_set}
        stored = REPLACES_SOURCE.isdisjoint(changed)
        # Commits and folders of one repository do not exist in another.
        values = changed if "git_url" in changed else {**values, **changed}
    part = RepoPart().model_copy(update=values)
    url = part.git_url
    if stored and (folder / FILES).is_dir():
        url = None
    elif stored and (folder / BUNDLE).is_file():
        url = str((folder / BUNDLE).resolve())
    elif url is None and not stored:
        raise UsageError(
            f"{overrides}: repo: {shown(part.start_commit_sha or part.branch)} is not allowed, "
            "because the repository has no commits, only plain files; add repo.git_url"
        )
    return RepoSource(
        git_url=url,
        branch=part.branch,
        start_commit=part.start_commit_sha,
        end_commit=part.end_commit_sha,
        subdir=part.subdir,
        sparse_checkout=tuple(part.sparse_checkout),
        origin=part.git_url and remove_password(part.git_url),
    )


def _make_evaluation(
    part: EvaluationPart, hidden: Mapping[str, bytes], path: Path
) -> tuple[tuple[Rubric, ...], tuple[TestScript, ...], MetricsScript | None]:
    rubrics = tuple(
        Rubric(
            id=rubric.id,
            criterion=rubric.criterion,
            weight=float(rubric.weight),
            evaluation_criteria=tuple(rubric.evaluation_criteria),
        )
        for rubric in part.rubrics
    )
    ids = [rubric.id for rubric in rubrics]
    _check_unique(ids, path, "evaluation.rubrics", "id")
    tests = []
    for number, script in enumerate(part.test_scripts):
        key = f"evaluation.test_scripts[{number}]"
        if script.rubric_id not in ids:
            raise UsageError(
                f"{path}: {key}.rubric_id: no rubric {script.rubric_id!r}; choose from: "
                f"{', '.join(ids) or 'none, evaluation.rubrics is empty'}"
            )
        if not script.path.endswith((".py", ".sh")):
            raise UsageError(
                f"{path}: {key}.path: {script.path!r} is not allowed: a test is a pytest file "
                "(.py) or a shell script (.sh)"
            )
        content = _read_script(script.path, script.content, hidden, path, key)
        tests.append(TestScript(path=script.path, rubric_id=script.rubric_id, content=content))
    _check_unique([test.path for test in tests], path, "evaluation.test_scripts", "path")
    metrics = part.script
    if metrics is None:
        return rubrics, tuple(tests), None
    metrics = ScriptPart(path=metrics) if isinstance(metrics, str) else metrics
    if metrics.path in {test.path for test in tests}:
        raise UsageError(f"{path}: evaluation.script.path: {metrics.path!r} is a test script")
    content = _read_script(metrics.path, metrics.content, hidden, path, "evaluation.script")
    return rubrics, tuple(tests), MetricsScript(path=metrics.path, content=content)


def _read_script(
    name: str, content: str | None, hidden: Mapping[str, bytes], path: Path, key: str
) -> str:
    if content is not None:
        return content
    if name not in hidden:
        raise UsageError(
            f"{path}: {key}: no content, and no file {EVALUATION}/{name}; add one of them"
        )
    try:
        return hidden[name].decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{EVALUATION}/{name} is not UTF-8: {error}") from error


def _check_unique(names: Iterable[str], path: Path, key: str, field: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise UsageError(
                f"{path}: {key}: {count} entries have the {field} {name!r}; it must be unique"
            )


def _compute_checksum(task: CodingTask, files: Mapping[str, Entry] | None) -> str:
    """Return a hash of everything that affects the result of a trial."""
    repository: Any = {"commit": task.repo.start_commit, "subdir": task.repo.subdir}
    repository["sparse_checkout"] = task.repo.sparse_checkout
    if files is not None:
        repository = [[decode_path(path), *entry] for path, entry in files.items()]
    return content_hash(
        canonical_json(
            {
                "format": _FORMAT,
                "task_id": task.task_id,
                "instructions": task.instructions,
                "rubrics": [asdict(rubric) for rubric in task.rubrics],
                "test_scripts": [asdict(script) for script in task.test_scripts],
                "metrics_script": task.metrics_script and asdict(task.metrics_script),
                "evaluation_files": _hash_files(task.evaluation_files),
                "overlay_files": _hash_files(task.overlay_files),
                "overlay_repo_files": _hash_files(task.overlay_repo_files),
                "remove_repo_paths": task.remove_repo_paths,
                "environment": dict(task.environment),
                "limits": dict(task.limits),
                "reference_patch": content_hash(task.reference_patch or b""),
                "repository": repository,
            }
        )
    )


def _hash_files(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: content_hash(content) for path, content in sorted(files.items())}

"""The repository of a task: plain files, a local repository, a bundle, or a remote.

Each of them yields a listing of paths, and the files in a folder. Submodules are not followed.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from assay.bench.base import RepoSource
from assay.bench.tasks.tree import (
    FILE,
    LINK,
    MAX_FILE_BYTES,
    MAX_PATH_BYTES,
    MAX_PATH_DEPTH,
    PROGRAM,
    Entry,
    compute_blob_hash,
    find_path_problem,
    format_path,
    is_too_long,
    make_findings,
    read_entries,
    scan,
)
from assay.core.git import (
    create_temporary_repository,
    find_error,
    open_foreign_repository,
    run_own_git,
    run_remote_git,
)
from assay.core.wildcards import Wildcards
from assay.errors import ServiceError, UsageError

FILES = "repo"
"""Folder of a task that contains the repository as plain files."""
START = "assay-start"
"""Branch of a bundle with a single commit: the files a task starts from."""
_COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")
_REMOTE_PATTERN = re.compile(r"(?:(?:https?|ssh|git)://|[\w.-]+@[\w.-]+:)")
_USER_PATTERN = re.compile(r"(?<=://)[^/@]*@(?=[^/])")
_FETCH_SECONDS = 600
_MAX_REPOSITORY_BYTES = 2 << 30
_MAX_LISTING_BYTES = 256 << 20
"""Size limit in bytes of a file listing; a million files would take half."""


class _GitCommit(NamedTuple):
    """A git directory, and the commit in it that the task starts from."""

    git_dir: Path
    commit: str


def is_remote(url: str) -> bool:
    """Return whether a URL is on another machine."""
    return bool(_REMOTE_PATTERN.match(url))


def remove_password(url: str) -> str:
    """Remove the user, token or password before the host of a URL."""
    return _USER_PATTERN.sub("", url)


class FoundRepository(NamedTuple):
    """A repository that was found."""

    repo: RepoSource
    """The repository with the full hash of its commit."""
    files: Mapping[str, Entry] | None
    """All paths with their entries; None for a remote repository."""


def find_repository(repo: RepoSource, folder: Path) -> FoundRepository:
    """Find the repository of the task in `folder`, and list its files.

    Raises:
        UsageError: The repository, commit or folder does not exist.
        ServiceError: The commit of a branch could not be queried from a remote repository.
    """
    if repo.git_url is None:
        return FoundRepository(repo, _list_plain_files(repo, folder))
    if is_remote(repo.git_url):
        return FoundRepository(
            replace(repo, start_commit=_resolve_remote_commit(repo, repo.git_url)), None
        )
    with _open_commit(repo, folder) as source:
        # A bundle made for the task has another commit hash; the original one is kept.
        bundled = _resolve_local_path(repo.git_url, folder).is_file()
        commit = repo.start_commit if bundled else None
        return FoundRepository(
            replace(repo, start_commit=commit or source.commit),
            _select_paths(repo, _list_commit_files(source)),
        )


def check_out(repo: RepoSource, folder: Path, target: Path) -> None:
    """Copy the files of the repository to a new folder.

    Raises:
        UsageError: The repository, commit or folder does not exist.
        ServiceError: A remote repository could not be fetched.
    """
    if repo.git_url is None:
        root = _find_plain_folder(folder) / (repo.subdir or "")
        for path in _list_plain_files(repo, folder):
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, file, follow_symlinks=False)
        target.mkdir(parents=True, exist_ok=True)
        return
    with _open_commit(repo, folder) as source:
        files = _list_commit_files(source)
        selected = _select_paths(repo, files)
        start = f"{repo.subdir}/" if repo.subdir else ""
        _write_files(source, {path: files[f"{start}{path}"] for path in selected}, target)


def _write_files(source: _GitCommit, files: Mapping[str, Entry], target: Path) -> None:
    """Write files with git, byte for byte."""
    target.mkdir(parents=True, exist_ok=True)
    lines = b"".join(
        f"{entry.mode} {entry.sha}\t".encode() + os.fsencode(path) + b"\0"
        for path, entry in files.items()
    )
    where = f"--prefix={target.resolve()}/"
    for arguments, stdin, variables in (
        (("update-index", "-z", "--index-info"), lines, {}),
        (("checkout-index", "--all", "--force", where), b"", {"GIT_WORK_TREE": str(target)}),
    ):
        end = run_own_git(source.git_dir, *arguments, stdin=stdin, variables=variables)
        if end.code != 0:
            raise UsageError(f"cannot write the repository: {find_error(end.errors)}")


def _list_plain_files(repo: RepoSource, folder: Path) -> Mapping[str, Entry]:
    root = _find_plain_folder(folder)
    scanned = scan(root)
    files, unread = read_entries(root, scanned.files, compute_blob_hash)
    for finding in make_findings({**scanned.left_out, **unread}):
        if finding.name != "nested_repository":
            raise UsageError(
                f"{str(root)!r} has a file that a repository cannot contain ({finding.name}): "
                f"{finding.detail}; remove it, or name a git repository"
            )
    return _select_paths(repo, files)


def _find_plain_folder(folder: Path) -> Path:
    root = folder / FILES
    if not root.is_dir():
        raise UsageError(
            f"{str(folder)!r} has no repository: no folder {FILES!r}, no 'repo.bundle', and "
            "tb_meta.json has no repo.git_url; create one with 'assay bench prepare'"
        )
    return root


def _select_paths(repo: RepoSource, files: Mapping[str, Entry]) -> dict[str, Entry]:
    """Apply `sparse_checkout` and `subdir`."""
    sparse = Wildcards(repo.sparse_checkout)
    if idle := sparse.idle(files):
        raise UsageError(f"repo.sparse_checkout: {idle[0]!r} matches nothing in the repository")
    kept = {path: entry for path, entry in files.items() if not sparse or sparse.match(path)}
    if repo.subdir is None:
        return kept
    start = f"{repo.subdir}/"
    inside = {
        path.removeprefix(start): entry
        for path, entry in kept.items()
        if path.startswith(start)
    }
    if not inside:
        raise UsageError(f"repo.subdir: no folder {repo.subdir!r} in the repository")
    return inside


def _list_commit_files(source: _GitCommit) -> dict[str, Entry]:
    options = ("ls-tree", "-r", "-l", "-z", "--full-tree")
    end = run_own_git(source.git_dir, *options, source.commit, max_bytes=_MAX_LISTING_BYTES)
    if end.code != 0:
        raise UsageError(f"cannot read commit {source.commit!r}: {find_error(end.errors)}")
    files, total = {}, 0
    for row in end.output.split(b"\0")[:-1]:
        fields, _, name = row.partition(b"\t")
        mode, _, sha, size = fields.decode().split()
        if mode not in (FILE, PROGRAM, LINK):
            continue
        path = os.fsdecode(name)
        if problem := find_path_problem(path, in_repository=True):
            raise UsageError(f"commit {source.commit!r} has {format_path(path)!r}: {problem}")
        if not size.isdigit():
            raise UsageError(f"cannot read commit {source.commit!r}: object {sha} is missing")
        # Checked before unpacking: a few bytes can expand to gigabytes or endless folders.
        total += int(size)
        if int(size) > MAX_FILE_BYTES or total > _MAX_REPOSITORY_BYTES or is_too_long(path):
            raise UsageError(
                f"commit {source.commit!r} exceeds a limit at {format_path(path)!r}: at most "
                f"{MAX_FILE_BYTES:,} bytes per file, {_MAX_REPOSITORY_BYTES:,} in all files, "
                f"{MAX_PATH_BYTES:,} in a path, {MAX_PATH_DEPTH} nested folders"
            )
        files[path] = Entry(mode, sha)
    return dict(sorted(files.items()))


@contextmanager
def _open_commit(repo: RepoSource, folder: Path) -> Iterator[_GitCommit]:
    """Yield a temporary git directory with the objects of a repository."""
    assert repo.git_url is not None
    if is_remote(repo.git_url):
        with create_temporary_repository() as git_dir:
            yield _GitCommit(git_dir, _fetch_commit(repo, repo.git_url, git_dir))
        return
    path = _resolve_local_path(repo.git_url, folder)
    within = (folder, *map(Path, repo.allowed))
    real_path = Path(os.path.realpath(path))
    if not any(real_path.is_relative_to(allowed.resolve()) for allowed in within):
        raise UsageError(
            f"repo.git_url: {repo.git_url!r} is outside the task folder, at "
            f"{str(real_path)!r}; to allow it: --allow-repo {real_path}, or allow_repos in the "
            "benchmark file"
        )
    if real_path.is_file():
        with create_temporary_repository() as git_dir:
            yield _GitCommit(git_dir, _unpack_bundle(real_path, git_dir, repo))
        return
    if not real_path.is_dir():
        raise UsageError(
            f"repo.git_url: repository or bundle {str(path)!r} not found; "
            "give a URL, or the path of a repository or bundle"
        )
    with open_foreign_repository(real_path, within) as git_dir:
        yield _GitCommit(git_dir, _resolve_commit(git_dir, repo, path))


def _resolve_local_path(url: str, folder: Path) -> Path:
    return folder / Path(url.removeprefix("file://")).expanduser()


def _unpack_bundle(bundle: Path, git_dir: Path, repo: RepoSource) -> str:
    """Import all objects of a bundle; return the commit that the task starts from."""
    if bundle.stat().st_size > _MAX_REPOSITORY_BYTES:
        raise UsageError(
            f"the bundle {str(bundle)!r} has more than {_MAX_REPOSITORY_BYTES:,} bytes; create "
            "one with a single commit"
        )
    end = run_own_git(git_dir, "bundle", "unbundle", str(bundle))
    if end.code != 0:
        raise UsageError(f"cannot read the bundle {str(bundle)!r}: {find_error(end.errors)}")
    rows = (line.split(" ", 1) for line in os.fsdecode(end.output).splitlines())
    heads = {name.removeprefix("refs/heads/"): commit for commit, name in rows}
    if START in heads:
        return heads[START]
    if repo.branch is not None and repo.start_commit is None and repo.branch in heads:
        return heads[repo.branch]
    if repo.start_commit or repo.branch or not heads:
        return _resolve_commit(git_dir, repo, bundle)
    return heads.get("HEAD") or next(iter(heads.values()))


def _resolve_commit(git_dir: Path, repo: RepoSource, path: Path) -> str:
    name = repo.start_commit or repo.branch or "HEAD"
    end = run_own_git(
        git_dir, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
    )
    if end.code == 0:
        return end.output.decode().split()[-1]
    key = "start_commit_sha" if repo.start_commit else "branch"
    raise UsageError(
        f"repo.{key}: no commit {name!r} in {str(path)!r}; 'git log' there lists its commits"
    )


def _resolve_remote_commit(repo: RepoSource, url: str) -> str:
    if repo.start_commit:
        if not _COMMIT_PATTERN.fullmatch(repo.start_commit):
            raise UsageError(
                f"repo.start_commit_sha: {repo.start_commit!r} is not a full commit "
                "hash (40 hexadecimal digits), which a remote repository requires"
            )
        return repo.start_commit
    name = f"refs/heads/{repo.branch}" if repo.branch else "HEAD"
    where = remove_password(url)
    with create_temporary_repository() as git_dir:
        end = run_remote_git(git_dir, "ls-remote", "--exit-code", "--", url, name, seconds=60)
    if end.code == 2:
        raise UsageError(f"repo.branch: no branch {repo.branch!r} at {where!r}")
    if end.code != 0:
        raise ServiceError(_format_fetch_error(url, end.errors))
    return end.output.split()[0].decode()


def _fetch_commit(repo: RepoSource, url: str, git_dir: Path) -> str:
    """Fetch only the commit if the server allows it, or else the branch or all branches."""
    commit = _resolve_remote_commit(repo, url)
    where = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
    heads = f"refs/heads/{repo.branch}" if repo.branch else "+refs/heads/*:refs/far/*"
    errors = b""
    for refs in (("--depth=1", "--", url, commit), ("--", url, heads)):
        end = run_remote_git(git_dir, *where, *refs, seconds=_FETCH_SECONDS)
        lookup = run_own_git(git_dir, "cat-file", "-e", f"{commit}^{{commit}}")
        if lookup.code == 0:
            return commit
        errors = end.errors
    if not errors:
        raise UsageError(
            f"repo.start_commit_sha: no commit {commit!r} at {remove_password(url)!r}"
        )
    raise ServiceError(_format_fetch_error(url, errors))


def _format_fetch_error(url: str, errors: bytes) -> str:
    # Git's message may contain the URL.
    return remove_password(
        f"cannot fetch {url!r}: {find_error(errors)}; check the URL and your access, or "
        "prepare the task on a machine with access ('assay bench prepare')"
    )

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
    DEEPEST,
    FILE,
    LARGEST_FILE,
    LINK,
    LONGEST_PATH,
    PROGRAM,
    Entry,
    as_findings,
    blob_hash,
    entries,
    is_too_long,
    path_problem,
    scan,
    shown_path,
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
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REMOTE = re.compile(r"(?:(?:https?|ssh|git)://|[\w.-]+@[\w.-]+:)")
_USER = re.compile(r"(?<=://)[^/@]*@(?=[^/])")
_FETCH_SECONDS = 600
_LARGEST_REPOSITORY = 2 << 30
_LARGEST_LISTING = 256 << 20
"""Size limit in bytes of a file listing; a million files would take half."""


class _Objects(NamedTuple):
    """A git directory, and the commit in it that the task starts from."""

    git_dir: Path
    commit: str


def is_remote(url: str) -> bool:
    """Return whether a URL is on another machine."""
    return bool(_REMOTE.match(url))


def without_password(url: str) -> str:
    """Remove the user, token or password before the host of a URL."""
    return _USER.sub("", url)


class Source(NamedTuple):
    """A repository that was found."""

    repo: RepoSource
    """The repository with the full hash of its commit."""
    files: Mapping[str, Entry] | None
    """All paths with their entries; None for a remote repository."""


def look_up(repo: RepoSource, folder: Path) -> Source:
    """Find the repository of the task in `folder`, and list its files.

    Raises:
        UsageError: The repository, commit or folder does not exist.
        ServiceError: The commit of a branch could not be queried from a remote repository.
    """
    if repo.git_url is None:
        return Source(repo, _of_files(repo, folder))
    if is_remote(repo.git_url):
        return Source(replace(repo, start_commit=_remote_commit(repo, repo.git_url)), None)
    with _objects(repo, folder) as objects:
        # A bundle made for the task has another commit hash; the original one is kept.
        bundled = _local(repo.git_url, folder).is_file()
        commit = repo.start_commit if bundled else None
        return Source(
            replace(repo, start_commit=commit or objects.commit),
            _chosen(repo, _of_commit(objects)),
        )


def check_out(repo: RepoSource, folder: Path, into: Path) -> None:
    """Copy the files of the repository to a new folder.

    Raises:
        UsageError: The repository, commit or folder does not exist.
        ServiceError: A remote repository could not be fetched.
    """
    if repo.git_url is None:
        root = _files(folder) / (repo.subdir or "")
        for path in _of_files(repo, folder):
            target = into / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, target, follow_symlinks=False)
        into.mkdir(parents=True, exist_ok=True)
        return
    with _objects(repo, folder) as objects:
        everything = _of_commit(objects)
        chosen = _chosen(repo, everything)
        start = f"{repo.subdir}/" if repo.subdir else ""
        _write_out(objects, {path: everything[f"{start}{path}"] for path in chosen}, into)


def _write_out(objects: _Objects, files: Mapping[str, Entry], into: Path) -> None:
    """Write files with git, byte for byte."""
    into.mkdir(parents=True, exist_ok=True)
    lines = b"".join(
        f"{entry.mode} {entry.sha}\t".encode() + os.fsencode(path) + b"\0"
        for path, entry in files.items()
    )
    where = f"--prefix={into.resolve()}/"
    for arguments, stdin, variables in (
        (("update-index", "-z", "--index-info"), lines, {}),
        (("checkout-index", "--all", "--force", where), b"", {"GIT_WORK_TREE": str(into)}),
    ):
        end = run_own_git(objects.git_dir, *arguments, stdin=stdin, variables=variables)
        if end.code != 0:
            raise UsageError(f"cannot write the repository: {find_error(end.errors)}")


def _of_files(repo: RepoSource, folder: Path) -> Mapping[str, Entry]:
    root = _files(folder)
    seen = scan(root)
    found, unread = entries(root, seen.files, blob_hash)
    for finding in as_findings({**seen.left_out, **unread}):
        if finding.name != "nested_repository":
            raise UsageError(
                f"{str(root)!r} has what a repository cannot hold ({finding.name}): "
                f"{finding.detail}; remove it, or name a git repository"
            )
    return _chosen(repo, found)


def _files(folder: Path) -> Path:
    root = folder / FILES
    if not root.is_dir():
        raise UsageError(
            f"{str(folder)!r} has no repository: no folder {FILES!r}, no 'repo.bundle', and "
            "tb_meta.json has no repo.git_url; 'assay bench prepare' makes one"
        )
    return root


def _chosen(repo: RepoSource, found: Mapping[str, Entry]) -> dict[str, Entry]:
    """Apply `sparse_checkout` and `subdir`."""
    wanted = Wildcards(repo.sparse_checkout)
    if idle := wanted.idle(found):
        raise UsageError(f"repo.sparse_checkout: {idle[0]!r} matches nothing in the repository")
    left = {path: entry for path, entry in found.items() if not wanted or wanted.match(path)}
    if repo.subdir is None:
        return left
    start = f"{repo.subdir}/"
    inside = {
        path.removeprefix(start): entry
        for path, entry in left.items()
        if path.startswith(start)
    }
    if not inside:
        raise UsageError(f"repo.subdir: no folder {repo.subdir!r} in the repository")
    return inside


def _of_commit(objects: _Objects) -> dict[str, Entry]:
    options = ("ls-tree", "-r", "-l", "-z", "--full-tree")
    end = run_own_git(objects.git_dir, *options, objects.commit, max_bytes=_LARGEST_LISTING)
    if end.code != 0:
        raise UsageError(f"cannot read commit {objects.commit!r}: {find_error(end.errors)}")
    found, total = {}, 0
    for row in end.output.split(b"\0")[:-1]:
        facts, _, name = row.partition(b"\t")
        mode, _, sha, size = facts.decode().split()
        if mode not in (FILE, PROGRAM, LINK):
            continue
        path = os.fsdecode(name)
        if problem := path_problem(path, in_repository=True):
            raise UsageError(f"commit {objects.commit!r} has {shown_path(path)!r}: {problem}")
        if not size.isdigit():
            raise UsageError(f"cannot read commit {objects.commit!r}: no content {sha}")
        # Checked before unpacking: a few bytes can expand to gigabytes or endless folders.
        total += int(size)
        if int(size) > LARGEST_FILE or total > _LARGEST_REPOSITORY or is_too_long(path):
            raise UsageError(
                f"commit {objects.commit!r} is too large at {shown_path(path)!r}: a file may "
                f"have {LARGEST_FILE:,} bytes, all of them {_LARGEST_REPOSITORY:,}, a path "
                f"{LONGEST_PATH:,} bytes and {DEEPEST} folders"
            )
        found[path] = Entry(mode, sha)
    return dict(sorted(found.items()))


@contextmanager
def _objects(repo: RepoSource, folder: Path) -> Iterator[_Objects]:
    """Yield a temporary git directory with the objects of a repository."""
    assert repo.git_url is not None
    if is_remote(repo.git_url):
        with create_temporary_repository() as own:
            yield _Objects(own, _fetch(repo, repo.git_url, own))
        return
    path = _local(repo.git_url, folder)
    within = (folder, *map(Path, repo.allowed))
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(top.resolve()) for top in within):
        raise UsageError(
            f"repo.git_url: {repo.git_url!r} lies outside of the task, at {str(real)!r}; if "
            f"the task may read it, allow that: --allow-repo {real}, or allow_repos in the "
            "file of the benchmark"
        )
    if real.is_file():
        with create_temporary_repository() as own:
            yield _Objects(own, _unbundled(real, own, repo))
        return
    if not real.is_dir():
        raise UsageError(
            f"repo.git_url: {str(path)!r} is no git repository or bundle (no such folder); "
            "give an address, a path of a repository or of a bundle"
        )
    with open_foreign_repository(real, within) as own:
        yield _Objects(own, _commit(own, repo, path))


def _local(url: str, folder: Path) -> Path:
    return folder / Path(url.removeprefix("file://")).expanduser()


def _unbundled(bundle: Path, own: Path, repo: RepoSource) -> str:
    """Import all objects of a bundle; return the commit that the task starts from."""
    if bundle.stat().st_size > _LARGEST_REPOSITORY:
        raise UsageError(
            f"the bundle {str(bundle)!r} has more than {_LARGEST_REPOSITORY:,} bytes; make one "
            "of a single commit"
        )
    end = run_own_git(own, "bundle", "unbundle", str(bundle))
    if end.code != 0:
        raise UsageError(f"cannot read the bundle {str(bundle)!r}: {find_error(end.errors)}")
    rows = (line.split(" ", 1) for line in os.fsdecode(end.output).splitlines())
    heads = {name.removeprefix("refs/heads/"): commit for commit, name in rows}
    if START in heads:
        return heads[START]
    if repo.branch is not None and repo.start_commit is None and repo.branch in heads:
        return heads[repo.branch]
    if repo.start_commit or repo.branch or not heads:
        return _commit(own, repo, bundle)
    return heads.get("HEAD") or next(iter(heads.values()))


def _commit(git_dir: Path, repo: RepoSource, path: Path) -> str:
    name = repo.start_commit or repo.branch or "HEAD"
    end = run_own_git(
        git_dir, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
    )
    if end.code == 0:
        return end.output.decode().split()[-1]
    key = "start_commit_sha" if repo.start_commit else "branch"
    raise UsageError(
        f"repo.{key}: no commit {name!r} in {str(path)!r}; see 'git log' there for those "
        "that it has"
    )


def _remote_commit(repo: RepoSource, url: str) -> str:
    if repo.start_commit:
        if not _COMMIT.fullmatch(repo.start_commit):
            raise UsageError(
                f"repo.start_commit_sha: {repo.start_commit!r} is not the whole name of a "
                "commit, 40 hexadecimal digits, which a repository far away must have"
            )
        return repo.start_commit
    name = f"refs/heads/{repo.branch}" if repo.branch else "HEAD"
    where = without_password(url)
    with create_temporary_repository() as own:
        end = run_remote_git(own, "ls-remote", "--exit-code", "--", url, name, seconds=60)
    if end.code == 2:
        raise UsageError(f"repo.branch: no branch {repo.branch!r} at {where!r}")
    if end.code != 0:
        raise ServiceError(_unreachable(url, end.errors))
    return end.output.split()[0].decode()


def _fetch(repo: RepoSource, url: str, own: Path) -> str:
    """Fetch only the commit if the server allows it, or else the branch or all branches."""
    commit = _remote_commit(repo, url)
    where = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules")
    heads = f"refs/heads/{repo.branch}" if repo.branch else "+refs/heads/*:refs/far/*"
    errors = b""
    for more in (("--depth=1", "--", url, commit), ("--", url, heads)):
        end = run_remote_git(own, *where, *more, seconds=_FETCH_SECONDS)
        known = run_own_git(own, "cat-file", "-e", f"{commit}^{{commit}}")
        if known.code == 0:
            return commit
        errors = end.errors
    if not errors:
        raise UsageError(
            f"repo.start_commit_sha: no commit {commit!r} at {without_password(url)!r}"
        )
    raise ServiceError(_unreachable(url, errors))


def _unreachable(url: str, errors: bytes) -> str:
    # Git's message may contain the URL.
    return without_password(
        f"cannot fetch {url!r}: {find_error(errors)}; check the address and your access, or "
        "prepare the task where it can be reached ('assay bench prepare')"
    )

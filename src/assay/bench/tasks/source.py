"""The repository of a task, wherever it is: files, a local repository, a bundle, an address.

All of them come to the same: a listing of paths, and the files in a folder. Submodules are
not followed.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from assay.bench.seams import RepoSource
from assay.bench.tasks.git import ATTRIBUTES, first_line, host_git, trusted_git
from assay.bench.tasks.objects import FILE, LINK, PROGRAM, Entry, blob_hash, new_git_dir
from assay.bench.tasks.paths import Wildcards
from assay.bench.tasks.tree import as_findings, entries, scan
from assay.errors import ServiceError, UsageError

__all__ = [
    "FILES",
    "START",
    "Source",
    "check_out",
    "is_remote",
    "look_up",
    "without_password",
]

FILES = "repo"
"""The folder of a task that holds the files themselves."""
START = "assay-start"
"""The branch of a bundle that holds nothing but the files a task starts from."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REMOTE = re.compile(r"(?:(?:https?|ssh|git)://|[\w.-]+@[\w.-]+:)")
_USER = re.compile(r"(?<=://)[^/@]*@(?=[^/])")
_FETCH_SECONDS = 600


class _Objects(NamedTuple):
    """A git directory, and the commit in it that the task starts from."""

    git_dir: Path
    commit: str


def is_remote(url: str) -> bool:
    """Whether an address is that of another machine."""
    return bool(_REMOTE.match(url))


def without_password(url: str) -> str:
    """An address without the user, token or password that may stand before its host."""
    return _USER.sub("", url)


class Source(NamedTuple):
    """What was found where the repository of a task is."""

    repo: RepoSource
    """The same place, with the whole name of its commit."""
    files: Mapping[str, Entry] | None
    """All paths with their contents' names; None if it is far away."""


def look_up(repo: RepoSource, folder: Path) -> Source:
    """Look at the repository of the task that has this folder.

    Raises:
        UsageError: There is no such repository, commit or folder in it.
        ServiceError: It is far away, and was asked for the commit of a branch in vain.
    """
    if repo.git_url is None:
        return Source(repo, _of_files(repo, folder))
    if is_remote(repo.git_url):
        return Source(replace(repo, start_commit=_remote_commit(repo, repo.git_url)), None)
    with _objects(repo, folder) as objects:
        # What was stored for the task keeps the name that its commit had where it came from.
        bundled = _local(repo.git_url, folder).is_file()
        commit = repo.start_commit if bundled else None
        return Source(
            replace(repo, start_commit=commit or objects.commit),
            _chosen(repo, _of_commit(objects)),
        )


def check_out(repo: RepoSource, folder: Path, into: Path) -> None:
    """Put the files of the repository into a new folder.

    Raises:
        UsageError: There is no such repository, commit or folder in it.
        ServiceError: It is far away, and could not be fetched.
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
    """Have git write files, by the bytes it has of them."""
    into.mkdir(parents=True, exist_ok=True)
    lines = b"".join(
        f"{entry.mode} {entry.sha}\t".encode() + os.fsencode(path) + b"\0"
        for path, entry in files.items()
    )
    with tempfile.TemporaryDirectory(prefix="assay-index-") as scratch:
        # A git directory of ours, so that no attribute or filter of theirs counts.
        own = Path(scratch) / "git"
        new_git_dir(own, bare=True)
        (own / "info" / "attributes").write_text(ATTRIBUTES, "utf-8")
        where = ("rev-parse", "--path-format=absolute", "--git-path", "objects")
        theirs = os.fsdecode(trusted_git(objects.git_dir, *where).output.removesuffix(b"\n"))
        shared = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": theirs}
        steps: tuple[tuple[tuple[str, ...], bytes], ...] = (
            (("update-index", "-z", "--index-info"), lines),
            (("checkout-index", "--all", "--force", f"--prefix={into.resolve()}/"), b""),
        )
        for arguments, stdin in steps:
            work = {"GIT_WORK_TREE": str(into.resolve())} if stdin == b"" else {}
            end = trusted_git(own, *arguments, stdin=stdin, variables={**shared, **work})
            if end.code != 0:
                raise UsageError(f"cannot write the repository: {first_line(end.errors)}")


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
    """What is left when `sparse_checkout` and `subdir` have chosen."""
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
    end = trusted_git(objects.git_dir, "ls-tree", "-r", "-z", "--full-tree", objects.commit)
    if end.code != 0:
        raise UsageError(f"cannot read commit {objects.commit!r}: {first_line(end.errors)}")
    found = {}
    for row in end.output.split(b"\0")[:-1]:
        facts, _, path = row.partition(b"\t")
        mode, _, sha = facts.decode().split()
        if mode in (FILE, PROGRAM, LINK):
            found[os.fsdecode(path)] = Entry(mode, sha)
    return dict(sorted(found.items()))


@contextmanager
def _objects(repo: RepoSource, folder: Path) -> Iterator[_Objects]:
    """The objects of a repository, fetched into a folder for the time being if need be."""
    assert repo.git_url is not None
    with tempfile.TemporaryDirectory(prefix="assay-fetch-") as scratch:
        own = Path(scratch) / "git"
        if is_remote(repo.git_url):
            new_git_dir(own, bare=True)
            yield _Objects(own, _fetch(repo, repo.git_url, own))
            return
        path = _local(repo.git_url, folder)
        if path.is_file():
            new_git_dir(own, bare=True)
            heads = _unbundle(path, own)
            if START in heads:
                yield _Objects(own, heads[START])
            elif repo.start_commit or repo.branch or not heads:
                yield _Objects(own, _commit(own, repo, path))
            else:
                yield _Objects(own, heads.get("HEAD") or next(iter(heads.values())))
        else:
            git_dir = _git_dir(path)
            yield _Objects(git_dir, _commit(git_dir, repo, path))


def _local(url: str, folder: Path) -> Path:
    return folder / Path(url.removeprefix("file://")).expanduser()


def _git_dir(path: Path) -> Path:
    """The git directory of a repository, so that nothing else of it is asked."""
    where = "no such folder"
    if path.is_dir():
        end = host_git(path, "rev-parse", "--absolute-git-dir")
        if end.code == 0:
            return Path(os.fsdecode(end.output.removesuffix(b"\n")))
        where = first_line(end.errors)
    raise UsageError(
        f"repo.git_url: {str(path)!r} is no git repository or bundle ({where}); give an "
        "address, a path of a repository or of a bundle"
    )


def _unbundle(bundle: Path, own: Path) -> dict[str, str]:
    """Take all of a bundle; returns the commits of its heads by their short names."""
    where = str(bundle.resolve())
    listed = trusted_git(own, "bundle", "list-heads", where)
    end = trusted_git(own, "fetch", "--quiet", "--no-tags", where, "+refs/*:refs/*")
    if listed.code != 0 or end.code != 0:
        wrong = first_line(listed.errors or end.errors)
        raise UsageError(f"cannot read the bundle {str(bundle)!r}: {wrong}")
    rows = (line.split(" ", 1) for line in os.fsdecode(listed.output).splitlines())
    return {name.removeprefix("refs/heads/"): commit for commit, name in rows}


def _commit(git_dir: Path, repo: RepoSource, path: Path) -> str:
    name = repo.start_commit or repo.branch or "HEAD"
    end = trusted_git(
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
    end = host_git(Path.cwd(), "ls-remote", "--exit-code", "--", url, name, seconds=60)
    if end.code == 2:
        raise UsageError(f"repo.branch: no branch {repo.branch!r} at {where!r}")
    if end.code != 0:
        raise ServiceError(_unreachable(url, end.errors))
    return end.output.split()[0].decode()


def _fetch(repo: RepoSource, url: str, own: Path) -> str:
    """Fetch the commit alone where the server lets us, else the branch or all of them."""
    commit = _remote_commit(repo, url)
    where = ("--git-dir", str(own), "fetch", "--quiet", "--no-tags")
    heads = f"refs/heads/{repo.branch}" if repo.branch else "+refs/heads/*:refs/far/*"
    errors = b""
    for more in (("--depth=1", "--", url, commit), ("--", url, heads)):
        end = host_git(own, *where, *more, seconds=_FETCH_SECONDS)
        known = trusted_git(own, "cat-file", "-e", f"{commit}^{{commit}}")
        if known.code == 0:
            return commit
        errors = end.errors
    if not errors:
        raise UsageError(
            f"repo.start_commit_sha: no commit {commit!r} at {without_password(url)!r}"
        )
    raise ServiceError(_unreachable(url, errors))


def _unreachable(url: str, errors: bytes) -> str:
    # Git may have the address in what it says.
    return without_password(
        f"cannot fetch {url!r}: {first_line(errors)}; check the address and your access, or "
        "prepare the task where it can be reached ('assay bench prepare')"
    )

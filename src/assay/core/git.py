"""Git commands, and what each of them trusts. No other module runs git.

| function | works on | reads |
|---|---|---|
| `run_own_git` | a git directory of assay | all of it, but no user or machine configuration |
| `open_foreign_repository` | an untrusted repository | its objects, branches and tags |
| `run_working_copy_git` | an untrusted working copy | also its index and its files |
| `run_remote_git` | a remote address | the server's data, with user configuration and keys |

An untrusted repository is read through a separate git directory that borrows its objects. Its
configuration, hooks, attributes, filters and submodules are never used: they could run
commands.
"""

import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from assay.core.files import read_plain_file
from assay.errors import UsageError

_ATTRIBUTES = "* -text !eol !ident !filter !working-tree-encoding !diff !merge !export-ignore\n"
"""Content of `info/attributes`, which overrides every `.gitattributes`: bytes are unchanged."""
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    # Names that other systems forbid are allowed here; `.git` itself is never written.
    "core.protectNTFS": "false",
    "core.protectHFS": "false",
    # Larger files are not loaded into memory.
    "core.bigFileThreshold": "64m",
    # A foreign commit graph could contain false data.
    "core.commitGraph": "false",
    "gc.auto": "0",
    "pack.threads": "1",
}
# Nothing here is a partial clone or has a remote; these settings are a safeguard.
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
_TIMEOUT_S = 120
_MAX_OUTPUT = 1 << 30
"""Maximum size of the output of git, in bytes."""
_MAX_TEXT = 64 << 20
_MAX_REFERENCES = 100_000
_MAX_DEPTH = 32
_COMMIT = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
_REFERENCE = re.compile(rb"refs/(?!replace/)(?!.*(?:\.\.|//|@\{))[^\0- ~^:?*\[\\\x7f]+")
_PARTIAL = re.compile(rb"^\s*(?:partialclone|promisor)\b", re.IGNORECASE | re.MULTILINE)
_REMOTE = re.compile(rb'^\s*\[\s*remote\s+"', re.IGNORECASE)
_URL = re.compile(rb"^\s*url\s*=\s*(.*?)\s*$", re.IGNORECASE)


class GitResult(NamedTuple):
    """Result of a git command."""

    code: int
    """-1 if it took too long or printed too much."""
    output: bytes
    errors: bytes


def run_own_git(
    git_dir: Path,
    *arguments: str,
    stdin: bytes = b"",
    variables: Mapping[str, str] | None = None,
    seconds: float = _TIMEOUT_S,
    max_bytes: int = _MAX_OUTPUT,
) -> GitResult:
    """Run git on a git directory of assay, using only the configuration in it.

    Args:
        git_dir: A directory made by this module; nothing else writes to it.
        *arguments: The command; it has no access to other repositories or the network.
        stdin: Standard input.
        variables: Additional environment variables.
        seconds: Timeout.
        max_bytes: Maximum size of the output in bytes.
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_DIR": str(git_dir),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        **_NO_FETCH,
        **(variables or {}),
    }
    settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
    folder = Path(environment.get("GIT_WORK_TREE", git_dir))
    return _run_git(
        ["git", *settings, *arguments], folder, environment, stdin, seconds, max_bytes
    )


def run_remote_git(git_dir: Path, *arguments: str, seconds: float = _TIMEOUT_S) -> GitResult:
    """Run git with the user's configuration and keys, in a git directory of assay.

    It never prompts, and can access remote addresses, but no local path.
    """
    # GIT_DIR and similar variables would make git use another repository.
    inherited = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    environment = {
        **inherited,
        "LC_ALL": "C",
        "GIT_DIR": str(git_dir),
        "GIT_TERMINAL_PROMPT": "0",
        **_NO_FETCH,
        "GIT_ALLOW_PROTOCOL": "https:http:ssh:git",
    }
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]
    return _run_git([*command, *arguments], git_dir, environment, b"", seconds, _MAX_TEXT)


def find_error(errors: bytes) -> str:
    """Return the error message of git in one line."""
    lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("error:", "fatal:"))] or lines
    return (
        marked[0].partition(": ")[2] or marked[0] if marked else "git printed no error message"
    )


# Git directories of assay


def create_git_dir(folder: Path, *, bare: bool) -> None:
    """Create an empty repository without remotes, hooks or user configuration."""
    for name in ("objects/info", "objects/pack", "refs/heads", "info"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n", "utf-8")
    (folder / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n"
        f"\tbare = {str(bare).lower()}\n"
        "[user]\n\tname = agent\n\temail = agent@localhost\n",
        "utf-8",
    )
    if bare:
        (folder / "info" / "attributes").write_text(_ATTRIBUTES, "utf-8")


@contextmanager
def create_temporary_repository() -> Iterator[Path]:
    """Yield an empty temporary git directory."""
    with tempfile.TemporaryDirectory(prefix="assay-git-") as scratch:
        git_dir = Path(scratch) / "git"
        create_git_dir(git_dir, bare=True)
        yield git_dir


# Untrusted repositories


@contextmanager
def open_foreign_repository(path: Path, within: Sequence[Path] | None = None) -> Iterator[Path]:
    """Yield a git directory that has the objects, branches and tags of a repository.

    Args:
        path: A working copy, a git directory, or, without `within`, a folder in one of them.
        within: Folders that must contain all of it, with links resolved; None for anywhere.

    Raises:
        UsageError: It is not a repository, lies elsewhere, or uses objects of another.
    """
    git_dirs = _find_git_dirs(path, within)
    if git_dirs is None:
        raise UsageError(
            f"{str(path)!r} is not a git repository; give a folder with a .git, or a bare "
            "repository"
        )
    git_dir, common = git_dirs
    _check_objects(path, common)
    with create_temporary_repository() as reader:
        _link_objects(reader, git_dir, common)
        yield reader


def read_remote_addresses(path: Path) -> list[str]:
    """Return the remote addresses in a repository's configuration, unchanged."""
    git_dirs = _find_git_dirs(path, None)
    addresses, is_remote = [], False
    for line in [] if git_dirs is None else _read_text(git_dirs[1] / "config").splitlines():
        if line.lstrip().startswith(b"["):
            is_remote = _REMOTE.match(line) is not None
        elif is_remote and (match := _URL.match(line)):
            addresses.append(match[1].strip(b'"').decode("utf-8", "replace"))
    return addresses


def _find_git_dirs(path: Path, within: Sequence[Path] | None) -> tuple[Path, Path] | None:
    """Return the git directory of a repository and the one with its objects, or None."""
    parents = path.absolute().parents if within is None else ()
    for folder in (path, *parents):
        dot_git = folder / ".git"
        if os.path.lexists(dot_git):
            git_dir = dot_git
            if os.path.isfile(dot_git):
                line = _read_text(_check_inside(dot_git, within, path)).strip()
                git_dir = folder / os.fsdecode(line.removeprefix(b"gitdir:").strip())
        elif os.path.isfile(folder / "HEAD") and os.path.isdir(folder / "objects"):
            git_dir = folder
        else:
            continue
        git_dir = _check_inside(git_dir, within, path)
        shared = _read_text(git_dir / "commondir").strip()
        common = (
            _check_inside(git_dir / os.fsdecode(shared), within, path) if shared else git_dir
        )
        _check_inside(common / "objects", within, path)
        return git_dir, common
    return None


def _check_inside(location: Path, within: Sequence[Path] | None, path: Path) -> Path:
    real = Path(os.path.realpath(location))
    if within is not None and not any(real.is_relative_to(top.resolve()) for top in within):
        raise UsageError(
            f"the files of the repository {str(path)!r} are in {str(real)!r}, outside the "
            f"task; if that is intended, allow it with --allow-repo {real}"
        )
    return real


def _check_objects(path: Path, common: Path) -> None:
    """Raise UsageError if objects are stored elsewhere, on this machine or another."""
    objects = common / "objects"
    if _PARTIAL.search(_read_text(common / "config")) or any(objects.glob("pack/*.promisor")):
        raise UsageError(
            f"the repository {str(path)!r} is a partial clone with missing objects, which are "
            "not fetched; give a full clone"
        )
    for name in ("alternates", "http-alternates"):
        if os.path.lexists(objects / "info" / name):
            raise UsageError(
                f"the repository {str(path)!r} uses objects of another one (objects/info/"
                f"{name}), which is not supported; give a full clone"
            )
    level = [str(objects)]
    for _ in range(3):  # git uses no deeper levels
        contents: list[os.DirEntry[str]] = []
        for folder in level:
            with os.scandir(folder) as entries:
                contents += entries
        level = [entry.path for entry in contents if entry.is_dir(follow_symlinks=False)]
        for entry in contents:
            if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
                raise UsageError(
                    f"the repository {str(path)!r} has a link or a special file among its "
                    f"objects, {entry.name!r}; give a full clone"
                )


def _link_objects(reader: Path, git_dir: Path, common: Path, *, names: bool = True) -> None:
    """Give a git directory of assay the objects, HEAD and references of another one."""
    objects = os.fsencode(common / "objects")
    if b"\n" in objects:
        raise UsageError(f"the path {str(common)!r} contains a line break; rename the folder")
    (reader / "objects" / "info" / "alternates").write_bytes(objects + b"\n")
    head = _read_text(git_dir / "HEAD", 4096).strip()
    if _COMMIT.fullmatch(head) or _REFERENCE.fullmatch(head.removeprefix(b"ref: ")):
        (reader / "HEAD").write_bytes(head + b"\n")
    references = _read_references(common) if names else {}
    lines = b"".join(b"%s %s\n" % (commit, name) for name, commit in sorted(references.items()))
    (reader / "packed-refs").write_bytes(lines)
    if shallow := _COMMIT.findall(_read_text(common / "shallow")):
        (reader / "shallow").write_bytes(b"\n".join(shallow) + b"\n")


def _read_references(common: Path) -> dict[bytes, bytes]:
    """Return the commits of branches and tags, read as plain text."""
    commits = {}
    for line in _read_text(common / "packed-refs").splitlines():
        commit, _, name = line.partition(b" ")
        if _COMMIT.fullmatch(commit) and _REFERENCE.fullmatch(name):
            commits[name] = commit
    folders = [] if (common / "refs").is_symlink() else ["refs"]
    while folders and len(commits) < _MAX_REFERENCES:
        folder = folders.pop()
        with suppress(OSError), os.scandir(common / folder) as entries:
            for entry in entries:
                inner = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    folders += [inner] * (inner.count("/") < _MAX_DEPTH)
                elif _REFERENCE.fullmatch(os.fsencode(inner)):
                    commit = _read_text(common / inner, 4096).strip()
                    if _COMMIT.fullmatch(commit):
                        commits[os.fsencode(inner)] = commit
    return commits


def _read_text(path: Path, max_bytes: int = _MAX_TEXT) -> bytes:
    """Return the content of a text file in a repository; empty if it is not a regular file."""
    try:
        text = read_plain_file(path, max_bytes)
    except OSError:
        return b""
    return b"" if b"\0" in text else text


# Working copies


class WorkingCopy(NamedTuple):
    """A working copy and its repository."""

    root: Path
    git_dir: Path
    common: Path
    commit: str | None
    """The commit of HEAD; None before the first commit, or if the reference format is
    unsupported."""


def find_working_copy(folder: Path) -> WorkingCopy | None:
    """Return the working copy that contains a folder, or None, without running git."""
    for root in (folder.absolute(), *folder.absolute().parents):
        if os.path.lexists(root / ".git"):
            git_dirs = _find_git_dirs(root, None)
            if git_dirs is None:
                return None
            git_dir, common = git_dirs
            commit = _read_head(git_dir, common)
            return WorkingCopy(root.resolve(), git_dir, common, commit)
    return None


def run_working_copy_git(copy: WorkingCopy, *arguments: str, names: bool = True) -> str | None:
    """Return the output of git for a working copy; None if git fails or is missing.

    Args:
        copy: The result of `find_working_copy`.
        *arguments: A read-only command; submodules are not entered.
        names: Whether branches and tags are available to it.
    """
    with tempfile.TemporaryDirectory(prefix="assay-git-") as scratch:
        reader = Path(scratch) / "git"
        create_git_dir(reader, bare=False)
        index = copy.git_dir / "index"
        try:
            _link_objects(reader, copy.git_dir, copy.common, names=names)
            if not names and copy.commit is not None:
                (reader / "HEAD").write_text(f"{copy.commit}\n", "utf-8")
            (reader / "info" / "exclude").write_bytes(
                _read_text(copy.common / "info" / "exclude")
            )
            if os.path.lexists(index):
                (reader / "index").write_bytes(read_plain_file(index, _MAX_OUTPUT))
                # Git rereads files that are as new as its index.
                modified = index.lstat().st_mtime_ns
                os.utime(reader / "index", ns=(modified, modified))
            result = run_own_git(
                reader, *arguments, variables={"GIT_WORK_TREE": str(copy.root)}, seconds=30
            )
        except (OSError, UsageError):
            return None
    return result.output.decode("utf-8", "replace").strip() if result.code == 0 else None


def has_changes(copy: WorkingCopy, *, untracked: bool) -> bool:
    """Return whether files were changed since the commit; True if that cannot be determined.

    This is the case if the index is split, objects are missing, or HEAD is not a regular file.
    The repository's settings and filters are ignored, so a file that is equal only because of
    them counts as changed once it is rewritten.
    """
    files = "normal" if untracked else "no"
    options = ("--porcelain", f"--untracked-files={files}", "--ignore-submodules=all")
    return run_working_copy_git(copy, "status", *options, names=False) != ""


def _read_head(git_dir: Path, common: Path) -> str | None:
    head = _read_text(git_dir / "HEAD", 4096).strip()
    if head.startswith(b"ref: ") and _REFERENCE.fullmatch(name := head[5:].strip()):
        for folder in (git_dir, common):
            if _COMMIT.fullmatch(head := _read_text(folder / os.fsdecode(name), 4096).strip()):
                break
        else:
            match = re.search(
                rb"^([0-9a-f]+) %s$" % re.escape(name), _read_text(common / "packed-refs"), re.M
            )
            head = b"" if match is None else match[1]
    return head.decode() if _COMMIT.fullmatch(head) else None


def _run_git(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stdin: bytes,
    seconds: float,
    max_bytes: int,
) -> GitResult:
    deadline = time.monotonic() + seconds
    output = bytearray()
    with tempfile.TemporaryFile() as input_file, tempfile.TemporaryFile() as errors:
        input_file.write(stdin)
        input_file.seek(0)
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environment),
                stdin=input_file,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except FileNotFoundError as error:
            if not folder.is_dir():
                raise UsageError(
                    f"folder {str(folder)!r} not found; give one that exists"
                ) from error
            raise UsageError("git is not installed; install it, then try again") from error
        with process, selectors.DefaultSelector() as ready:
            assert process.stdout is not None
            ready.register(process.stdout, selectors.EVENT_READ)
            failure = None
            # A child process of git may keep the pipe open after git was killed.
            while failure is None:
                if not ready.select(max(0, deadline - time.monotonic())):
                    failure = f"fatal: git took longer than {seconds:g} s"
                elif not (part := os.read(process.stdout.fileno(), 1 << 20)):
                    break
                elif len(output) + len(part) > max_bytes:
                    failure = f"fatal: git printed more than {max_bytes:,} bytes"
                else:
                    output += part
            if failure is not None:
                process.kill()
                return GitResult(-1, b"", failure.encode())
        errors.seek(0)
        return GitResult(process.returncode, bytes(output), errors.read(1 << 16))

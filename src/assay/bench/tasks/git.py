"""Git, run so that nothing but what is named here decides what it does.

`trusted_git` reads no configuration of the user, the machine or an agent, and is never given
an agent's folder to look at. `host_git` is the user's own git, for repositories of the user's
and for the network.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from assay.errors import UsageError

__all__ = ["ATTRIBUTES", "GitEnd", "first_line", "host_git", "trusted_git"]

ATTRIBUTES = "* -text !eol !ident !filter !working-tree-encoding !diff !merge !export-ignore\n"
"""For `info/attributes`, which counts before every `.gitattributes`: bytes stay as they are."""
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    # Names that other systems forbid are names here; `.git` itself is never written.
    "core.protectNTFS": "false",
    "core.protectHFS": "false",
    "gc.auto": "0",
    "pack.threads": "1",
}
_SECONDS = 120


class GitEnd(NamedTuple):
    """How a git command ended."""

    code: int
    """-1 if it took too long."""
    output: bytes
    errors: bytes


def trusted_git(
    git_dir: Path,
    *arguments: str,
    stdin: bytes = b"",
    variables: Mapping[str, str] | None = None,
    seconds: float = _SECONDS,
) -> GitEnd:
    """Run git on a git directory of ours, without any configuration but that in it."""
    settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
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
        **(variables or {}),
    }
    return _run(["git", *settings, *arguments], git_dir, environment, stdin, seconds)


def host_git(folder: Path, *arguments: str, seconds: float = _SECONDS) -> GitEnd:
    """Run the user's git in a folder; it asks no questions."""
    # GIT_DIR and its kin would make git answer for another repository.
    kept = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    environment = {**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", *arguments]
    return _run(command, folder, environment, b"", seconds)


def first_line(errors: bytes) -> str:
    """What git said was wrong, in one line."""
    lines = [line for line in errors.decode("utf-8", "replace").splitlines() if line.strip()]
    wrong = [line for line in lines if line.startswith(("error:", "fatal:"))] or lines
    return wrong[0].partition(": ")[2] or wrong[0] if wrong else "git did not say why"


def _run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stdin: bytes,
    seconds: float,
) -> GitEnd:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=dict(environment),
            input=stdin,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise UsageError(f"no folder {str(folder)!r}; name one that exists") from error
        raise UsageError("no program 'git'; install git, then try again") from error
    except subprocess.TimeoutExpired:
        return GitEnd(-1, b"", f"fatal: git took longer than {seconds:g} s".encode())
    return GitEnd(done.returncode, done.stdout, done.stderr)

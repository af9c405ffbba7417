"""Paths inside a task: relative and without `..`.

A path is text with `/` between its parts. Bytes of a name that are no UTF-8 are kept as
Python's file functions keep them.
"""

import re
from pathlib import PurePosixPath

__all__ = ["is_git_path", "path_problem"]


def path_problem(path: str, *, in_repository: bool = False) -> str | None:
    """What is wrong with a path that must stay inside its folder; None if nothing is."""
    parts = path.split("/")
    if not path or "\0" in path:
        return "a path has at least one character, and no NUL"
    if path.startswith("/") or re.match(r"[A-Za-z]:[\\/]", path):
        return "a path is relative to its folder, not absolute"
    if ".." in parts:
        return "a path stays in its folder, without '..'"
    if str(PurePosixPath(path)) != path:
        return "a path is written plainly, such as 'src/app.py'"
    if in_repository and is_git_path(path):
        return "a path does not lead into '.git'"
    return None


def is_git_path(path: str) -> bool:
    """Whether a path is, or lies in, something that git takes for its own folder."""
    return any(part.lower() == ".git" for part in path.split("/"))

"""What made an artifact: the version of assay, its commit, the user's, and what it ran on."""

import os
import platform
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import Any, Final

from assay._version import __version__
from assay.core.git import WorkingCopy, has_changes, working_copy

_ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Provenance:
    """The versions that matter when an artifact is to be made again."""

    assay: str
    """The version of assay."""
    commit: str | None
    """The commit of the checkout assay runs from; None if it runs from no checkout."""
    dirty: bool
    """Whether that checkout had changes that are not in the commit."""
    python: str
    numpy: str
    numba: str
    project_commit: str | None = None
    """The commit of the user's repository: that of the working directory, if it is another."""
    project_dirty: bool = False
    """Whether files that it keeps were changed since; new files do not count, for runs and
    databases are such."""

    def record(self) -> dict[str, Any]:
        """Return it to be stored, without the repository of the user where there is none."""
        values = asdict(self)
        if self.project_commit is None:
            del values["project_commit"], values["project_dirty"]
        return values

    @property
    def project(self) -> str | None:
        """The commit of the user's repository in words, if there is one."""
        if self.project_commit is None:
            return None
        return f"{self.project_commit[:12]}{', changed since' if self.project_dirty else ''}"

    def __str__(self) -> str:
        """Return everything in one line."""
        where = ""
        if self.commit is not None:
            where = f" (commit {self.commit[:12]}{', changed since' if self.dirty else ''})"
        own = "" if self.project is None else f" in a project at commit {self.project},"
        return (
            f"assay {self.assay}{where},{own}"
            f" python {self.python}, numpy {self.numpy}, numba {self.numba}"
        )


def provenance() -> Provenance:
    """Return what this process runs, and where: asked once, then remembered."""
    try:
        commit, dirty = _project(os.getcwd())
    except FileNotFoundError:  # the working directory was removed
        commit, dirty = None, False
    return replace(_assay(), project_commit=commit, project_dirty=dirty)


@cache
def _assay() -> Provenance:
    # An installed copy may lie inside somebody else's repository, whose commit says
    # nothing about assay: only a repository with our root is ours.
    copy = _copy(_ROOT)
    if copy is not None and copy.root != _ROOT:
        copy = None
    return Provenance(
        assay=__version__,
        commit=None if copy is None else copy.commit,
        dirty=copy is not None and has_changes(copy, untracked=True),
        python=platform.python_version(),
        numpy=version("numpy"),
        numba=version("numba"),
    )


@cache
def _project(folder: str) -> tuple[str | None, bool]:
    """The commit of a folder's repository, unless it is assay's own, and whether it changed."""
    copy = _copy(Path(folder))
    if copy is None or copy.root == _ROOT:
        return None, False
    return copy.commit, has_changes(copy, untracked=False)


def _copy(folder: Path) -> WorkingCopy | None:
    """The working copy that a folder is in, if it has a commit and there is a git."""
    copy = working_copy(folder)
    return None if copy is None or copy.commit is None or which("git") is None else copy

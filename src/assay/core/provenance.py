"""Provenance of an artifact: version and commit of assay, the user's commit, libraries."""

import os
import platform
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import Any, Final

from assay._version import __version__
from assay.core.git import WorkingCopy, find_working_copy, has_changes

_ROOT: Final = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Provenance:
    """The versions needed to reproduce an artifact."""

    assay: str
    """The version of assay."""
    commit: str | None
    """The commit of the checkout assay runs from; None if it does not run from a checkout."""
    dirty: bool
    """Whether that checkout had uncommitted changes."""
    python: str
    numpy: str
    numba: str
    project_commit: str | None = None
    """The commit of the user's repository: the one of the working directory, if not assay's."""
    project_dirty: bool = False
    """Whether tracked files in it were changed since; new files are ignored, because runs and
    databases are new files."""

    def record(self) -> dict[str, Any]:
        """Return the values to store; the user's repository is omitted if there is none."""
        values = asdict(self)
        if self.project_commit is None:
            del values["project_commit"], values["project_dirty"]
        return values

    @property
    def project(self) -> str | None:
        """The commit of the user's repository as text, if there is one."""
        if self.project_commit is None:
            return None
        return f"{self.project_commit[:12]}{', changed since' if self.project_dirty else ''}"

    def __str__(self) -> str:
        commit = ""
        if self.commit is not None:
            commit = f" (commit {self.commit[:12]}{', changed since' if self.dirty else ''})"
        project = "" if self.project is None else f" in a project at commit {self.project},"
        return (
            f"assay {self.assay}{commit},{project}"
            f" python {self.python}, numpy {self.numpy}, numba {self.numba}"
        )


def collect_provenance() -> Provenance:
    """Return the provenance of this process; values are cached."""
    try:
        commit, dirty = _find_project_commit(os.getcwd())
    except FileNotFoundError:  # the working directory was removed
        commit, dirty = None, False
    return replace(_read_assay_versions(), project_commit=commit, project_dirty=dirty)


@cache
def _read_assay_versions() -> Provenance:
    # An installed copy may be inside another repository, whose commit is not assay's: only a
    # repository with assay's root counts.
    copy = _find_working_copy(_ROOT)
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
def _find_project_commit(folder: str) -> tuple[str | None, bool]:
    """Return a folder's commit and whether files changed; (None, False) for assay's own."""
    copy = _find_working_copy(Path(folder))
    if copy is None or copy.root == _ROOT:
        return None, False
    return copy.commit, has_changes(copy, untracked=False)


def _find_working_copy(folder: Path) -> WorkingCopy | None:
    """Return the working copy of a folder, if it has a commit and git is installed."""
    copy = find_working_copy(folder)
    return None if copy is None or copy.commit is None or which("git") is None else copy

"""What made an artifact: the version of assay, its commit, and what it ran on."""

import os
import platform
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from assay import __version__

__all__ = ["Provenance", "provenance"]


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

    def __str__(self) -> str:
        """Return everything in one line."""
        where = ""
        if self.commit is not None:
            where = f" (commit {self.commit[:12]}{', changed since' if self.dirty else ''})"
        return (
            f"assay {self.assay}{where},"
            f" python {self.python}, numpy {self.numpy}, numba {self.numba}"
        )


@cache
def provenance() -> Provenance:
    """Return what this process runs: asked once, then remembered."""
    root = Path(__file__).resolve().parents[3]
    commit = _commit(root)
    return Provenance(
        assay=__version__,
        commit=commit,
        dirty=commit is not None and bool(_git(root, "status", "--porcelain")),
        python=platform.python_version(),
        numpy=version("numpy"),
        numba=version("numba"),
    )


def _commit(root: Path) -> str | None:
    # An installed copy may lie inside somebody else's repository, whose commit says
    # nothing about assay: only a repository with our root is ours.
    top = _git(root, "rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != root:
        return None
    return _git(root, "rev-parse", "--verify", "--quiet", "HEAD") or None


def _git(root: Path, *arguments: str) -> str | None:
    # GIT_DIR and its kin would make git answer for another repository.
    environment = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None

"""The program, as a user starts it."""

import subprocess
import sys
from pathlib import Path

__all__ = ["assay"]

_PATIENCE_S = 600


def assay(place: Path, *words: str) -> str:
    """What a command prints, run in a folder; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "assay", *words],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

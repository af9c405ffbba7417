"""Where what can be made again is kept: installed agents, built images."""

import os
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """`$ASSAY_CACHE_DIR`, or the folder of this user."""
    chosen = os.environ.get("ASSAY_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else user_cache_path("assay")

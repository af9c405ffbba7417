"""Where the store is if nobody says otherwise."""

import os
from pathlib import Path
from typing import Final

__all__ = ["DATABASE_VARIABLE", "DEFAULT_DATABASE", "default_database"]

DEFAULT_DATABASE: Final = Path("crafter_multi_model_traces.duckdb")
"""The store of a directory."""
DATABASE_VARIABLE: Final = "ASSAY_DATABASE"
"""The environment variable that names another one."""


def default_database() -> Path:
    """The store that the environment names, else the one of the working directory."""
    return Path(os.environ.get(DATABASE_VARIABLE) or DEFAULT_DATABASE)

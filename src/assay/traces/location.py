"""Where the store is if nobody says otherwise."""

from pathlib import Path
from typing import Final

__all__ = ["DATABASE_VARIABLE", "DEFAULT_DATABASE"]

DEFAULT_DATABASE: Final = Path("crafter_multi_model_traces.duckdb")
"""The store of a directory."""
DATABASE_VARIABLE: Final = "ASSAY_DATABASE"
"""The environment variable that names another one."""

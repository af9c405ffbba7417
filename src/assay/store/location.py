"""Path of the database file, and its default."""

import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from assay.core.text import shown
from assay.errors import UsageError

DEFAULT_DATABASE: Final = Path("crafter_multi_model_traces.duckdb")
"""Default database, in the working directory."""
DATABASE_VARIABLE: Final = "ASSAY_DATABASE"
"""Environment variable that sets another default."""

_NO_FILE = re.compile(r":memory:|[A-Za-z][A-Za-z0-9+.-]+:")
"""Prefixes that DuckDB, or a person, does not read as a file name."""


def default_database() -> Path:
    """Return the database named by the environment, or the one in the working directory."""
    return Path(os.environ.get(DATABASE_VARIABLE) or DEFAULT_DATABASE)


def database_file(path: Path) -> Path:
    """Resolve the links of a database path.

    Raises:
        UsageError: The path cannot be a database file.
    """
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        reason = "it is not valid UTF-8"
    else:
        reason = "it is not the path of a file" if _NO_FILE.match(text) else ""
    if not reason:
        try:
            with suppress(FileNotFoundError, NotADirectoryError):
                path.stat()  # since Python 3.13, `resolve` raises no error for circular links
            if path.name in ("", "..") or path.is_dir():
                reason = "it is a folder"
            elif path.exists() and not path.is_file():
                reason = "it is not a regular file"
            elif path.is_symlink() and not path.resolve().parent.is_dir():
                reason = "it is a link into a folder that does not exist"
            else:
                return path.resolve()
        except (OSError, ValueError) as error:
            loop = getattr(error, "errno", 0) == errno.ELOOP
            reason = "its links are circular" if loop else str(error)
    raise UsageError(
        f"{shown(text, 500)} cannot be a database: {reason}; give a file with "
        "--database, such as traces.duckdb"
    )

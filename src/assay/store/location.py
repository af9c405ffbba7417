"""Where the store is if nobody says otherwise."""

import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from assay.core.text import shown
from assay.errors import UsageError

DEFAULT_DATABASE: Final = Path("crafter_multi_model_traces.duckdb")
"""The store of a directory."""
DATABASE_VARIABLE: Final = "ASSAY_DATABASE"
"""The environment variable that names another one."""

_NO_FILE = re.compile(r":memory:|[A-Za-z][A-Za-z0-9+.-]+:")
"""How names begin that DuckDB, or a person, takes for something else than a file."""


def default_database() -> Path:
    """The store that the environment names, else the one of the working directory."""
    return Path(os.environ.get(DATABASE_VARIABLE) or DEFAULT_DATABASE)


def database_file(path: Path) -> Path:
    """The file that a path stands for.

    Raises:
        UsageError: It is not the path of a file.
    """
    text = str(path)
    try:
        text.encode()
    except UnicodeEncodeError:
        reason = "it has bytes that are no text in UTF-8"
    else:
        reason = "it is not the path of a file" if _NO_FILE.match(text) else ""
    if not reason:
        try:
            with suppress(FileNotFoundError, NotADirectoryError):
                path.stat()  # from Python 3.13 on, `resolve` follows a circle without an error
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
            reason = "its links lead in a circle" if loop else str(error)
    raise UsageError(
        f"{shown(text, 500)} cannot be a database: {reason}; name a file with "
        "--database, such as traces.duckdb"
    )

"""`assay init`: a configuration file to start from."""

import os
import shlex
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from assay.cli.output import Show, say, say_json
from assay.errors import OutputError, UsageError

__all__ = ["init"]


def init(
    path: Path = Path("assay.toml"),
    /,
    *,
    force: Annotated[bool, Parameter(negative="")] = False,
    show: Show = Show(),
) -> int:
    """Write a configuration file with every setting, its default and allowed values.

    Every line is commented out: remove the '#' in front of a setting to change it.

    For example:

        assay init assay.toml

    Args:
        path: The file to write.
        force: Replace the file if there is one.
        show: What to print.
    """
    from assay import api

    _write(path, api.config_template(), replace=force)
    if show.json:
        say_json({"file": str(path)})
    elif show.quiet:
        say(str(path))
    else:
        say(f"wrote {path}: every setting with its default, commented out")
        say(f"next: edit it, then assay run --config {shlex.quote(str(path))}")
    return 0


def _write(path: Path, text: str, *, replace: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{str(path)!r} is a directory; name a file in it")
    # Opened so that a file that appears in between is not lost either.
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if replace else os.O_EXCL)
    try:
        with open(os.open(path, flags, 0o644), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(
            f"{str(path)!r} exists; --force replaces it, or name another file"
        ) from error
    except FileNotFoundError as error:
        raise UsageError(
            f"cannot write {str(path)!r}: there is no directory {str(path.parent)!r}; "
            "make it, or name another file"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}") from error

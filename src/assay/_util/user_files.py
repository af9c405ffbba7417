"""Python files of a user, run once to take what they define.

Running a file is what an import would do. What is wrong with it is a UsageError that names
the file, the line and what is expected.
"""

import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from assay._util.canonical import content_hash
from assay._util.user_threads import contained, no_exit
from assay.errors import UsageError

__all__ = ["UserCode", "line_in", "run_user_file"]


class UserCode(NamedTuple):
    """What a file came to."""

    names: Mapping[str, object]
    """All that stands at its top level, in the order it was defined."""
    sha: str
    """A hash of its text."""

    @property
    def values(self) -> tuple[object, ...]:
        """The same without names, each thing once."""
        # It may stand under two names, and not all things can be hashed.
        return tuple({id(value): value for value in self.names.values()}.values())


def run_user_file(path: Path, what: str) -> UserCode:
    """Run a file; `what` is what it is expected to define, in the plural."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read {what} from {str(path)!r}: {error.strerror or error}; "
            f"give a Python file that has {what}"
        ) from error
    sha = content_hash(source)
    module = _run(path, _compiled(path, source), what, f"assay_{what}_{sha}")
    return UserCode(vars(module), sha)


def line_in(error: BaseException, path: str) -> int | None:
    """The line of a file that an error came through last, if it came through the file."""
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return next((line for line in reversed(lines) if line), None)


def _print(line: str) -> None:
    print(line, file=sys.stderr)


def _compiled(path: Path, source: bytes) -> CodeType:
    try:
        return compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise UsageError(f"{where}: not valid Python: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not valid Python: {error}") from error


def _run(path: Path, code: CodeType, what: str, name: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    # Dataclasses and pickle look up the module of a class by its name.
    sys.modules[name] = module
    here = os.getcwd()
    try:
        with contained(_print), no_exit(path.name):
            exec(code, module.__dict__)
    except KeyboardInterrupt as error:
        # Ctrl-C, or the file raised it: whoever waited wants to know for what.
        where = f"{path}:{line_in(error, str(path)) or 1}"
        _print(f"interrupted at {where}, while its {what} were loaded")
        raise
    except BaseException as error:
        del sys.modules[name]
        where = f"{path}:{line_in(error, str(path)) or 1}"
        if isinstance(error, UsageError):
            raise UsageError(f"{where}: {error}") from error
        words = f"{type(error).__name__} while its {what} were loaded: {error}"
        raise UsageError(f"{where}: {words}") from error
    finally:
        os.chdir(here)
    return module

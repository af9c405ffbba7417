"""Hooks from outside: a user's Python file, and installed packages.

Loading a file runs it. What is wrong with one is a UsageError that names the file, the line
and what is expected; it is never found out in the middle of an episode.
"""

import sys
import traceback
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from assay._util.canonical import canonical_json, content_hash
from assay.errors import UsageError

from .builtin_hooks import DEFAULT_HOOKS
from .hooks import Hook, hook_problem, is_marked

__all__ = ["ENTRY_POINTS", "HookSet", "gather_hooks", "installed_hooks", "load_hooks"]

ENTRY_POINTS: Final = "assay.hooks"
"""The group of entry points in which packages offer hooks, a class each."""


@dataclass(frozen=True, slots=True)
class HookSet:
    """Hooks that belong together, and what tells them from others."""

    classes: tuple[type[Hook], ...]
    sha: str
    """A hash of where they come from: it changes when a file or a package does."""

    def __add__(self, other: "HookSet") -> "HookSet":
        """Both sets, each class once."""
        joined = content_hash(canonical_json([self.sha, other.sha]))
        return HookSet(tuple(dict.fromkeys((*self.classes, *other.classes))), joined)


def gather_hooks(path: Path | None = None) -> HookSet:
    """All hooks of a run: the built-in ones, the installed ones, those of a file."""
    found = HookSet(DEFAULT_HOOKS, content_hash(b"builtin")) + installed_hooks()
    return found if path is None else found + load_hooks(path)


def load_hooks(path: Path) -> HookSet:
    """Run a Python file and take the classes it marked with `@hook`, in their order."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read hooks from {str(path)!r}: {error.strerror or error}; "
            "give a Python file that has hooks"
        ) from error
    sha = content_hash(source)
    values = vars(_run(path, _compiled(path, source), f"assay_hooks_{sha}")).values()
    # The same class may stand under two names.
    classes = tuple(dict.fromkeys(value for value in values if is_marked(value)))
    if not classes:
        raise UsageError(
            f"{str(path)!r} has no hooks; put '@hook' of assay.metrics above a class "
            "with on_step(self, seen) and on_turn(self, played)"
        )
    return HookSet(classes, sha)


def _compiled(path: Path, source: bytes) -> CodeType:
    try:
        return compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise UsageError(f"{where}: not valid Python: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not valid Python: {error}") from error


def _run(path: Path, code: CodeType, name: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    # Dataclasses and pickle look up the module of a class by its name.
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        where = f"{path}:{_line(error, str(path))}"
        if isinstance(error, UsageError):
            raise UsageError(f"{where}: {error}") from error
        words = f"{type(error).__name__} while its hooks were loaded: {error}"
        raise UsageError(f"{where}: {words}") from error
    return module


def _line(error: BaseException, path: str) -> int:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path]
    return next((line for line in reversed(lines) if line), 1)


def installed_hooks() -> HookSet:
    """The hooks that installed packages offer as entry points of `assay.hooks`."""
    found = sorted(
        entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)
    )
    made_of = [
        [point.name, point.value, point.dist.version if point.dist else None] for point in found
    ]
    return HookSet(
        tuple(_offered(point) for point in found), content_hash(canonical_json(made_of))
    )


def _offered(point: EntryPoint) -> type[Hook]:
    where = f"entry point {point.name!r} of {ENTRY_POINTS!r} ({point.value})"
    owner = f"; update or remove the package {point.dist.name!r}" if point.dist else ""
    try:
        kind: Any = point.load()
    except Exception as error:
        raise UsageError(f"{where}: {type(error).__name__}: {error}{owner}") from error
    problem = hook_problem(kind)
    if problem:
        raise UsageError(f"{where}: {problem}{owner}")
    return kind  # type: ignore[no-any-return]

"""Hooks from outside: a user's Python file, and installed packages.

Loading a file runs it. What is wrong with one is a UsageError that names the file, the line
and what is expected; it is never found out in the middle of an episode.
"""

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final

from assay._util.canonical import canonical_json, content_hash
from assay._util.user_files import run_user_file
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
    code = run_user_file(path, "hooks")
    classes: list[Any] = [value for value in code.values if is_marked(value)]
    if not classes:
        raise UsageError(
            f"{str(path)!r} has no hooks; put '@hook' of assay.metrics above a class "
            "with on_step(self, seen) and on_turn(self, played)"
        )
    return HookSet(tuple(classes), code.sha)


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

"""Loading of hooks, and calls to the hooks of one episode, with checked results.

All results can be stored: they are typed, bounded, and equal to what is read back from the
database. A hook that raises or returns an invalid result causes a HookError.

Hooks come from a user's Python file and from installed packages. Loading a file runs it. An
invalid file raises UsageError with the file, the line and the expected content, before any
episode starts.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Final, TypeVar

from assay.core.canonical_json import canonical_json, content_hash
from assay.core.text import shown
from assay.core.user_code import run_user_file
from assay.episodes.hooks import DEFAULT_HOOKS, Hook, StepSeen, find_hook_problem, is_marked
from assay.errors import HookError, UsageError
from assay.store.records import HookRecord, PlayedRecord

MAX_DATA = 16_384
"""Maximum size of the data of one result as JSON, in bytes."""
MAX_RESULTS = 100
"""Maximum number of results per call of a hook."""
_MAX_NAME = 100
_MAX_DESCRIPTION = 1_000
_MAX_PRIORITY = 1_000

_T = TypeVar("_T")


class Watch:
    """Runs the hooks of one episode; call `step` after each step, then `turn`."""

    def __init__(self, classes: Sequence[type[Hook]] = DEFAULT_HOOKS) -> None:
        self._hooks = [
            (_call_guarded(kind, "__init__", kind), kind in DEFAULT_HOOKS) for kind in classes
        ]

    def step(self, seen: StepSeen) -> list[HookRecord]:
        """Return the results of the hooks for a step."""
        results: list[HookRecord] = []
        for hook, is_trusted in self._hooks:
            # Built-in hooks are tested, and checking their results would cost more than running
            # them.
            if is_trusted:
                results.extend(hook.on_step(seen))
            else:
                results += _call_hook(hook, "on_step", hook.on_step, seen, (seen.step.index,))
        return results

    def turn(self, played: PlayedRecord) -> list[HookRecord]:
        """Return the results of the hooks for a turn; `played` has no results yet."""
        results: list[HookRecord] = []
        for hook, is_trusted in self._hooks:
            if is_trusted:
                results.extend(hook.on_turn(played))
            else:
                steps = (
                    range(played.steps[0].index, played.steps[-1].index + 1)
                    if played.steps
                    else ()
                )
                results += _call_hook(hook, "on_turn", hook.on_turn, played, steps)
        return results


def _call_guarded(kind: type, method: str, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except HookError:
        raise
    except Exception as error:
        raise HookError(
            f"hook {kind.__name__!r} raised {type(error).__name__} in {method}: {error}"
        ) from error


def _call_hook(
    hook: Hook,
    method: str,
    function: Callable[[_T], Iterable[HookRecord]],
    argument: _T,
    steps: Collection[int],
) -> list[HookRecord]:
    kind = type(hook)

    def collect_results() -> list[HookRecord]:
        # A generator runs here, not when it is created; an endless one is cut off.
        records: list[HookRecord] = []
        returned: Any = function(argument)
        if (
            returned is None
            or isinstance(returned, (str, Mapping))
            or not isinstance(returned, Iterable)
        ):
            raise _make_error(
                kind, method, f"{shown(returned)} instead of a list of HookRecord"
            )
        for number, result in enumerate(returned):
            if number == MAX_RESULTS:
                raise _make_error(kind, method, f"more than {MAX_RESULTS} results at once")
            records.append(_check_result(kind, method, result, steps))
        return records

    return _call_guarded(kind, method, collect_results)


def _check_result(
    kind: type, method: str, result: object, steps: Collection[int]
) -> HookRecord:
    """Return the result as it will be read back; raise HookError if it is invalid."""
    if not isinstance(result, HookRecord):
        raise _make_error(kind, method, f"{shown(result)}, which is not a HookRecord")
    problem = _find_problem(result, steps)
    if problem:
        raise _make_error(kind, method, problem)
    try:
        encoded = canonical_json([result.name, result.code, result.description, result.data])
    except (TypeError, ValueError, RecursionError) as error:
        raise _make_error(kind, method, f"data that is not JSON: {error}") from error
    if len(encoded) > MAX_DATA:
        problem = f"{len(encoded)} bytes of data; at most {MAX_DATA} are kept"
        raise _make_error(kind, method, problem)
    name, code, description, data = json.loads(encoded)
    return replace(result, name=name, code=code, description=description, data=data)


def _find_problem(result: HookRecord, steps: Collection[int]) -> str | None:
    name, code, priority, text = result.name, result.code, result.priority, result.description
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        return f"name {shown(name)}; give 1 to {_MAX_NAME} characters"
    if not isinstance(code, str) or len(code) != 1 or not code.isprintable():
        return f"code {shown(code)}; give one character"
    if type(priority) is not int or abs(priority) > _MAX_PRIORITY:
        return f"priority {shown(priority)}; give an int up to {_MAX_PRIORITY}"
    if result.step is not None and (type(result.step) is not int or result.step not in steps):
        return f"step {shown(result.step)}; give the index of a step of this turn, or None"
    if not isinstance(text, str) or len(text) > _MAX_DESCRIPTION:
        return f"description {shown(text)}; give at most {_MAX_DESCRIPTION} characters"
    if not isinstance(result.data, Mapping):
        return f"data {shown(result.data)}; give a dictionary"
    return None


def _make_error(kind: type, method: str, problem: str) -> HookError:
    return HookError(f"hook {kind.__name__!r}: {method} returned {problem}")


ENTRY_POINTS: Final = "assay.hooks"
"""Entry point group in which packages offer hooks, one class each."""


@dataclass(frozen=True, slots=True)
class HookSet:
    """A set of hooks, with a hash that identifies it."""

    classes: tuple[type[Hook], ...]
    sha: str
    """Hash of their sources; it changes with a file or a package version."""

    def __add__(self, other: "HookSet") -> "HookSet":
        """Return the union of both sets, each class once."""
        combined_hash = content_hash(canonical_json([self.sha, other.sha]))
        return HookSet(tuple(dict.fromkeys((*self.classes, *other.classes))), combined_hash)


def gather_hooks(path: Path | None = None) -> HookSet:
    """Return the built-in hooks, the installed hooks, and those of a file."""
    hooks = HookSet(DEFAULT_HOOKS, content_hash(b"builtin")) + installed_hooks()
    return hooks if path is None else hooks + load_hooks(path)


def load_hooks(path: Path) -> HookSet:
    """Run a Python file, and return the classes it marked with `@hook`, in order."""
    code = run_user_file(path, "hooks")
    classes: list[Any] = [value for value in code.values if is_marked(value)]
    if not classes:
        raise UsageError(
            f"{str(path)!r} has no hooks; put '@hook' of assay.metrics above a class "
            "with on_step(self, seen) and on_turn(self, played)"
        )
    return HookSet(tuple(classes), code.sha)


def installed_hooks() -> HookSet:
    """Return the hooks that installed packages offer as `assay.hooks` entry points."""
    points = sorted(
        entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)
    )
    sources = [
        [point.name, point.value, point.dist.version if point.dist else None]
        for point in points
    ]
    return HookSet(
        tuple(_load_entry_point(point) for point in points),
        content_hash(canonical_json(sources)),
    )


def _load_entry_point(point: EntryPoint) -> type[Hook]:
    origin = f"entry point {point.name!r} of {ENTRY_POINTS!r} ({point.value})"
    advice = f"; update or remove the package {point.dist.name!r}" if point.dist else ""
    try:
        kind: Any = point.load()
    except Exception as error:
        raise UsageError(f"{origin}: {type(error).__name__}: {error}{advice}") from error
    problem = find_hook_problem(kind)
    if problem:
        raise UsageError(f"{origin}: {problem}{advice}")
    return kind  # type: ignore[no-any-return]

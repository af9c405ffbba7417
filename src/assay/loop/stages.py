"""Stages one after the other; what was done with the same inputs is not done again.

The key of a stage is a hash of its settings and of what the stage before it came to. A
notebook beside the results says which keys are done, and with what. Each line of it is there
whole or not at all, so that a loop that was killed resumes with the stage it was in.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from assay._util.canonical import canonical_json, content_hash
from assay._util.files import atomic_write
from assay.errors import AssayError, UsageError

__all__ = ["Notebook", "Stage", "StageDone", "StageEvent", "done_before", "run_stages"]

_FORMAT: Final = "assay-loop/1"
Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a loop."""

    name: str
    about: str
    """What happens, for whoever waits."""
    settings: Mapping[str, Any]
    """What decides its result, beside what came before."""
    work: Callable[[str, Mapping[str, Result]], Result]
    """Takes its key and the results so far; returns its own, as JSON has it."""
    is_there: Callable[[Result], bool] = lambda result: True
    """Whether what it made is still where it was."""


class StageDone(NamedTuple):
    """What a stage came to."""

    name: str
    key: str
    result: Result
    seconds: float
    at: float
    """When it ended, in seconds since 1970."""


class StageEvent(NamedTuple):
    """Something happened to a stage."""

    stage: Stage
    number: int
    """Counted from 1."""
    of: int
    done: StageDone | None = None
    """None when it begins."""
    kept: bool = False
    """Whether it was done before."""


class Notebook:
    """What is done, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: dict[str, StageDone] = {}
        if path.exists():
            try:
                told = json.loads(path.read_bytes())
                if told["format"] != _FORMAT:
                    raise ValueError(f"its format is {told['format']!r}")
                self._done = {each["key"]: StageDone(**each) for each in told["done"]}
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise UsageError(
                    f"{path} is no notebook of a loop: {error}; remove it to begin anew, or"
                    " name another folder"
                ) from error

    def find(self, key: str) -> StageDone | None:
        """What a key came to, if that is done."""
        return self._done.get(key)

    def latest(self, stage: str) -> StageDone | None:
        """What a stage came to last, with any settings."""
        done = [each for each in self._done.values() if each.name == stage]
        return max(done, key=lambda each: each.at, default=None)

    def keep(self, done: StageDone) -> None:
        """Note that a stage is done."""
        self._done[done.key] = done
        told = {"format": _FORMAT, "done": [each._asdict() for each in self._done.values()]}
        atomic_write(self._path, canonical_json(told))


def run_stages(
    stages: Sequence[Stage], notebook: Notebook, listen: Callable[[StageEvent], None]
) -> dict[str, StageDone]:
    """Do all stages that are not done, in their order.

    Raises:
        AssayError: A stage failed; a note says which. The same call resumes it.
    """
    results: dict[str, StageDone] = {}
    for number, (stage, key) in enumerate(_keys(stages, results), 1):
        event = StageEvent(stage, number, len(stages))
        known = notebook.find(key)
        if known is not None and stage.is_there(known.result):
            results[stage.name] = known
            listen(event._replace(done=known, kept=True))
            continue
        listen(event)
        began = time.monotonic()
        try:
            result = stage.work(key, {name: done.result for name, done in results.items()})
        except AssayError as error:
            error.add_note(f"in stage {number} of {len(stages)}, {stage.name}")
            raise
        done = StageDone(stage.name, key, result, time.monotonic() - began, time.time())
        notebook.keep(done)
        results[stage.name] = done
        listen(event._replace(done=done))
    return results


def done_before(stages: Sequence[Stage], notebook: Notebook) -> dict[str, StageDone]:
    """The first stages, as far as they need not be done again."""
    results: dict[str, StageDone] = {}
    for stage, key in _keys(stages, results):
        known = notebook.find(key)
        if known is None or not stage.is_there(known.result):
            break
        results[stage.name] = known
    return results


def _keys(
    stages: Sequence[Stage], results: Mapping[str, StageDone]
) -> Iterator[tuple[Stage, str]]:
    """Each stage with its key, which can be known once the stage before it is done."""
    before: Any = None
    for stage in stages:
        key = content_hash(canonical_json([_FORMAT, stage.name, stage.settings, before]))
        yield stage, key
        before = [key, results[stage.name].result]

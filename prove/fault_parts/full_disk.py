"""A disk that is full, in bytes or in files: an error in words, and a resume loses nothing.

The run works on a small file system in memory, which grows before it is resumed; where none
can be mounted, files have a largest size instead.
"""

import random
import resource
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.runs.tables import calls_at, contents
from tests.runs.test_kills import RUN, journaled

from .processes import code_of, printed, start_assay
from .tried import Tried, times

__all__ = ["attack"]

_TRIES = 10
_KIB = 1024
_WHOLE = {"size": "64m", "nr_inodes": "10000"}
"""More room than the run needs."""


def attack(folder: Path, chance: random.Random) -> Iterator[Tried]:
    """Sizes from nothing at all to nearly enough."""
    plain = folder / "plain"
    (plain / "disk").mkdir(parents=True)
    if code_of(_started(plain)):
        raise RuntimeError(f"the run in peace failed: {printed(plain)}")
    undisturbed = contents(plain / "disk" / "traces.duckdb")
    with _mounted(folder / "mounted", _WHOLE) as can_mount:
        pass
    if can_mount:
        yield _full(
            "no room for more bytes",
            folder / "bytes",
            lambda: {**_WHOLE, "size": f"{chance.randrange(16, 3000)}k"},
            undisturbed,
        )
        yield _full(
            "no room for more files",
            folder / "files",
            lambda: {**_WHOLE, "nr_inodes": str(chance.randrange(3, 40))},
            undisturbed,
        )
    limited = Tried("files with a largest size")
    stopped = 0
    for number in times(_TRIES // 2):
        most = chance.randrange(4, 2000) * _KIB
        where = folder / f"limited-{number}"
        (where / "disk").mkdir(parents=True)
        found = _lost(where, undisturbed, partial(_limit, most), lambda: None)
        stopped += found.stopped
        limited.count(found.lost and f"{most} bytes: {found.lost}")
    limited.note = f"{stopped} were stopped; the same"
    yield limited


def _full(
    attack: str, folder: Path, choose: Callable[[], Mapping[str, str]], undisturbed: object
) -> Tried:
    folder.mkdir()
    tried = Tried(attack)
    stopped = 0
    for number in times(_TRIES):
        where, options = folder / str(number), choose()
        where.mkdir()
        with _mounted(where / "disk", options):
            grow = partial(_mount, where / "disk", {**_WHOLE, "remount": ""})
            found = _lost(where, undisturbed, None, grow)
        stopped += found.stopped
        tried.count(found.lost and f"{dict(options)}: {found.lost}")
    tried.note = f"{stopped} were stopped; in words, and resumed with equal tables"
    return tried


class _Found(NamedTuple):
    lost: str
    stopped: bool
    """Whether there was too little room for it."""


def _lost(
    folder: Path,
    undisturbed: object,
    first: Callable[[], None] | None,
    grow: Callable[[], object],
) -> _Found:
    """What a run lost that could not write all it had to."""
    code = code_of(_started(folder, first))
    if code is None:
        return _Found("it hangs", True)
    said = printed(folder).strip()
    if "Traceback" in said or (code and not said):
        return _Found(f"exit code {code}, {said[-300:] or 'not a word'}", True)
    grow()
    return _Found(_lost_after(folder, undisturbed, resume=code != 0), code != 0)


def _lost_after(folder: Path, undisturbed: object, *, resume: bool) -> str:
    disk = folder / "disk"
    before = journaled(disk)
    code = code_of(_started(folder)) if resume else 0
    # One that had stored all of it is told so, and changes nothing.
    if code and "is finished" not in printed(folder):
        return f"exit code {code} on resume: {printed(folder).strip()[-300:]}"
    if not before.items() <= calls_at(disk / "traces.duckdb").items():
        return "an answer was asked for again"
    return "" if contents(disk / "traces.duckdb") == undisturbed else "other tables"


def _started(
    folder: Path, first: Callable[[], None] | None = None
) -> "subprocess.Popen[bytes]":
    return start_assay(
        folder,
        *("run", "--models", "builtin/random", "builtin/forager", "--no-baselines"),
        *("--episodes", "8", "--max-turns", "20", "--run-id", RUN),
        *("--database", "disk/traces.duckdb", "--traces-dir", "disk/files"),
        first=first,
    )


def _limit(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


@contextmanager
def _mounted(folder: Path, options: Mapping[str, str]) -> Iterator[bool]:
    """A file system in memory; whether there is one."""
    folder.mkdir()
    is_there = _mount(folder, options)
    try:
        yield is_there
    finally:
        if is_there:
            subprocess.run(["umount", "-l", folder], check=True)


def _mount(folder: Path, options: Mapping[str, str]) -> bool:
    given = ",".join(f"{name}={value}" if value else name for name, value in options.items())
    command = ["mount", "-t", "tmpfs", "-o", given, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True).returncode == 0

"""A full disk, in bytes or in files: the run reports an error, and a resume loses nothing.

The run uses a small file system in memory, which grows before the resume; if none can be
mounted, the file size is limited instead.
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

from .processes import read_output, start_assay, wait_for_exit
from .tried import FaultRow, scaled_range

__all__ = ["attack"]

_TRIES = 10
_KIB = 1024
_AMPLE = {"size": "64m", "nr_inodes": "10000"}
"""More space than the run needs."""


def attack(folder: Path, chance: random.Random) -> Iterator[FaultRow]:
    """Run with sizes from almost none to nearly enough."""
    plain = folder / "plain"
    (plain / "disk").mkdir(parents=True)
    if wait_for_exit(_start_run(plain)):
        raise RuntimeError(f"the undisturbed run failed: {read_output(plain)}")
    undisturbed = contents(plain / "disk" / "traces.duckdb")
    with _mount_temporarily(folder / "mounted", _AMPLE) as can_mount:
        pass
    if can_mount:
        yield _fill_disk(
            "no room for more bytes",
            folder / "bytes",
            lambda: {**_AMPLE, "size": f"{chance.randrange(16, 3000)}k"},
            undisturbed,
        )
        yield _fill_disk(
            "no room for more files",
            folder / "files",
            lambda: {**_AMPLE, "nr_inodes": str(chance.randrange(3, 40))},
            undisturbed,
        )
    limited = FaultRow("a limited file size")
    stopped = 0
    for number in scaled_range(_TRIES // 2):
        max_bytes = chance.randrange(4, 2000) * _KIB
        run_folder = folder / f"limited-{number}"
        (run_folder / "disk").mkdir(parents=True)
        result = _run_on_full_disk(
            run_folder, undisturbed, partial(_limit_file_size, max_bytes), lambda: None
        )
        stopped += result.stopped
        limited.count(result.lost and f"{max_bytes} bytes: {result.lost}")
    limited.note = f"{stopped} were stopped; resumed with equal tables"
    yield limited


def _fill_disk(
    attack: str, folder: Path, choose: Callable[[], Mapping[str, str]], undisturbed: object
) -> FaultRow:
    folder.mkdir()
    row = FaultRow(attack)
    stopped = 0
    for number in scaled_range(_TRIES):
        run_folder, options = folder / str(number), choose()
        run_folder.mkdir()
        with _mount_temporarily(run_folder / "disk", options):
            grow = partial(_mount, run_folder / "disk", {**_AMPLE, "remount": ""})
            result = _run_on_full_disk(run_folder, undisturbed, None, grow)
        stopped += result.stopped
        row.count(result.lost and f"{dict(options)}: {result.lost}")
    row.note = f"{stopped} were stopped with an error message, and resumed with equal tables"
    return row


class _DiskResult(NamedTuple):
    lost: str
    stopped: bool
    """Whether the space was too small."""


def _run_on_full_disk(
    folder: Path,
    undisturbed: object,
    before_start: Callable[[], None] | None,
    grow: Callable[[], object],
) -> _DiskResult:
    """Run with too little space, then resume with enough; return what was lost."""
    code = wait_for_exit(_start_run(folder, before_start))
    if isinstance(code, str):
        return _DiskResult(code, True)
    output = read_output(folder).strip()
    if "Traceback" in output or (code and not output):
        return _DiskResult(f"exit code {code}, {output[-300:] or 'no output'}", True)
    grow()
    return _DiskResult(
        _find_losses_after_resume(folder, undisturbed, resume=code != 0), code != 0
    )


def _find_losses_after_resume(folder: Path, undisturbed: object, *, resume: bool) -> str:
    disk = folder / "disk"
    before = journaled(disk)
    code = wait_for_exit(_start_run(folder)) if resume else 0
    # A finished run cannot be resumed, and its tables stay unchanged.
    if code and "is finished" not in read_output(folder):
        return f"exit code {code} on resume: {read_output(folder).strip()[-300:]}"
    if not before.items() <= calls_at(disk / "traces.duckdb").items():
        return "a recorded call was repeated"
    return "" if contents(disk / "traces.duckdb") == undisturbed else "the tables differ"


def _start_run(
    folder: Path, before_start: Callable[[], None] | None = None
) -> "subprocess.Popen[bytes]":
    return start_assay(
        folder,
        *("run", "--models", "builtin/random", "builtin/forager", "--no-baselines"),
        *("--episodes", "8", "--max-turns", "20", "--run-id", RUN),
        *("--database", "disk/traces.duckdb", "--traces-dir", "disk/files"),
        before_start=before_start,
    )


def _limit_file_size(max_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))


@contextmanager
def _mount_temporarily(folder: Path, options: Mapping[str, str]) -> Iterator[bool]:
    """Mount a file system in memory; yield whether that succeeded."""
    folder.mkdir()
    is_mounted = _mount(folder, options)
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", folder], check=True)


def _mount(folder: Path, options: Mapping[str, str]) -> bool:
    option_text = ",".join(
        f"{name}={value}" if value else name for name, value in options.items()
    )
    command = ["mount", "-t", "tmpfs", "-o", option_text, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True).returncode == 0

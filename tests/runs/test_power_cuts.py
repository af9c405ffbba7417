"""A machine that loses power in the middle of a run keeps what was synced.

On an idle machine a second is enough for that; the test checks synced data.

The run writes to a file system image. The process is stopped, the file copied
unchanged, and the copy mounted: it does not contain data that was not synced.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from .tables import calls_at, contents
from .test_kills import journaled, start

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("compiled_engine")]

_MIB = 2**20
_TO_JOURNAL_S = 0.25
"""Much longer than the time between an answer and its line in the journal."""


class Cut(NamedTuple):
    """The result of a power cut."""

    answers: int
    """Answers that were in journals or stored at the time of the cut."""
    old: int
    """Answers of these that were older than a second."""
    lost: int
    """Lost answers of all."""
    lost_old: int
    """Lost answers of the old ones, which a machine under low load has synced."""
    synced: int
    """Answers in journals at the start of the last completed sync."""
    lost_synced: int
    """Lost answers of the synced ones: must be 0."""


@contextmanager
def mounted(image: Path) -> Iterator[Path]:
    """Mount a file system image; its periodic sync is practically switched off."""
    folder = image.with_suffix(".mounted")
    folder.mkdir()
    command = ["mount", "-o", "loop,commit=300", str(image), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def noting(*arguments: str) -> int:
    """Run the program; record the start of each completed sync outside of the disk.

    Only for a subprocess.
    """
    from assay.cli import main
    from assay.core import files

    beside, sync = Path.cwd().parents[1] / "synced", files._SyncQueue.sync_all

    def now(self: files._SyncQueue) -> None:
        began = time.time()
        sync(self)
        with beside.open("a", encoding="utf-8") as file:
            file.write(f"{began}\n")

    vars(files)["_SyncQueue"].sync_all = now
    return main(list(arguments))


def cut_power(folder: Path, moment: float) -> tuple[Cut, Path]:
    """Start a run, cut its power some seconds after its first turn; return the losses."""
    disk, copy = folder / "disk.ext4", folder / "copy.ext4"
    with disk.open("wb") as file:
        file.truncate(192 * _MIB)
    if not shutil.which("mkfs.ext4"):
        pytest.skip("mkfs.ext4 is not installed")
    subprocess.run(["mkfs.ext4", "-q", disk], check=True)
    with mounted(disk) as place:
        work = place / "work"
        work.mkdir()
        # The folder is older than the run.
        os.sync()
        program = start(work, noting)
        program.until(lambda: program.turns > 0, "the first turn")
        time.sleep(moment)
        # On a fast machine the run may have ended, which is a valid moment for a cut.
        with suppress(ProcessLookupError):
            os.kill(program.pid, signal.SIGSTOP)
        cut_at = time.time()
        # A sync in progress belongs to the kernel and still ends.
        time.sleep(0.3)
        synced = folder / "synced"
        began = [*map(float, synced.read_text().split())] if synced.exists() else [0.0]
        shutil.copyfile(disk, copy)
        program.kill()
        before = journaled(work)
    with mounted(copy) as place:
        after = journaled(place / "work")
        left = folder / "left"
        shutil.copytree(place / "work", left)
    lost = before.keys() - after.keys()
    old = {key for key, at in before.items() if at / 1e6 < cut_at - 1}
    kept = {key for key, at in before.items() if at / 1e6 < began[-1] - _TO_JOURNAL_S}
    counts = len(before), len(old), len(lost), len(lost & old), len(kept), len(lost & kept)
    return Cut(*counts), left


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without a power cut."""
    folder = tmp_path_factory.mktemp("undisturbed")
    program = start(folder)
    assert program.wait() == 0, program.errors
    return folder


@pytest.mark.parametrize("moment", [0.3, 1.7, 3.0])
def test_an_answer_that_was_synced_survives_a_power_cut(
    moment: float,
    undisturbed: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    cut, left = cut_power(tmp_path, moment)
    record_property("note", str(cut))
    assert cut.answers > 0
    assert cut.lost_synced == 0
    answered = journaled(left)
    program = start(left)
    assert program.wait() == 0, program.errors
    assert answered.items() <= calls_at(left / "traces.duckdb").items()
    assert contents(left / "traces.duckdb") == contents(undisturbed / "traces.duckdb")

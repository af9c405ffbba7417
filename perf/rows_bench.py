"""What a whole coding trial adds to its agent's command, beside a bare bubblewrap of it."""

import atexit
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import assay
from assay.bench.sandboxes.probing import isolation_arguments
from assay.errors import SandboxUnavailable
from assay.trials import Event, TrialEnded, TrialStarted

from .measure import Row, Topic
from .processes import ROOT, PeerFailed

__all__ = ["TOPIC"]

_TASK: Final = ROOT / "examples" / "bench" / "tasks" / "fix-bookings"
_COMMAND: Final = "sleep 5; sed -i 's/in bookings:/in sorted(bookings):/' bookings.py"
_ROOT: Final = (
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"),
    *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
)


class _Trial(NamedTuple):
    """Seconds of one trial."""

    whole: float
    grading: float


@cache
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="assay-perf-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _trial(turn: int) -> _Trial:
    """A benchmark of one trial, from its start to its end; the program itself runs already."""
    folder = _folder() / f"turn-{turn}"
    folder.mkdir()
    file = folder / "bench.toml"
    entry = f"[[tasks]]\nprepared_dir = '{_TASK}'\nagent = 'command'\n"
    file.write_text(f'{entry}command = """{_COMMAND}"""\n', "utf-8")
    at: dict[type[Event], float] = {}

    def listen(event: Event) -> None:
        at[type(event)] = time.perf_counter()

    try:
        ended = assay.bench_run(
            file, listen=listen, data_dir=folder / "data", database=folder / "traces.duckdb"
        )
    except SandboxUnavailable as error:
        raise PeerFailed(str(error)) from error
    (result,) = ended.manifest.results
    if result.agent_stop != "completed":
        raise PeerFailed(f"the agent ended with {result.agent_stop}: {result.error}")
    return _Trial(at[TrialEnded] - at[TrialStarted], result.seconds["grading"])


def _ungraded(turn: int) -> float:
    trial = _trial(turn)
    return trial.whole - trial.grading


def _graded(turn: int) -> float:
    return _trial(turn).whole


def _bare(turn: int) -> float:
    found = shutil.which("bwrap")
    if found is None:
        raise PeerFailed("bubblewrap is not installed")
    repo = _folder() / f"bare-{turn}"
    shutil.copytree(_TASK / "repo", repo)
    bind = ("--bind", str(repo), "/app/repo", "--chdir", "/app/repo")
    options = isolation_arguments(found, network=False)
    path = ("--setenv", "PATH", "/usr/bin")
    command = [found, *options, *_ROOT, *bind, *path, "--", "sh", "-c", _COMMAND]
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


_AGAINST: Final = "a bare bwrap of its command"

TOPIC: Final = Topic(
    name="bench-trial",
    unit="trial",
    sides={"trial": _ungraded, "graded": _graded, "bwrap": _bare},
    rows=(
        Row(
            name="bench-overhead",
            what="a coding trial whose agent takes 5 s, but for its grading",
            ours="trial",
            peer="bwrap",
            against=_AGAINST,
            cost="times its wall time",
            peer_unit="command",
            most=1.5,
        ),
        Row(
            name="bench-graded",
            what="the same trial, graded by its hidden tests",
            ours="graded",
            peer="bwrap",
            against=_AGAINST,
            cost="times its wall time",
            peer_unit="command",
        ),
    ),
    notes=(
        "Wall time of one trial of the agent `command`, from its start to its end in the "
        "journal: a copy of the repository, a sandbox with all limits, `sleep 5` and an edit, "
        "the patch, and all that is written down; beside a subprocess of bubblewrap with the "
        "same namespaces, and no limits, that runs the same command. The second row adds a "
        "fresh sandbox with three hidden tests.",
    ),
    rounds_at_most=5,
)

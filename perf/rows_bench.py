"""What a whole coding trial adds to its agent's command, beside a bare sandbox of it."""

import asyncio
import atexit
import shutil
import subprocess
import tempfile
import time
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

import assay
from assay.errors import SandboxUnavailable
from assay.runs.events import Event, TrialEnded, TrialStarted
from assay.sandboxes.docker.engine import DockerEngine
from assay.sandboxes.docker.images import ensure_root_image
from assay.sandboxes.host_checks import isolation_arguments

from .measure import Row, Topic, size
from .processes import ROOT, PeerFailed

__all__ = ["BUBBLEWRAP_SIDES", "DOCKER", "DOCKER_SIDES", "TOPIC"]

BUBBLEWRAP_SIDES: Final = ("trial", "graded", "bwrap")
DOCKER_SIDES: Final = ("docker trial", "docker graded", "docker")

_TASK: Final = ROOT / "examples" / "bench" / "tasks" / "fix-bookings"
_COMMAND: Final = (
    f"sleep {size(5, 1)}; sed -i 's/in bookings:/in sorted(bookings):/' bookings.py"
)
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
def _make_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="assay-perf-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _run_trial(turn: int, sandbox: str) -> _Trial:
    """A benchmark of one trial, from its start to its end; the program itself runs already."""
    folder = _make_folder() / f"{sandbox}-{turn}"
    folder.mkdir()
    file = folder / "bench.toml"
    entry = f"[[tasks]]\nprepared_dir = '{_TASK}'\nagent = 'command'\n"
    file.write_text(f'{entry}command = """{_COMMAND}"""\n', "utf-8")
    at: dict[type[Event], float] = {}

    def listen(event: Event) -> None:
        at[type(event)] = time.perf_counter()

    try:
        ended = assay.bench_run(
            file,
            sandbox=sandbox,
            listen=listen,
            data_dir=folder / "data",
            database=folder / "traces.duckdb",
        )
    except SandboxUnavailable as error:
        raise PeerFailed(str(error)) from error
    (result,) = ended.manifest.results
    if result.agent_stop != "completed":
        raise PeerFailed(f"the agent ended with {result.agent_stop}: {result.error}")
    return _Trial(at[TrialEnded] - at[TrialStarted], result.seconds["grading"])


def _time_without_grading(turn: int, *, sandbox: str) -> float:
    trial = _run_trial(turn, sandbox)
    return trial.whole - trial.grading


def _time_with_grading(turn: int, *, sandbox: str) -> float:
    return _run_trial(turn, sandbox).whole


def _run_bare(turn: int) -> float:
    found = shutil.which("bwrap")
    if found is None:
        raise PeerFailed("bubblewrap is not installed")
    repo = _make_folder() / f"bare-{turn}"
    shutil.copytree(_TASK / "repo", repo)
    bind = ("--bind", str(repo), "/app/repo", "--chdir", "/app/repo")
    options = isolation_arguments(found)
    path = ("--setenv", "PATH", "/usr/bin")
    command = [found, *options, *_ROOT, *bind, *path, "--", "sh", "-c", _COMMAND]
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def _run_bare_docker(turn: int) -> float:
    found = shutil.which("docker")
    if found is None:
        raise PeerFailed("the command docker is not installed")
    repo = _make_folder() / f"docker-run-{turn}"
    shutil.copytree(_TASK / "repo", repo)
    try:
        image = asyncio.run(_make_root())
    except SandboxUnavailable as error:
        raise PeerFailed(str(error)) from error
    mounts = ("--volume", "/usr:/usr:ro", "--volume", f"{repo}:/app/repo")
    options = ("--rm", "--network", "none", "--workdir", "/app/repo")
    command = [found, "run", *options, *mounts, image, "sh", "-c", _COMMAND]
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


async def _make_root() -> str:
    async with DockerEngine.connect() as engine:
        return await ensure_root_image(engine)


_AGAINST: Final = "a bare bwrap of its command"

TOPIC: Final = Topic(
    name="bench-trial",
    unit="trial",
    sides={
        "trial": partial(_time_without_grading, sandbox="bubblewrap"),
        "graded": partial(_time_with_grading, sandbox="bubblewrap"),
        "bwrap": _run_bare,
    },
    rows=(
        Row(
            name="bench-overhead",
            what="coding trial with an agent of 5 s, without grading",
            ours="trial",
            peer="bwrap",
            against=_AGAINST,
            cost="times its wall time",
            peer_unit="command",
            most=1.5,
        ),
        Row(
            name="bench-graded",
            what="coding trial with an agent of 5 s, graded by hidden tests",
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
        "the patch, and all records; compared with a subprocess of bubblewrap with the "
        "same namespaces, and no limits, that runs the same command. The second row adds a "
        "fresh sandbox with three hidden tests.",
    ),
    rounds_at_most=5,
)

DOCKER: Final = Topic(
    name="docker-trial",
    unit="trial",
    sides={
        "docker trial": partial(_time_without_grading, sandbox="docker"),
        "docker graded": partial(_time_with_grading, sandbox="docker"),
        "docker": _run_bare_docker,
    },
    rows=(
        Row(
            name="docker-overhead",
            what="coding trial in Docker with an agent of 5 s, without grading",
            ours="docker trial",
            peer="docker",
            against="a bare docker run of its command",
            cost="times its wall time",
            peer_unit="command",
            most=1.5,
        ),
        Row(
            name="docker-graded",
            what="coding trial with an agent of 5 s, graded by hidden tests",
            ours="docker graded",
            peer="docker",
            against="a bare docker run of its command",
            cost="times its wall time",
            peer_unit="command",
        ),
    ),
    notes=(
        "The same trial with the sandbox docker, beside `docker run --rm --network none` of "
        "its command with the same image and /usr, and no limits. It needs Docker's engine: "
        "`tests/sandboxes/with-engine python -m perf --only docker-trial` starts one.",
    ),
    rounds_at_most=5,
)

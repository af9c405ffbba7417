"""The compile cache: whatever is done to its folder, the engine starts.

Most tests start a small engine of one kernel, two entries and a table, which goes through
the same `jit.load` as the real one and compiles in a second. The real one is compiled by
the tests marked `extras`, twice in all.
"""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import assay
from assay.crafter import World, warmup
from assay.crafter.engine import jit
from tests.support import run_python

SMALL_ENGINE = """
import json, logging, os, resource, sys, time
import numpy as np
from assay.crafter.engine import jit

logging.basicConfig(format="%(levelname)s %(name)s %(message)s")

@jit.kernel
def twice(number: int) -> int:
    return 2 * number

@jit.entry
def four_times(number: int) -> int:
    return twice(twice(number))

@jit.entry
def eight_times(number: int) -> int:
    return twice(twice(twice(number)))

def build():
    print("building", flush=True)
    if "MEET" in os.environ:  # go on when there are two of us
        open(os.path.join(os.environ["MEET"], str(os.getpid())), "w").close()
        while len(os.listdir(os.environ["MEET"])) < 2:
            time.sleep(0.01)
    return {"squares": np.arange(1000) ** 2}

jit.keep_table("squares", build)
if "FILE_LIMIT" in os.environ:  # as a disk that is full
    resource.setrlimit(resource.RLIMIT_FSIZE, 2 * [int(os.environ["FILE_LIMIT"])])
report = jit.load()
assert jit.load() is report
answer = [four_times(5), eight_times(5), int(jit.table("squares")["squares"][31])]
print(json.dumps([report.compiled, str(report.directory), answer]))
"""
ANSWER = [20, 40, 961]

REAL_ENGINE = """
import json, logging
from assay.crafter import World, warmup

logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
report = warmup()
world = World(11)
for step in range(100):
    world.step((step * 7 + step * step) % 17)
print(json.dumps([report.compiled, str(report.directory), world.digest()]))
"""

# For root nothing is read-only, unless it gives up that right (CAP_DAC_OVERRIDE) first.
ORDINARY_USER = """
import ctypes, os, sys
if sys.platform == "linux" and os.geteuid() == 0:
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

COMPILING = "WARNING assay.crafter compiling the Crafter engine, once for this machine"


class Start(NamedTuple):
    """Output of one engine start."""

    compiled: bool
    directory: str
    answer: Any
    log: list[str]


class Starter:
    """Starts an engine from a script, with its cache below a folder."""

    def __init__(self, script: Path, root: Path, *, package: Path | None = None) -> None:
        self.script, self.root = script, root
        self.package = package or Path(assay.__file__).parents[1]

    def begin(self, *, ordinary: bool = False, **variables: str) -> "subprocess.Popen[str]":
        names = {"ASSAY_CACHE_DIR": str(self.root), "PYTHONPATH": str(self.package)}
        return subprocess.Popen(
            [sys.executable, *(["-c", ORDINARY_USER] if ordinary else []), str(self.script)],
            env=os.environ | names | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: "subprocess.Popen[str]") -> Start:
        out, error = process.communicate(timeout=1_800)
        assert process.returncode == 0, error
        compiled, directory, answer = json.loads(out.splitlines()[-1])
        return Start(compiled, directory, answer, error.splitlines())

    def __call__(self, **options: Any) -> Start:
        return self.end(self.begin(**options))

    def folders(self) -> list[str]:
        """The kinds of folders below the root: `crafter` or `compiling`."""
        return sorted(path.name.split("-")[0] for path in self.root.iterdir())

    @property
    def home(self) -> Path:
        (home,) = self.root.glob("crafter-*")
        return home


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("engine") / "small_engine.py"
    path.write_text(SMALL_ENGINE)
    return path


@pytest.fixture(scope="module")
def compiled(script: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Start]:
    """A compiled cache of the small engine, with the output of its first start."""
    root = tmp_path_factory.mktemp("compiled") / "not" / "there" / "yet"
    return root, Starter(script, root)()


@pytest.fixture
def small(script: Path, compiled: tuple[Path, Start], tmp_path: Path) -> Starter:
    """Starts the small engine with a filled cache."""
    shutil.copytree(compiled[0], tmp_path / "cache")
    return Starter(script, tmp_path / "cache")


@pytest.fixture
def cold(script: Path, tmp_path: Path) -> Starter:
    """Starts the small engine with an empty cache."""
    return Starter(script, tmp_path / "cache")


@pytest.fixture
def meeting(tmp_path: Path) -> str:
    """Folder where two starts wait for each other while compiling."""
    (tmp_path / "meeting").mkdir()
    return str(tmp_path / "meeting")


def test_first_start_compiles_and_prints_one_notice(compiled: tuple[Path, Start]) -> None:
    root, first = compiled
    assert (first.compiled, first.answer) == (True, ANSWER)
    assert Path(first.directory).parent == root
    assert [path.name for path in root.iterdir()] == [Path(first.directory).name]
    assert len(first.log) == 1
    assert first.log[0].startswith(COMPILING)


@pytest.mark.extras
def test_second_start_uses_the_compiled_cache(small: Starter) -> None:
    before = jit._compute_hashes(small.home)
    start = small()
    assert start == Start(False, str(small.home), ANSWER, [])
    assert jit._compute_hashes(small.home) == before


@pytest.mark.extras
def test_concurrent_first_starts_leave_one_cache_folder(cold: Starter, meeting: str) -> None:
    both = [cold.begin(MEET=meeting) for _ in range(2)]
    starts = [cold.end(process) for process in both]
    assert [start.answer for start in starts] == [ANSWER, ANSWER]
    assert [start.compiled for start in starts] == [True, True]
    assert {start.directory for start in starts} == {str(cold.home)}
    assert cold.folders() == ["crafter"]
    assert jit._is_intact(cold.home)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def one(home: Path, pattern: str) -> Path:
    return sorted(home.rglob(pattern))[0]


def manifest(text: str) -> Callable[[Path], Any]:
    return lambda home: (home / "manifest.json").write_text(text)


def file_in_its_place(home: Path) -> None:
    shutil.rmtree(home)
    home.write_text("not a folder")


def emptied(home: Path) -> None:
    shutil.rmtree(home)
    home.mkdir()


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a bit of code": lambda home: flip(one(home, "*.nbc")),
    "a bit of an index": lambda home: flip(one(home, "*.nbi")),
    "a bit of a table": lambda home: flip(one(home, "*.npz")),
    "code cut short": lambda home: os.truncate(one(home, "*.nbc"), 100),
    "an empty index": lambda home: os.truncate(one(home, "*.nbi"), 0),
    "a table that is gone": lambda home: one(home, "*.npz").unlink(),
    "code that is gone": lambda home: one(home, "*.nbc").unlink(),
    "a file too many": lambda home: (home / "more").write_text(""),
    "no manifest": lambda home: (home / "manifest.json").unlink(),
    "an empty manifest": manifest(""),
    "a manifest of nothing": manifest("{}"),
    "a manifest that is a list": manifest("[1, 2]"),
    "a manifest of noise": lambda home: (home / "manifest.json").write_bytes(bytes(range(256))),
    "an empty folder": emptied,
    "a file in its place": file_in_its_place,
}
STARTED = ("a bit of code", "an empty folder", "a file in its place")
"""One of each kind that a start meets: files that differ, none, and no folder."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_cache_is_detected(damage: str, small: Starter) -> None:
    home = small.home
    assert jit._is_intact(home)
    DAMAGES[damage](home)
    assert not jit._is_intact(home)


@pytest.mark.extras
@pytest.mark.parametrize("damage", STARTED)
def test_damaged_cache_is_recompiled(damage: str, small: Starter) -> None:
    home = small.home
    DAMAGES[damage](home)
    start = small()
    assert (start.compiled, start.directory, start.answer) == (True, str(home), ANSWER)
    assert [line.startswith(COMPILING) for line in start.log] == [True]
    assert small.folders() == ["crafter"]
    assert jit._is_intact(home)


@pytest.mark.extras
def test_unreadable_cached_code_is_recompiled(small: Starter) -> None:
    home = small.home
    last = sorted(home.rglob("*.nbc"))[-1]
    last.write_bytes(b"as recorded, but not code")
    jit._write_manifest(home)
    assert jit._is_intact(home)
    start = small()
    assert (start.compiled, start.answer) == (True, ANSWER)
    assert f"the compiled engine in {home} cannot be read: compiling anew" in start.log[0]
    assert len(start.log) == 1
    assert small.folders() == []
    assert small().directory == str(home)
    assert jit._is_intact(home)


@pytest.mark.extras
def test_uncreatable_cache_folder_disables_only_the_cache(cold: Starter) -> None:
    cold.root.write_text("a file")
    cold.root /= "cache"
    start = cold()
    assert (start.compiled, start.directory, start.answer) == (True, "None", ANSWER)
    assert start.log[0].startswith(COMPILING)
    assert f"cannot write to {cold.root}, so every start will compile" in start.log[1]
    assert "set ASSAY_CACHE_DIR to a folder you can write to" in start.log[1]


@pytest.mark.extras
@pytest.mark.parametrize("limit", ["2000", pytest.param("0", marks=pytest.mark.extras)])
def test_full_disk_disables_only_the_cache(cold: Starter, limit: str) -> None:
    start = cold(FILE_LIMIT=limit)
    assert (start.compiled, start.directory, start.answer) == (True, "None", ANSWER)
    assert "so every start will compile" in start.log[-1]
    assert cold.folders() == []


def read_only(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))


@pytest.fixture
def protected(tmp_path: Path) -> Iterator[Callable[[Path], None]]:
    """Makes a folder read-only until the end of the test."""
    probe = tmp_path / "probe"
    probe.mkdir()
    read_only(probe)
    (tmp_path / "probe.py").write_text(f"open({str(probe / 'x')!r}, 'w')")
    command = [sys.executable, "-c", ORDINARY_USER, str(tmp_path / "probe.py")]
    if subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0:
        pytest.skip("nothing is read-only for this user")
    made: list[Path] = [probe]

    def protect(folder: Path) -> None:
        made.append(folder)
        read_only(folder)

    yield protect
    for folder in made:
        for path in (folder, *folder.rglob("*")):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)


@pytest.mark.extras
def test_read_only_cache_is_used(small: Starter, protected: Callable[[Path], None]) -> None:
    before = jit._compute_hashes(small.root)
    protected(small.root)
    assert small(ordinary=True) == Start(False, str(small.home), ANSWER, [])
    assert jit._compute_hashes(small.root) == before


@pytest.mark.extras
def test_empty_read_only_cache_root_disables_only_the_cache(
    cold: Starter, protected: Callable[[Path], None]
) -> None:
    cold.root.mkdir()
    protected(cold.root)
    start = cold(ordinary=True)
    assert (start.compiled, start.directory, start.answer) == (True, "None", ANSWER)
    assert "set ASSAY_CACHE_DIR to a folder you can write to" in start.log[1]


@pytest.mark.extras
def test_killed_start_does_not_block_the_next_start(cold: Starter, meeting: str) -> None:
    process = cold.begin(MEET=meeting)
    assert process.stdout is not None
    assert process.stdout.readline() == "building\n"  # the code is compiled and in its folder
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert cold.folders() == ["compiling"]
    start = cold()
    assert (start.compiled, start.directory, start.answer) == (True, str(cold.home), ANSWER)
    assert jit._is_intact(cold.home)


@pytest.mark.extras
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param({"NUMBA_CPU_NAME": "generic"}, id="cpu"),
        pytest.param({"NUMBA_BOUNDSCHECK": "1"}, id="checked", marks=pytest.mark.extras),
    ],
)
def test_each_compile_mode_has_a_separate_cache_folder(
    small: Starter, mode: dict[str, str]
) -> None:
    home = small.home
    start = small(**mode)
    assert (start.compiled, start.answer) == (True, ANSWER)
    assert start.directory != str(home)
    assert small.folders() == ["crafter", "crafter"]
    assert jit._is_intact(home)


# The real engine.


def digest() -> int:
    world = World(11)
    for step in range(100):
        world.step((step * 7 + step * step) % 17)
    return world.digest()


@pytest.fixture
def real(tmp_path: Path) -> Starter:
    """Starts the real engine with an empty cache."""
    script = tmp_path / "real_engine.py"
    script.write_text(REAL_ENGINE)
    (tmp_path / "cache").mkdir()
    return Starter(script, tmp_path / "cache")


def copy_of_the_real_cache(root: Path) -> Path:
    warm = warmup().directory
    assert warm is not None
    return shutil.copytree(warm, root / warm.name)


@pytest.mark.extras
def test_a_cache_can_be_moved_to_another_folder(real: Starter) -> None:
    home = copy_of_the_real_cache(real.root)
    assert real() == Start(False, str(home), digest(), [])


@pytest.mark.extras
def test_engine_survives_corruption_and_kill_and_warmup_reports_compiling(
    real: Starter,
) -> None:
    home = copy_of_the_real_cache(real.root)
    for path in home.rglob("*.n*"):
        flip(path)
    process = real.begin()
    while not any(real.root.glob("compiling-*/*/*.nbc")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not jit._is_intact(home)
    done = run_python(
        "-m", "assay", "warmup", "--json", variables={"ASSAY_CACHE_DIR": str(real.root)}
    )
    said = json.loads(done.output)
    assert (said["compiled"], said["directory"]) == (True, str(home))
    assert "compiling" in done.errors
    assert real.folders() == ["compiling", "crafter"]
    assert jit._is_intact(home)
    assert real() == Start(False, str(home), digest(), [])


@pytest.mark.extras
def test_the_real_engine_runs_from_a_read_only_install(
    real: Starter, protected: Callable[[Path], None], tmp_path: Path
) -> None:
    installed = tmp_path / "installed"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(assay.__file__).parent, installed / "assay", ignore=ignored)
    before = jit._compute_hashes(installed)
    protected(installed)
    real.package = installed
    start = real(ordinary=True)
    assert (start.compiled, start.directory, start.answer) == (True, str(real.home), digest())
    assert jit._compute_hashes(installed) == before
    protected(real.root)
    assert real(ordinary=True) == Start(False, str(real.home), digest(), [])

"""The disk limit of a sandbox cannot be exceeded."""

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

import assay
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import (
    Command,
    CommandEnd,
    Mount,
    ResourceLimits,
    Sandbox,
    SandboxBackend,
    SandboxSpec,
)
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.folders import OWN_DISK, WATCHED_DISK, describe_disk_limit, limited_disk
from assay.sandboxes.unprotected import UnprotectedBackend
from tests.bench.runs import HALF, calc_task, command, entry, results, toml
from tests.support import run_python

from .boxes import ANY_WAY, found, leftovers, python, usable

T = TypeVar("T")
LIMITS = ResourceLimits(memory_mb=512, disk_mb=32)
HOLD = """
import array, mmap, os, socket, sys, time
def passed(file):
    pair = socket.socketpair()
    rights = array.array("i", [file])
    pair[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    os.close(file)
    return pair
def mapped(file):
    map = mmap.mmap(file, 4 * 2**20)
    os.closerange(3, 50)  # the map has a descriptor of its own
    return map
kept, held = [], 0
try:
    for number in range(40):
        name = f"{sys.argv[1]}/{number}"
        file = os.open(name, os.O_CREAT | os.O_RDWR)
        if sys.argv[2] != "named":
            os.unlink(name)
        for _ in range(4):
            held += os.write(file, bytes(2**20))
        if sys.argv[2] != "named":
            kept.append(globals()[sys.argv[2]](file))
except OSError as error:
    print(error.errno)
print(held >> 20, flush=True)
time.sleep(1)  # long enough to be seen
"""


@pytest.fixture(params=ANY_WAY)
def backend(request: pytest.FixtureRequest) -> SandboxBackend:
    """A sandbox whose disk the kernel limits."""
    made = usable(request.param)
    if not made.enforcement(LIMITS).disk.startswith(OWN_DISK):
        pytest.skip(f"needs root and a loop device: {made.enforcement(LIMITS).disk}")
    return made


def on_disk(
    backend: SandboxBackend, folder: Path, do: Callable[[Sandbox, Path], Awaitable[T]]
) -> T:
    """Run an action in a sandbox with its own file system, which already has a file."""
    (folder / "app").mkdir()
    (folder / "app" / "there").write_bytes(bytes(3_000_000))

    async def main() -> T:
        async with limited_disk(backend, LIMITS, folder / "app") as disk:
            assert disk is not None
            mount = Mount(disk / "app", "/app/repo", writable=True)
            spec = SandboxSpec(mounts=(mount,), limits=LIMITS, disk=disk)
            async with backend.open(spec) as sandbox:
                return await do(sandbox, disk)

    return asyncio.run(main())


def ran(backend: SandboxBackend, folder: Path, *argv: str) -> CommandEnd:
    command = Command(argv=argv, timeout_s=60)
    return on_disk(backend, folder, lambda sandbox, _: sandbox.run(command))


def mounts() -> list[str]:
    """Return the mounted disks of this process, including those with deleted files."""
    mounted = Path("/proc/mounts").read_text().splitlines()
    return [line for line in mounted if f"assay-box-{os.getpid()}-" in line]


@pytest.mark.parametrize("where", ["/app/repo", "/tmp", "/dev/shm"])
@pytest.mark.parametrize("how", ["passed", "mapped", "named"])
def test_disk_limit_cannot_be_exceeded(
    backend: SandboxBackend, tmp_path: Path, where: str, how: str
) -> None:
    end = ran(backend, tmp_path, *python(HOLD), where, how)
    assert end.output.split() == [b"28", b"32"]
    assert found(end) == {"disk_limit"}
    assert not leftovers()
    assert not mounts()


def test_disk_limit_is_shared_by_all_folders(backend: SandboxBackend, tmp_path: Path) -> None:
    fill = "for to in /tmp /dev/shm .; do head -c 12M /dev/zero > $to/file; done; sleep 1"
    end = ran(backend, tmp_path, "sh", "-c", fill)
    assert b"No space left on device" in end.output
    assert found(end) == {"disk_limit"}


def test_work_below_the_limit_succeeds_without_findings(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    async def work(sandbox: Sandbox, disk: Path) -> tuple[CommandEnd, int]:
        fill = "head -c 20M /dev/zero > /tmp/a && rm /tmp/a && head -c 31M /dev/zero > b"
        end = await sandbox.run(Command(argv=("sh", "-c", fill), timeout_s=60))
        return end, (disk / "app" / "b").stat().st_size

    end, size = on_disk(backend, tmp_path, work)
    assert (end.exit_code, end.output, end.findings) == (0, b"", ())
    assert size == 31 * 2**20


def test_the_number_of_files_is_limited(backend: SandboxBackend, tmp_path: Path) -> None:
    fill = "i = 0\nwhile True:\n    open(f'f{i}', 'w').close()\n    i += 1"
    end = ran(backend, tmp_path, *python(fill))
    assert found(end) == {"disk_limit"}


def test_a_full_disk_can_be_emptied_by_the_next_command(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    async def fill_and_clear(sandbox: Sandbox, _: Path) -> None:
        fill = "i=0; while head -c 1M /dev/zero > $i; do i=$((i+1)); done; sleep 1"
        end = await sandbox.run(Command(argv=("sh", "-c", fill), timeout_s=60))
        assert found(end) == {"disk_limit"}
        clear = Command(argv=("sh", "-c", "rm * && echo small > a"), timeout_s=60)
        end = await sandbox.run(clear)
        assert (end.exit_code, end.findings) == (0, ())

    on_disk(backend, tmp_path, fill_and_clear)


def test_setuid_programs_and_devices_are_plain_files(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    async def options(_: Sandbox, disk: Path) -> int:
        return os.statvfs(disk / "app").f_flag

    flags = on_disk(backend, tmp_path, options)
    assert flags & os.ST_NOSUID
    assert flags & os.ST_NODEV


def test_cancelled_work_leaves_no_mounts(backend: SandboxBackend, tmp_path: Path) -> None:
    async def sleep(sandbox: Sandbox, _: Path) -> None:
        asyncio.get_running_loop().call_later(0.5, asyncio.current_task().cancel)  # type: ignore[union-attr]
        await sandbox.run(Command(argv=("sleep", "60"), timeout_s=60))

    with pytest.raises(asyncio.CancelledError):
        on_disk(backend, tmp_path, sleep)
    assert not leftovers()
    assert not mounts()
    assert not [*tmp_path.iterdir()]


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.sandboxes.boxes import usable
from tests.sandboxes.test_disks import on_disk
from assay.sandboxes.base import Command
async def die(sandbox, disk):
    print(disk, flush=True)
    asyncio.get_running_loop().call_later(0.5, os.kill, os.getpid(), signal.SIGKILL)
    await sandbox.run(Command(argv=("sleep", "60"), timeout_s=60))
on_disk(usable(sys.argv[1] or None), Path(sys.argv[2]), die)
"""


def test_next_run_unmounts_leftovers_of_a_killed_run(
    backend: SandboxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where no other test's sandbox sweeps.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    name = "docker" if backend.name == "docker" else ""
    killed = run_python("-c", KILLED, name, str(first), expected=-signal.SIGKILL)
    left = killed.output.strip()
    assert left in Path("/proc/mounts").read_text()
    ran(backend, second, "true")
    assert left not in Path("/proc/mounts").read_text()
    assert not Path(left).parent.exists()
    assert str(first) not in subprocess.check_output(["losetup", "-a"], text=True)


def test_a_writable_mount_elsewhere_is_refused(backend: SandboxBackend, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "elsewhere").mkdir()

    async def main() -> None:
        async with limited_disk(backend, LIMITS, tmp_path / "app") as disk:
            mount = Mount(tmp_path / "elsewhere", "/app/repo", writable=True)
            async with backend.open(SandboxSpec(mounts=(mount,), limits=LIMITS, disk=disk)):
                pass

    with pytest.raises(SandboxUnavailable, match="elsewhere is writable and not on the disk"):
        asyncio.run(main())
    assert not leftovers()


@pytest.fixture
def bubblewrap() -> None:
    """A bubblewrap backend with disks."""
    if usable(None).enforcement(LIMITS).disk != OWN_DISK:
        pytest.skip("needs root and a loop device")


@pytest.mark.bench
@pytest.mark.usefixtures("bubblewrap")
def test_agent_and_graded_program_hit_the_limit_and_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    calc_task(tmp_path / "task")
    holds = f"/usr/bin/python3 -c {shlex.quote(HOLD)} /tmp passed"
    graded = (
        f"import subprocess\nsubprocess.run(['python3', '-c', {HOLD!r}, '/orders', 'passed'])"
    )
    agent = f"{HALF}; {holds}; printf %s {shlex.quote(graded)} >> calc.py"
    disk_mb = LIMITS.disk_mb
    toml(tmp_path / "bench.toml", entry(agent="command", command=agent, disk_mb=disk_mb))
    assay.bench_run("bench.toml")
    (result,) = results(tmp_path)
    folder = tmp_path / result["run_dir"]
    assert result["enforcement"]["disk"] == OWN_DISK
    assert (folder / "logs" / "agent.log").read_text().split()[-2:] == ["28", "32"]
    assert "disk_limit" in json.dumps(result["findings"])
    assert result["score"] == 0.75, "it is graded all the same"
    assert not (folder / "work").exists()
    assert not mounts()


@pytest.mark.bench
@pytest.mark.usefixtures("bubblewrap")
def test_a_killed_benchmark_resumes_and_leaves_nothing_mounted(tmp_path: Path) -> None:
    calc_task(tmp_path / "task")
    (tmp_path / "tmp").mkdir()
    toml(tmp_path / "bench.toml", entry(agent="command", command=f"{HALF}; sleep 2"))
    variables = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    argv = [sys.executable, "-m", "assay", "bench", "run", "bench.toml"]
    with subprocess.Popen(argv, cwd=tmp_path, env=variables, start_new_session=True) as process:
        while process.poll() is None and not [*tmp_path.glob("tmp/*/disk/app")]:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    assert str(tmp_path) in Path("/proc/mounts").read_text()
    done = command(tmp_path, "bench", "resume", "bench", TMPDIR=str(tmp_path / "tmp"))
    assert done.code == 0, done.errors
    assert results(tmp_path)[0]["score"] == 0.75
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    assert not [*(tmp_path / "tmp").glob("assay-*")]


@contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    os.seteuid(65534)
    describe_disk_limit.cache_clear()
    try:
        yield
    finally:
        os.seteuid(0)
        describe_disk_limit.cache_clear()


@pytest.mark.bench
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_without_root_the_watcher_is_reported() -> None:
    with as_an_ordinary_user():
        assert (
            describe_disk_limit() == f"{WATCHED_DISK} (no {OWN_DISK}: only root can mount one)"
        )


@pytest.mark.bench
def test_sandbox_without_its_own_disk_reports_the_watcher(tmp_path: Path) -> None:
    async def main() -> str:
        spec = SandboxSpec(mounts=(Mount(tmp_path, "/app/repo", writable=True),))
        async with BubblewrapBackend().open(spec) as sandbox:
            return sandbox.enforcement.disk

    assert asyncio.run(main()).startswith(WATCHED_DISK)


def test_backend_without_disk_limit_gets_no_disk(tmp_path: Path) -> None:
    async def main() -> Path | None:
        async with limited_disk(UnprotectedBackend(), LIMITS, tmp_path) as disk:
            return disk

    assert asyncio.run(main()) is None

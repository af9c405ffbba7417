"""Commands in a sandbox: input, output, and no leftovers."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.base import (
    Command,
    Mount,
    ResourceLimits,
    Sandbox,
    SandboxBackend,
    SandboxSpec,
)
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.folders import enforcement_with_disk
from assay.sandboxes.roots import python_mounts, python_path

from .boxes import DOCKER, MARK, SMALL, found, handles, in_sandbox, leftovers, run, spec, usable


@pytest.fixture(
    params=[
        pytest.param(None, id="best", marks=pytest.mark.bench),
        pytest.param("watcher", marks=pytest.mark.bench),
        DOCKER,
    ]
)
def backend(request: pytest.FixtureRequest) -> SandboxBackend:
    return usable(request.param)


def test_output_and_errors_are_merged_in_order(backend: SandboxBackend, tmp_path: Path) -> None:
    end = run(backend, spec(tmp_path), "sh", "-c", "echo a; echo b >&2; echo c; exit 7")
    assert (end.exit_code, end.output) == (7, b"a\nb\nc\n")
    assert not end.timed_out
    assert not end.findings


def test_input_and_output_bytes_are_unchanged(backend: SandboxBackend, tmp_path: Path) -> None:
    everything = bytes(range(256)) * 1000
    assert run(backend, spec(tmp_path), "cat", stdin=everything).output == everything
    assert run(backend, spec(tmp_path), "cat").output == b""


def test_standard_streams_can_be_opened_by_name(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    script = "cat /dev/stdin > /dev/stdout; echo error > /dev/stderr"
    end = run(backend, spec(tmp_path), "sh", "-c", script, stdin=b"given\n")
    assert (end.exit_code, end.output) == (0, b"given\nerror\n")


def test_middle_of_very_long_output_is_dropped(backend: SandboxBackend, tmp_path: Path) -> None:
    shout = "echo first; yes | head -c 100000000; echo last"
    end = run(backend, spec(tmp_path), "sh", "-c", shout)
    assert end.output.startswith(b"first\n")
    assert end.output.endswith(b"y\nlast\n")
    assert b"bytes left out" in end.output
    assert len(end.output) < 1.1 * 2**20
    assert found(end) == {"output_cut"}


def test_files_persist_between_commands_and_processes_do_not(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    async def twice(sandbox: Sandbox) -> bytes:
        first = "echo 1 > here; echo 2 > /tmp/there; echo 3 > ~/home; sleep 100 &"
        await sandbox.run(Command(argv=("sh", "-c", first), timeout_s=10))
        second = "cat here /tmp/there /tmp/home/home; ls -d /proc/[0-9]* | wc -l"
        end = await sandbox.run(Command(argv=("sh", "-c", second), timeout_s=10))
        return end.output

    assert in_sandbox(backend, spec(tmp_path), twice).split()[:3] == [b"1", b"2", b"3"]
    assert (tmp_path / "here").read_text() == "1\n"
    assert not leftovers()


def test_environment_has_only_sandbox_and_command_variables(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    given = SandboxSpec(
        mounts=(Mount(tmp_path, "/app/repo"),), environment={"A": "1", "B": "2", "HOME": "/x"}
    )
    command = Command(argv=("env",), timeout_s=10, environment={"B": "3", "C": "a=b\nc"})
    end = in_sandbox(backend, given, lambda sandbox: sandbox.run(command))
    lines = end.output.decode().splitlines()
    assert {"A=1", "B=3", "C=a=b", "c", "HOME=/x"} <= {*lines}
    names = {line.partition("=")[0] for line in lines}
    assert names <= {
        "A",
        "B",
        "C",
        "HOME",
        "HOSTNAME",
        "LANG",
        "PATH",
        "PWD",
        "TMPDIR",
        "USER",
        "c",
    }


def test_missing_command_exits_with_127(backend: SandboxBackend, tmp_path: Path) -> None:
    end = run(backend, spec(tmp_path), "no-such-program")
    assert end.exit_code == 127
    assert b"no-such-program" in end.output


def test_a_program_of_the_repository_does_not_replace_the_supervisor(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    for name in ("setsid", "sh", "echo", "kill"):
        (tmp_path / name).write_text("#!/bin/sh\necho fake\n")
        (tmp_path / name).chmod(0o755)
    tmp_path.chmod(0o755)
    given = SandboxSpec(
        mounts=(Mount(tmp_path, "/app/repo"),), environment={"PATH": "/app/repo:/usr/bin"}
    )
    command = Command(argv=("/bin/false",), timeout_s=10)
    end = in_sandbox(backend, given, lambda sandbox: sandbox.run(command))
    assert (end.exit_code, end.output) == (1, b"")


def test_the_time_limit_kills_everything(backend: SandboxBackend, tmp_path: Path) -> None:
    script = f"echo begun; trap '' TERM; sleep 1000 & sleep 1000; echo {MARK}"
    end = run(backend, spec(tmp_path), "sh", "-c", script, timeout_s=0.5)
    assert end.timed_out
    assert end.exit_code is None
    assert end.output == b"begun\n"
    assert 0.5 <= end.seconds < 3
    assert not leftovers(MARK)


def test_cancelled_command_is_killed(backend: SandboxBackend, tmp_path: Path) -> None:
    async def cancel(sandbox: Sandbox) -> None:
        for pause in (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.3):
            script = f"sleep 1000 & sleep 1000; echo {MARK}"
            command = Command(argv=("sh", "-c", script), timeout_s=100)
            task = asyncio.ensure_future(sandbox.run(command))
            await asyncio.sleep(pause)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not [left for left in leftovers(MARK) if left.startswith("process")]

    run(backend, spec(tmp_path), "true")  # the first command starts what all share
    before = handles()
    in_sandbox(backend, spec(tmp_path), cancel)
    assert not leftovers(MARK)
    assert handles() <= before


def test_resource_usage_is_measured(backend: SandboxBackend, tmp_path: Path) -> None:
    text = "import time\nkept = bytearray(b'x') * 50_000_000\nend = time.process_time() + 0.5\n"
    text += "while time.process_time() < end: pass\ntime.sleep(0.2)"
    end = run(backend, spec(tmp_path), "/usr/bin/python3", "-c", text)
    assert 0.4 < end.cpu_s < 1.0
    assert 45 < end.peak_memory_mb < 80
    assert end.seconds > 0.7


def test_twenty_concurrent_sandboxes_end_without_leftovers(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    async def one(number: int) -> bytes:
        folder = tmp_path / str(number)
        folder.mkdir(exist_ok=True)
        async with backend.open(spec(folder)) as sandbox:
            command = Command(argv=("sh", "-c", f"sleep 0.2; echo {number}"), timeout_s=60)
            return (await sandbox.run(command)).output

    async def all_of_them() -> list[bytes]:
        return await asyncio.gather(*(one(number) for number in range(20)))

    async def main() -> tuple[int, int]:
        await all_of_them()
        before = handles()
        assert await all_of_them() == [f"{number}\n".encode() for number in range(20)]
        return before, handles()

    before, after = asyncio.run(main())
    assert after <= before
    assert not leftovers()


def test_commands_of_one_sandbox_run_sequentially(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    async def together(sandbox: Sandbox) -> None:
        command = Command(argv=("sh", "-c", "mkdir own && sleep 0.2 && rmdir own"), timeout_s=9)
        ends = await asyncio.gather(*(sandbox.run(command) for _ in range(3)))
        assert [end.exit_code for end in ends] == [0, 0, 0]

    in_sandbox(backend, spec(tmp_path), together)


def test_python_runs_and_the_rest_of_its_home_is_hidden(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    look = "import sys, pytest; print(sys.prefix, pytest.__version__)"
    given = spec(tmp_path, ResourceLimits(), *python_mounts())
    end = run(backend, given, python_path(), "-c", look)
    assert (end.exit_code, end.output.decode()) == (0, f"{sys.prefix} {pytest.__version__}\n")
    end = run(backend, given, python_path(), "-c", "import assay")
    assert b"No module named 'assay'" in end.output
    end = run(backend, given, "ls", "-A", str(Path.home()))
    there = {*end.output.decode().split()} if end.exit_code == 0 else set()
    assert there <= {
        Path(mount.target).relative_to(Path.home()).parts[0]
        for mount in python_mounts()
        if Path(mount.target).is_relative_to(Path.home())
    }


def test_assay_is_hidden_inside_mounts(backend: SandboxBackend, tmp_path: Path) -> None:
    import assay

    source = Path(assay.__file__).parents[1]
    given = spec(tmp_path, SMALL, Mount(source, "/source"))
    end = run(
        backend, given, "sh", "-c", "ls /source; ls -A /source/assay; touch /source/assay/x"
    )
    assert b"assay\n" in end.output
    assert b"errors.py" not in end.output
    assert end.exit_code == 1


def test_failed_sandbox_start_gives_the_reason(backend: SandboxBackend, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="not-there"):
        run(backend, spec(tmp_path / "not-there"), "true")
    tmp_path.chmod(0o755)
    given = SandboxSpec(mounts=(Mount(tmp_path, "/app/repo"),), workdir="/nowhere")
    with pytest.raises(SandboxUnavailable, match="nowhere"):
        run(backend, given, "true")
    assert not leftovers()


@pytest.mark.bench
def test_fractional_cpu_limit_needs_control_groups() -> None:
    with pytest.raises(SandboxUnavailable, match=r"0\.5 CPUs.*control groups"):
        usable("watcher").enforcement(ResourceLimits(cpus=0.5))


@pytest.mark.bench
def test_unknown_mechanism_is_named_in_the_error() -> None:
    with pytest.raises(UsageError, match="choose from: cgroup v2, cgroup v1"):
        BubblewrapBackend("hope")


def test_enforcement_names_the_mechanism_of_each_limit(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    async def told(sandbox: Sandbox) -> None:
        assert sandbox.enforcement == enforcement_with_disk(None, backend.enforcement(SMALL))
        assert sandbox.enforcement.backend == backend.name
        assert "namespace" in sandbox.enforcement.network

    in_sandbox(backend, spec(tmp_path), told)
    network = backend.enforcement(ResourceLimits(network=("public", "mirror.lan"))).network
    assert network == "HTTP(S) proxy to public addresses, mirror.lan"


KILLED = """
import asyncio, sys
from pathlib import Path
from assay.sandboxes.base import Command
from tests.sandboxes.boxes import spec, usable

async def main():
    async with usable(None).open(spec(Path(sys.argv[1]))) as sandbox:
        print("open", flush=True)
        while True:
            script = "sleep 1000 & sleep 0.02; echo " + sys.argv[2]
            await sandbox.run(Command(argv=("sh", "-c", script), timeout_s=60))

asyncio.run(main())
"""


@pytest.mark.bench
def test_killing_assay_ends_its_sandboxes_and_the_next_run_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable(None)
    (tmp_path / "repo").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arguments = [sys.executable, "-c", KILLED, str(tmp_path / "repo"), MARK]
    for number in range(10):
        with subprocess.Popen(
            arguments, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            # At any moment of a command: while it is set up, runs, or is cleared up.
            time.sleep(0.008 * number)
            process.kill()
        assert not leftovers(MARK)
    assert list(tmp_path.glob("assay-box-*"))
    run(usable(None), spec(tmp_path / "repo"), "true")
    assert [path.name for path in tmp_path.iterdir()] == ["repo"]
    groups = [str(path) for path in Path("/sys/fs/cgroup").rglob("assay-box-*")]
    assert not [path for path in groups if f"-{process.pid}-" in path]

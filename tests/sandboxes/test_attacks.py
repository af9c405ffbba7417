"""Malicious commands do no harm with any enforcement mechanism."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from assay.errors import SandboxUnavailable
from assay.sandboxes.base import Command, Mount, ResourceLimits, Sandbox, SandboxBackend

from .boxes import (
    ANY_WAY,
    MARK,
    SMALL,
    WAYS,
    found,
    in_sandbox,
    leftovers,
    python,
    run,
    spec,
    usable,
)

EAT = "import mmap\nkept = [bytearray(b'x' * 10_000_000) for _ in range(200)]\nprint('full')"
EAT_TOGETHER = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        kept = [bytearray(b'x' * 10_000_000) for _ in range(6)]
        time.sleep(60)
os.wait()
"""
REACH = """
import socket, sys
for family, address in ((socket.AF_INET, '192.0.2.7'), (socket.AF_INET6, '2001:db8::7')):
    try:
        socket.socket(family).connect((address, 80))
    except OSError as error:
        print(error.errno)
try:
    socket.getaddrinfo('example.com', 80)
except OSError as error:
    print('no name')
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 100)
        time.sleep(1000)
    os._exit(0)
os.wait()
"""


@pytest.fixture(params=WAYS)
def backend(request: pytest.FixtureRequest) -> SandboxBackend:
    return usable(request.param)


@pytest.fixture(params=ANY_WAY)
def any_way(request: pytest.FixtureRequest) -> SandboxBackend:
    """A backend for tests that do not depend on the enforcement mechanism."""
    return usable(request.param)


def test_fork_bomb_is_stopped_at_the_process_limit_and_reported(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    bomb = f"bomb() {{ bomb | bomb & }}; bomb; sleep 1; echo {MARK}"
    end = run(backend, spec(tmp_path), "bash", "-c", bomb, timeout_s=10)
    assert "process_limit" in found(end)
    assert not leftovers(MARK)


def test_threads_count_as_processes(backend: SandboxBackend, tmp_path: Path) -> None:
    # It stays for a moment once it gets no more, so that who only looks now and then sees it.
    crowd = """
import sys, threading, time
try:
    for _ in range(100):
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
except RuntimeError:
    time.sleep(1)
    sys.exit(1)
"""
    end = run(backend, spec(tmp_path), *python(crowd))
    assert "process_limit" in found(end)
    assert end.exit_code != 0


def test_process_above_the_memory_limit_is_killed_and_reported(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    end = run(backend, spec(tmp_path), *python(EAT))
    assert end.exit_code == 137
    assert b"full" not in end.output
    assert found(end) == {"memory_limit"}
    assert 64 < end.peak_memory_mb < 300


def test_processes_that_exceed_the_memory_limit_together_are_killed(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    end = run(backend, spec(tmp_path), *python(EAT_TOGETHER), timeout_s=30)
    assert "memory_limit" in found(end)


def test_a_large_file_stops_at_the_limit(backend: SandboxBackend, tmp_path: Path) -> None:
    end = run(backend, spec(tmp_path), "dd", "if=/dev/zero", "of=large", "bs=1M", "count=2000")
    assert "disk_limit" in found(end)
    assert (tmp_path / "large").stat().st_size <= SMALL.disk_mb * 2**20


@pytest.mark.parametrize("where", ["/app/repo", "/tmp", "/dev/shm"])
def test_disk_limit_covers_all_writable_folders(
    any_way: SandboxBackend, tmp_path: Path, where: str
) -> None:
    fill = f"i=0; while :; do i=$((i+1)); head -c 1M /dev/zero > {where}/$i || exit 3; done"
    end = run(any_way, spec(tmp_path), "sh", "-c", fill, timeout_s=30)
    assert "disk_limit" in found(end)
    assert not end.timed_out


def test_number_of_empty_files_is_limited(any_way: SandboxBackend, tmp_path: Path) -> None:
    fill = "i = 0\nwhile True:\n    open(f'f{i}', 'w').close()\n    i += 1"
    end = run(any_way, spec(tmp_path), *python(fill), timeout_s=60)
    assert "disk_limit" in found(end)
    assert not end.timed_out


def test_deleted_open_files_count_towards_the_disk_limit(
    any_way: SandboxBackend, tmp_path: Path
) -> None:
    hide = "import os, tempfile\nkept = []\nwhile True:\n    f = tempfile.TemporaryFile()\n"
    hide += "    f.write(bytes(10_000_000)); f.flush(); kept.append(f)"
    end = run(any_way, spec(tmp_path), *python(hide), timeout_s=30)
    assert "disk_limit" in found(end)
    assert not end.timed_out


def test_folders_deeper_than_the_path_limit_are_stopped_and_removed(
    any_way: SandboxBackend, tmp_path: Path
) -> None:
    dig = "import os, time\nos.chdir('/tmp')\nfor _ in range(3000):\n    os.mkdir('dddd')\n"
    dig += "    os.chdir('dddd')\nprint('dug', flush=True)\ntime.sleep(20)"
    end = run(any_way, spec(tmp_path), *python(dig), timeout_s=30)
    assert found(end) == {"disk_limit"}
    assert not leftovers()


def test_next_command_can_remove_excess_files(any_way: SandboxBackend, tmp_path: Path) -> None:
    async def fill_and_clear(sandbox: Sandbox) -> None:
        fill = "for i in 1 2 3 4 5 6 7 8; do head -c 10M /dev/zero > $i; done; sleep 5"
        end = await sandbox.run(Command(argv=("sh", "-c", fill), timeout_s=10))
        assert "disk_limit" in found(end)
        clear = Command(argv=("sh", "-c", "sleep 0.5; rm *"), timeout_s=10)
        assert (await sandbox.run(clear)).exit_code == 0
        end = await sandbox.run(Command(argv=("sh", "-c", "echo small > a"), timeout_s=10))
        assert not end.findings

    in_sandbox(any_way, spec(tmp_path), fill_and_clear)


def test_daemon_is_killed_and_reported(backend: SandboxBackend, tmp_path: Path) -> None:
    end = run(backend, spec(tmp_path), *python(f"mark = '{MARK}'\n{DAEMON}"))
    assert end.exit_code == 0
    assert found(end) == {"left_processes"}
    assert not leftovers(MARK)


def test_processes_that_end_with_their_command_are_not_reported(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    end = run(backend, spec(tmp_path), "sh", "-c", "sleep 0.03 & true")
    assert not end.findings


def test_network_is_blocked_and_attempts_are_reported(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    end = run(backend, spec(tmp_path), *python(REACH))
    assert end.output.split() == [b"101", b"101", b"no", b"name"]
    assert found(end) == {"network_refused"}
    assert end.seconds < 10


def test_host_server_cannot_be_reached(any_way: SandboxBackend, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        end = run(any_way, spec(tmp_path), *python(text))
        assert b"Connection refused" in end.output
        allowed = spec(tmp_path, ResourceLimits(network=("public",)))
        assert b"Connection refused" in run(any_way, allowed, *python(text)).output


def test_mounted_unix_socket_can_be_reached(any_way: SandboxBackend, tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    (tmp_path / "repo").mkdir()

    async def main() -> bytes:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_unix_server(answer, folder / "model.sock")
        # In Docker, the user of the sandbox is another one than root.
        (folder / "model.sock").chmod(0o666)
        async with server:
            text = "import socket; s = socket.socket(socket.AF_UNIX); "
            text += "s.connect('/sockets/model.sock'); s.send(b'hello\\n'); print(s.recv(99))"
            given = spec(tmp_path / "repo", SMALL, Mount(folder, "/sockets"))
            async with any_way.open(given) as sandbox:
                end = await sandbox.run(Command(argv=python(text), timeout_s=10))
            assert not end.findings
            return end.output

    assert asyncio.run(main()) == b"b'hello\\n'\n"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/etc/ssl/private",
        str(Path.home() / ".bashrc"),
        "/home",
        "/var",
        "/sys",
        str(Path.home()),
    ],
)
def test_host_files_are_not_visible(any_way: SandboxBackend, tmp_path: Path, path: str) -> None:
    # An empty folder, as Docker hides things behind, has nothing of this machine.
    look = f'test ! -e {path} || test -z "$(ls -A {path})"'
    assert run(any_way, spec(tmp_path), "sh", "-c", look).exit_code == 0


def test_proc_shows_no_host_variables_or_paths(
    any_way: SandboxBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-machine")
    look = "cat /proc/*/environ /proc/*/cmdline; env; ls -l /proc/self/fd"
    end = run(any_way, spec(tmp_path), "sh", "-c", look)
    assert b"HOME=/tmp/home" in end.output
    assert b"sk-of-this-machine" not in end.output
    assert os.fsencode(tmp_path) not in end.output


def test_host_processes_are_not_visible(any_way: SandboxBackend, tmp_path: Path) -> None:
    end = run(any_way, spec(tmp_path), "sh", "-c", "ls -d /proc/[0-9]*")
    assert len(end.output.split()) <= 5


@pytest.mark.parametrize("path", ["/", "/usr", "/etc", "/dev", "/app", "/proc/sys/kernel"])
def test_only_the_sandbox_folders_are_writable(
    any_way: SandboxBackend, tmp_path: Path, path: str
) -> None:
    end = run(any_way, spec(tmp_path), *python(f"open('{path}/new', 'w')"))
    assert end.exit_code == 1
    assert b"Error" in end.output


def test_read_only_mount_is_not_writable(any_way: SandboxBackend, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "repo").mkdir()
    given = spec(tmp_path / "repo", SMALL, Mount(tmp_path / "given", "/given"))
    end = run(any_way, given, "sh", "-c", "mount -o remount,rw /given; touch /given/new")
    assert end.exit_code == 1
    assert not list((tmp_path / "given").iterdir())


def test_link_out_of_the_repository_is_dangling(
    any_way: SandboxBackend, tmp_path: Path
) -> None:
    outside = tmp_path / "secret"
    outside.write_text("of this machine")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "link").symlink_to(outside)
    end = run(any_way, spec(tmp_path / "repo"), "cat", "link", "../../secret")
    assert end.exit_code == 1
    assert b"of this machine" not in end.output


def test_privileges_cannot_be_gained(any_way: SandboxBackend, tmp_path: Path) -> None:
    look = "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; id -u; unshare -Ur true"
    end = run(any_way, spec(tmp_path), "sh", "-c", look)
    lines = end.output.split(b"\n")
    assert lines[0].split() == [b"CapEff:", b"0000000000000000"]
    assert lines[1].split() == [b"CapBnd:", b"0000000000000000"]
    assert lines[2].split() == [b"NoNewPrivs:", b"1"]
    assert lines[3] == b"1000"
    assert end.exit_code != 0


@pytest.mark.parametrize(
    "attack", ["kill -9 -1", "kill -9 $PPID; sleep 60", "kill -9 2; sleep 60"]
)
def test_killing_the_supervisor_ends_the_sandbox_and_is_reported(
    backend: SandboxBackend, tmp_path: Path, attack: str
) -> None:
    end = run(backend, spec(tmp_path), "sh", "-c", f"{attack}; echo {MARK}")
    if backend.name == "docker":  # where it belongs to another user, and outlives them all
        assert not end.findings
    else:
        assert end.exit_code == 137
        assert "supervisor_killed" in found(end)
        assert end.seconds < 50
    assert not leftovers(MARK)


@pytest.mark.parametrize("attack", ["kill -TERM 0", "kill -9 0"])
def test_signals_to_the_process_group_end_only_the_command(
    any_way: SandboxBackend, tmp_path: Path, attack: str
) -> None:
    end = run(any_way, spec(tmp_path), "sh", "-c", attack)
    assert end.exit_code in (137, 143)
    assert not end.findings


def test_init_process_of_the_sandbox_cannot_be_killed(
    any_way: SandboxBackend, tmp_path: Path
) -> None:
    end = run(any_way, spec(tmp_path), "sh", "-c", "kill -9 1; sleep 0.1; echo here")
    assert (end.exit_code, end.output[-5:]) == (0, b"here\n")


def test_stopping_the_supervisor_leads_to_the_time_limit(
    any_way: SandboxBackend, tmp_path: Path
) -> None:
    end = run(any_way, spec(tmp_path), "sh", "-c", "kill -STOP $PPID", timeout_s=1)
    assert end.timed_out
    assert end.exit_code is None


def test_cpu_limit_cannot_be_raised_from_inside(
    backend: SandboxBackend, tmp_path: Path
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one CPU only")
    burn = "import os, time\nfor _ in range(3):\n    if os.fork() == 0: break\n"
    burn += "end = time.monotonic() + 2\nwhile time.monotonic() < end:\n"
    burn += "    try: os.sched_setaffinity(0, range(os.cpu_count()))\n"
    burn += "    except PermissionError: pass\n"
    burn += "time.sleep(0.1)"
    end = run(backend, spec(tmp_path, ResourceLimits(cpus=1.0)), *python(burn))
    assert end.exit_code == 0
    assert end.cpu_s < 2.7


def test_files_written_in_a_sandbox_belong_to_the_user_without_setuid(
    any_way: SandboxBackend, tmp_path: Path
) -> None:
    script = (
        "mkdir new; touch new/file; cp /bin/true new/true; chmod 6755 new/true; chmod 2 new"
    )
    run(any_way, spec(tmp_path), "sh", "-c", script)
    for path in (tmp_path, tmp_path / "new", tmp_path / "new/file"):
        assert path.stat().st_uid == os.getuid()
    (tmp_path / "new").chmod(0o755)
    assert (tmp_path / "new/true").stat().st_mode & 0o7777 == 0o755


def test_kernel_files_cannot_be_written(any_way: SandboxBackend, tmp_path: Path) -> None:
    script = """
import os
for folder, _, names in os.walk("/proc/sys"):
    for name in names:
        try:
            os.close(os.open(f"{folder}/{name}", os.O_WRONLY))
            print(folder, name)
        except OSError:
            pass
"""
    same = "cat /proc/sys/kernel/core_pattern | tee /proc/sys/kernel/core_pattern"
    assert run(any_way, spec(tmp_path), *python(script)).output == b""
    assert run(any_way, spec(tmp_path), "sh", "-c", same).exit_code != 0


@pytest.mark.bench
def test_writable_folders_allow_no_setuid_programs_or_devices(tmp_path: Path) -> None:
    end = run(usable(None), spec(tmp_path), "cat", "/proc/self/mountinfo")
    options = {
        words[4]: words[5].split(",")
        for words in map(str.split, end.output.decode().split("\n")[:-1])
    }
    assert {"/app/repo", "/tmp", "/dev/shm"} <= options.keys()
    open_to = [
        place
        for place, given in options.items()
        if not place.startswith("/dev/") and "ro" not in given
        if not {"nosuid", "nodev"} <= {*given}
    ]
    assert open_to == []
    assert {"nosuid", "nodev"} <= {*options["/dev/shm"]}


@pytest.mark.bench
def test_root_only_folders_are_accessible_only_through_mounts(
    tmp_path: Path,
) -> None:
    closed = tmp_path / "closed"
    (closed / "repo").mkdir(parents=True)
    (closed / "given").write_text("given")
    closed.chmod(0o700)
    given = spec(closed / "repo", SMALL, Mount(closed / "given", "/given"))
    end = run(usable(None), given, "sh", "-c", "cat /given; touch made")
    assert (end.exit_code, end.output) == (0, b"given")
    assert (closed / "repo/made").exists()
    assert not leftovers()


@pytest.mark.skipif(os.getuid() != 0, reason="whoever is not root has its own files inside")
def test_unreadable_mount_is_named_in_the_error(
    any_way: SandboxBackend, tmp_path: Path
) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "repo").mkdir()
    given = spec(tmp_path / "repo", SMALL, Mount(tmp_path / "closed", "/closed"))
    with pytest.raises(SandboxUnavailable, match=r"closed.*chmod o\+rX"):
        run(any_way, given, "true")
    assert not leftovers()


def test_sandboxes_share_neither_memory_nor_queues_nor_keys(
    any_way: SandboxBackend, tmp_path: Path
) -> None:
    script = """
import ctypes, os, platform
libc = ctypes.CDLL(None)
keyctl = 250 if platform.machine() == "x86_64" else 219
print(libc.shmget(4711, 4096, 0), os.listdir("/dev/shm"), libc.mq_open(b"/mine", 0),
      libc.syscall(keyctl, 0, -3, 1))
libc.shmget(4711, 4096, 0o1666)
open("/dev/shm/mine", "w").close()
libc.mq_open(b"/mine", 0o102, 0o666, None)
"""
    for _ in range(2):
        assert run(any_way, spec(tmp_path), *python(script)).output == b"-1 [] -1 -1\n"

"""Sandbox parts that need no sandbox: output, folders, control group files."""

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pytest

from assay.core.files import remove_folder
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import ResourceLimits
from assay.sandboxes.cgroups import GroupV2, cgroup_mounts, find_limiting_group, own_groups
from assay.sandboxes.folders import TooDeep, measure_folders, new_folder, sweep_folders
from assay.sandboxes.host_checks import bwrap_path, check_bwrap
from assay.sandboxes.layers import Changed, unpack_layer, write_layer
from assay.sandboxes.procfs import BoundedOutput, command_lines, descendants, is_alive
from assay.sandboxes.roots import python_mounts, python_path
from tests.support import run_python

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /box /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
"""
MINE = "4:memory:/box/mine\n2:cpu,cpuacct:/user\n1:name=systemd:/x\n0::/user.slice/a.scope\n"


def test_short_output_is_kept_whole() -> None:
    output = BoundedOutput(10)
    for chunk in (b"abc", b"", b"defghij"):
        output.add(chunk)
    assert output.content() == b"abcdefghij"
    assert output.dropped == 0


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_long_output_loses_its_middle_in_any_chunking(size: int) -> None:
    output = BoundedOutput(10)
    whole = b"begin" + b"." * 990 + b"ended"
    for start in range(0, len(whole), size):
        output.add(whole[start : start + size])
    assert output.content() == b"begin\n[... 990 bytes left out ...]\nended"
    assert output.dropped == 990


def test_own_control_group_is_found_below_its_mount() -> None:
    assert own_groups(MINE, cgroup_mounts(HYBRID)) == {
        "memory": Path("/sys/fs/cgroup/memory/mine"),
        "cpu": Path("/sys/fs/cgroup/cpu,cpuacct/user"),
        "cpuacct": Path("/sys/fs/cgroup/cpu,cpuacct/user"),
        "": Path("/sys/fs/cgroup/unified/user.slice/a.scope"),
    }


def group(folder: Path, controllers: str) -> Path:
    """A folder that looks like a group of version 2."""
    folder.mkdir()
    (folder / "cgroup.procs").touch()
    (folder / "cgroup.subtree_control").write_text(controllers)
    return folder


def test_nearest_usable_control_group_is_chosen(
    tmp_path: Path,
) -> None:
    root = group(tmp_path / "root", "cpu memory pids")
    middle = group(root / "middle", "cpu memory pids")
    own = group(middle / "own", "cpu memory pids")
    assert find_limiting_group(own) == middle
    assert find_limiting_group(middle) == root
    assert find_limiting_group(root) == root


def test_version_2_control_group_limits_and_reports_usage(tmp_path: Path) -> None:
    names = ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.procs")
    for name in names:
        (tmp_path / name).touch()
    held = GroupV2(tmp_path, ResourceLimits(cpus=1.5, memory_mb=64, processes=10))
    held.write_limits()
    held.admit(123)
    assert [(tmp_path / name).read_text() for name in names] == [
        *("67108864", "0", "12", "150000 100000", "123")
    ]
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (tmp_path / "memory.current").write_text("1048576\n")
    assert held.check() is None
    assert held.usage() == (2.5, 1.0, ())
    (tmp_path / "memory.peak").write_text("2097152\n")
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (tmp_path / "pids.events").write_text("max 7\n")
    usage = held.usage()
    assert usage.peak_memory_mb == 2.0
    assert [finding.name for finding in usage.findings] == ["memory_limit", "process_limit"]


def test_disk_usage_counts_files_once_and_follows_no_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(bytes(100_000))
    os.link(tmp_path / "folder" / "file", tmp_path / "again")
    (tmp_path / "link").symlink_to("/usr")
    (tmp_path / "round").symlink_to(".")
    (tmp_path / os.fsdecode(b"\xff")).touch()
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**12)
    assert 100_000 < measure_folders([tmp_path]) < 150_000
    assert 100_000 <= measure_folders([tmp_path / "folder" / "file"]) < 110_000
    assert measure_folders([tmp_path / "nothing"]) == 0


def dig(folder: Path, depth: int) -> None:
    text = f"import os\nfor _ in range({depth}):\n    os.mkdir('d'); os.chdir('d')"
    run_python("-c", text, folder=folder)


@pytest.mark.bench
def test_folders_of_any_depth_are_measured_or_refused_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    dig(folder, 5000)
    with pytest.raises(TooDeep):
        measure_folders([folder])
    remove_folder(folder)
    assert not folder.exists()


def test_folders_without_permissions_are_measured_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_bytes(bytes(50_000))
    (folder / "inner").chmod(0)
    assert measure_folders([folder]) > 50_000
    (folder / "inner").chmod(0)
    remove_folder(folder)
    assert not folder.exists()


def test_only_folders_of_dead_processes_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    living, lock = new_folder()
    dead, gone = new_folder()
    os.close(gone)
    swept: list[Path] = []
    sweep_folders(swept.append)
    assert swept == [dead]
    assert [*tmp_path.iterdir()] == [living]
    os.close(lock)


def test_all_descendant_processes_are_found() -> None:
    script = "sleep 77 & sh -c 'sleep 77 & wait' & wait"
    with subprocess.Popen(["sh", "-c", script]) as process:
        try:
            for _ in range(1000):
                below = descendants(process.pid)
                if command_lines(below).count("sleep 77") == 1 and len(below) == 3:
                    break
            assert len(below) == 3
            assert all(map(is_alive, below))
        finally:
            for pid in [*descendants(process.pid), process.pid]:
                os.kill(pid, 9)
    deadline = time.monotonic() + 5
    while any(map(is_alive, below)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, below))
    assert not descendants(process.pid)


def test_only_the_python_prefixes_are_mounted() -> None:
    targets = [Path(mount.target) for mount in python_mounts()]
    assert all(not mount.writable for mount in python_mounts())
    assert python_path() == sys.executable
    home = Path.home()
    assert not [target for target in targets if home.is_relative_to(target)]
    assert all(mount.source.exists() for mount in python_mounts())


def test_missing_bubblewrap_error_explains_the_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable, match="apt install bubblewrap"):
        bwrap_path()


def test_bubblewrap_error_output_is_quoted() -> None:
    # Root runs bubblewrap as somebody else, who must be able to reach it.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        broken = Path(folder, "bwrap")
        broken.write_text(
            "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1"
        )
        broken.chmod(0o755)
        words = "setting up uid map: Permission denied; user"
        with pytest.raises(SandboxUnavailable, match=words):
            check_bwrap(str(broken))


def test_layer_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        tar.addfile(link)
        for name in ("a/b", "../c", "/d", "e/../../f"):
            tar.addfile(tarfile.TarInfo(name))
    (tmp_path / "root").mkdir()
    unpack_layer(evil, tmp_path / "root")
    assert list(outside.iterdir()) == []
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == ["a", "d"]
    assert not (tmp_path / "c").exists()


def test_layers_have_neither_setuid_bits_nor_devices(tmp_path: Path) -> None:
    made = tmp_path / "file"
    made.touch()
    made.chmod(0o6755)
    written = tmp_path / "written.tar"
    write_layer(written, [Changed("file", made), Changed("null", Path("/dev/null"))], ())
    with tarfile.open(written) as tar:
        assert [(entry.name, entry.mode) for entry in tar] == [("file", 0o755)]
    foreign = tmp_path / "foreign.tar"
    with tarfile.open(foreign, "w") as tar:
        entry = tarfile.TarInfo("file")
        entry.mode = 0o6755
        tar.addfile(entry)
        device = tarfile.TarInfo("null")
        device.type = tarfile.CHRTYPE
        tar.addfile(device)
    (tmp_path / "root").mkdir()
    unpack_layer(foreign, tmp_path / "root")
    (path,) = (tmp_path / "root").iterdir()
    assert path.stat().st_mode & 0o7777 == 0o755

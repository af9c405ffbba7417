"""Choosing a sandbox by name, and the backend without protection."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.backends import choose_backend
from assay.sandboxes.base import Command, Mount, ResourceLimits, Sandbox, SandboxSpec
from assay.sandboxes.bubblewrap import BubblewrapBackend
from assay.sandboxes.unprotected import UnprotectedBackend

from .boxes import MARK, found, in_sandbox, leftovers, run, spec

OWN = """
class Mine:
    name = "mine"

    def enforcement(self, limits):
        return None

    def open(self, spec):
        return None

class Half:
    name = "half"
"""


@pytest.fixture
def unprotected() -> UnprotectedBackend:
    backend = choose_backend("none")
    assert isinstance(backend, UnprotectedBackend)
    return backend


def test_bubblewrap_is_the_default_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SANDBOX_BACKEND", raising=False)
    assert isinstance(choose_backend(), BubblewrapBackend)
    monkeypatch.setenv("SANDBOX_BACKEND", "none")
    assert isinstance(choose_backend(), UnprotectedBackend)
    assert isinstance(choose_backend("bubblewrap"), BubblewrapBackend)


def test_unknown_sandbox_error_lists_the_known_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'bubblewrap'.*none, a class in a file"):
        choose_backend("bublewrap")
    monkeypatch.setenv("SANDBOX_BACKEND", "hope")
    with pytest.raises(UsageError, match=r"'hope'.*\(from \$SANDBOX_BACKEND\)"):
        choose_backend()


def test_custom_backend_is_loaded_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert choose_backend(f"{tmp_path}/own.py:Mine").name == "mine"
    with pytest.raises(UsageError, match="lacks enforcement, open"):
        choose_backend(f"{tmp_path}/own.py:Half")
    with pytest.raises(UsageError, match="no class 'Other'; it has Mine, Half"):
        choose_backend(f"{tmp_path}/own.py:Other")


def test_without_a_sandbox_commands_start_in_the_folder_of_the_mount(
    unprotected: UnprotectedBackend, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    given = SandboxSpec(mounts=(Mount(tmp_path, "/app/repo", True),), workdir="/app/repo/sub")
    end = run(unprotected, given, "sh", "-c", "pwd; echo error >&2; cat; exit 3", stdin=b"in")
    assert (end.exit_code, end.output) == (3, f"{tmp_path}/sub\nerror\nin".encode())
    with pytest.raises(SandboxUnavailable, match="/elsewhere must be a mount"):
        run(unprotected, SandboxSpec(mounts=given.mounts, workdir="/elsewhere"), "true")


def test_without_a_sandbox_no_limit_is_reported_as_enforced(
    unprotected: UnprotectedBackend,
) -> None:
    told = unprotected.enforcement(ResourceLimits())
    assert {told.memory, told.processes, told.cpus, told.disk, told.network} == {"none"}


def test_without_a_sandbox_keys_are_not_passed_to_commands(
    unprotected: UnprotectedBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-machine")
    end = run(unprotected, spec(tmp_path), "env")
    assert b"HOME=" in end.output
    assert b"sk-of-this-machine" not in end.output


def test_without_a_sandbox_the_time_limit_kills_the_group(
    unprotected: UnprotectedBackend, tmp_path: Path
) -> None:
    script = f"echo begun; sleep 1000 & sleep 1000; echo {MARK}"
    end = run(unprotected, spec(tmp_path), "sh", "-c", script, timeout_s=0.3)
    assert end.timed_out
    assert (end.exit_code, end.output) == (None, b"begun\n")
    assert not leftovers(MARK)


def test_without_a_sandbox_a_cancelled_command_is_killed(
    unprotected: UnprotectedBackend, tmp_path: Path
) -> None:
    async def cancel(sandbox: Sandbox) -> None:
        script = f"sleep 1000; echo {MARK}"
        command = Command(argv=("sh", "-c", script), timeout_s=100)
        task = asyncio.ensure_future(sandbox.run(command))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    before = len(os.listdir("/proc/self/fd"))
    in_sandbox(unprotected, spec(tmp_path), cancel)
    assert not leftovers(MARK)
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.bench
def test_without_a_sandbox_output_is_bounded_and_usage_measured(
    unprotected: UnprotectedBackend, tmp_path: Path
) -> None:
    end = run(unprotected, spec(tmp_path), "sh", "-c", "yes | head -c 20000000; exec true")
    assert len(end.output) < 1.1 * 2**20
    assert found(end) == {"output_cut"}
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    end = run(unprotected, spec(tmp_path), sys.executable, "-c", burn)
    assert 0.2 < end.cpu_s < 1
    assert end.peak_memory_mb > 3


def test_without_a_sandbox_a_missing_program_exits_with_127(
    unprotected: UnprotectedBackend, tmp_path: Path
) -> None:
    assert run(unprotected, spec(tmp_path), "no-such-program").exit_code == 127

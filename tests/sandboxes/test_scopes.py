"""Limits by a systemd scope: its request, and when it is not used."""

from pathlib import Path

import pytest

from assay.errors import SandboxUnavailable
from assay.sandboxes.base import ResourceLimits
from assay.sandboxes.watchdog import Scopes


def test_systemd_scope_gets_all_limits_and_no_variables() -> None:
    limits = ResourceLimits(cpus=1.5, memory_mb=64, processes=10)
    prefix = Scopes().prepare(limits, Path("assay-box-1")).prefix
    assert prefix[1:3] == ("--user", "--scope")
    assert {
        "--property=MemoryMax=67108864",
        "--property=MemorySwapMax=0",
        "--property=TasksMax=13",
        "--property=CPUQuota=150%",
    } <= {*prefix}
    assert prefix[-3:] == ("--", "/usr/bin/env", "-i")


def test_scope_is_not_used_without_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="systemd-run is not installed"):
        Scopes().describe(ResourceLimits())
    (tmp_path / "systemd-run").write_text("#!/bin/sh\n")
    (tmp_path / "systemd-run").chmod(0o755)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(SandboxUnavailable, match="no service manager"):
        Scopes().describe(ResourceLimits())


@pytest.mark.bench
def test_scope_without_limits_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.sandboxes.bubblewrap import BubblewrapBackend

    lazy = tmp_path / "systemd-run"
    lazy.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    lazy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("assay.sandboxes.host_checks._problems", {})
    with pytest.raises(SandboxUnavailable, match="scope without these limits"):
        BubblewrapBackend("systemd scope").enforcement(ResourceLimits())

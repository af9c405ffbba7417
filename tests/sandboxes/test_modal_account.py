"""The `modal` sandbox without an account: planning works, and running explains the setup."""

import asyncio
import importlib.util
import platform
from pathlib import Path

import pytest

from assay.api.checks import CheckState, check_modal
from assay.cli import main
from assay.errors import SandboxUnavailable, UsageError
from assay.sandboxes.backends import choose_backend
from assay.sandboxes.base import ResourceLimits, SandboxSpec
from assay.sandboxes.modal.backend import ModalBackend, check_program

BENCH = Path(__file__).parents[2] / "examples" / "bench"


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("modal.config._user_config", {})
    for name in ("ID", "SECRET"):
        monkeypatch.delenv(f"MODAL_TOKEN_{name}", raising=False)


def test_dry_run_shows_the_planned_sandboxes(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["bench", "run", str(BENCH / "quickstart.toml"), "--sandbox", "modal", "--dry-run"]
    assert main(asked) == 0
    told = capsys.readouterr().err
    assert f"modal would start python:3.{platform.python_version_tuple()[1]}-slim" in told
    assert "(with git and pytest) with 1 CPU and 2048 MB, network blocked" in told
    plan = ModalBackend().plan(ResourceLimits(cpus=2, network=("public",)), "the image of x")
    assert "the image of x with 2 CPUs and 2048 MB, network allowed" in plan


def test_run_without_an_account_explains_the_setup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["bench", "run", str(BENCH / "quickstart.toml"), "--sandbox", "modal"]
    assert main(asked) == 1
    told = capsys.readouterr().err
    assert "needs a modal.com account and a token (modal token new, or MODAL_TOKEN" in told
    assert "--dry-run" in told
    backend = choose_backend("modal")
    with pytest.raises(SandboxUnavailable, match="a token"):
        asyncio.run(backend.open(SandboxSpec(mounts=())).__aenter__())
    monkeypatch.setenv("MODAL_TOKEN_ID", "half of one")
    with pytest.raises(SandboxUnavailable, match="a token"):
        backend.enforcement(ResourceLimits())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        SandboxUnavailable,
        match=r"its client \(pip install '\.\[modal\]' in a clone of assay\)",
    ):
        backend.enforcement(ResourceLimits())


def test_doctor_reports_modal_as_optional() -> None:
    told = check_modal()
    assert told.state is CheckState.OK
    assert told.detail.startswith("sandbox 'modal' needs a modal.com account and a token")
    assert told.detail.endswith("; only --sandbox modal needs it")


def test_unreachable_service_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.sandboxes.modal import remote

    monkeypatch.setenv("MODAL_SERVER_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("MODAL_TOKEN_ID", "mine")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "planted")
    monkeypatch.setattr(remote, "_ANSWER_S", 0.5)
    with pytest.raises(
        SandboxUnavailable, match=r"not answer at http://127\.0\.0\.1:1"
    ) as told:
        ModalBackend().enforcement(ResourceLimits())
    assert "planted" not in str(told.value)


def test_agent_for_another_architecture_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    with pytest.raises(UsageError, match=r"'codex' is installed here for .* arm64"):
        check_program("codex")

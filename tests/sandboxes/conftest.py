"""Shared fixtures of sandbox tests: separate caches, a file system, a service."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.bench.base import get_cache_folder
from assay.core.aio import run_in_own_loop
from assay.sandboxes.modal.names import default_image_name

from .boxes import usable
from .rootfs import make_root, slim_root

if TYPE_CHECKING:
    from .modal_server import FakeModal


@pytest.fixture(autouse=True)
def own_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hide the user's installed agents, which change the defaults."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    if not folder.exists():
        folder.mkdir()
        for compiled in get_cache_folder().glob("crafter-*"):
            (folder / compiled.name).symlink_to(compiled)
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(folder))


@pytest.fixture(scope="session")
def image_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system of this machine's own programs, Python included."""
    return make_root(tmp_path_factory.mktemp("rootfs") / "root")


@pytest.fixture(scope="module")
def modal_service(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[FakeModal]":
    """A Modal-compatible service, with an account for the client."""
    # Its client takes half a second to import, which few workers need.
    import modal

    from .modal_server import TOKEN, fake_modal, import_root

    usable("docker")
    root = slim_root(tmp_path_factory.mktemp("slim") / "root")
    base = f"assay-fake-modal-base:{os.getpid()}"
    run_in_own_loop(lambda: import_root(root, base))
    with fake_modal(
        dict.fromkeys((default_image_name(), "base:1", "python:3.12-slim"), base)
    ) as fake:
        patch = pytest.MonkeyPatch()
        for name, value in zip(("ID", "SECRET"), TOKEN, strict=True):
            patch.setenv(f"MODAL_TOKEN_{name}", value)
        patch.setenv("MODAL_SERVER_URL", fake.url)
        yield fake
        modal.Client.from_env().close()
        patch.undo()

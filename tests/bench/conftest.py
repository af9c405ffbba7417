"""What the tests of images share: a small file system to build over, and a cache of images."""

from pathlib import Path

import pytest

from .rootfs import make_root


@pytest.fixture(autouse=True)
def own_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents that the user has installed change what is meant by default."""
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def image_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system of this machine's own programs, Python included."""
    return make_root(tmp_path_factory.mktemp("rootfs") / "root")


@pytest.fixture
def image_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A cache folder of this worker, in which images stay from test to test."""
    folder = tmp_path_factory.getbasetemp() / "image-cache"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(folder))
    return folder

"""What the tests of benchmarks share: caches of their own, and a small file system."""

from pathlib import Path

import pytest

from assay.bench.cache import cache_folder

from .rootfs import make_root


@pytest.fixture(autouse=True)
def own_cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the agents that the user has installed, which change what is meant by default."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    if not folder.exists():
        folder.mkdir()
        for compiled in cache_folder().glob("crafter-*"):
            (folder / compiled.name).symlink_to(compiled)
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(folder))


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

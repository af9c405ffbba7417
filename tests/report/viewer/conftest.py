"""A database with a small run, and a viewer of it, for all tests of the viewer."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

import assay
from assay.report.viewer.server import RunningViewer

MODELS = ("builtin/random", "builtin/forager")


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models in three worlds; no test changes it."""
    path = tmp_path_factory.mktemp("viewed") / "traces.duckdb"
    assay.run(
        models=MODELS,
        episodes=3,
        max_turns=30,
        baselines=False,
        database=path,
        traces_dir=path.parent / "traces",
    )
    return path


@pytest.fixture(scope="session")
def viewer(database: Path) -> Iterator[RunningViewer]:
    with assay.view(database=database, port=0) as running:
        yield running


def client_of(viewer: RunningViewer, *, writes: bool = False) -> httpx2.Client:
    """Return a client with the tokens of a page."""
    headers = {"authorization": f"Bearer {viewer.settings.token}"}
    if writes:
        headers["x-page-token"] = viewer.settings.page_token
    return httpx2.Client(base_url=viewer.address, headers=headers, timeout=120)


@pytest.fixture(scope="session")
def client(viewer: RunningViewer) -> Iterator[httpx2.Client]:
    with client_of(viewer) as client:
        yield client

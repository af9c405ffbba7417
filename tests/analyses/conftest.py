"""A small database of real episodes, for all tests of analyses."""

from pathlib import Path

import pytest

import assay


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Play two models in three easy worlds; the traces are next to the database."""
    folder = tmp_path_factory.mktemp("played")
    assay.run(
        models=["builtin/random", "builtin/forager"],
        episodes=3,
        max_turns=60,
        baselines=False,
        database=folder / "traces.duckdb",
        traces_dir=folder / "traces",
    )
    return folder / "traces.duckdb"

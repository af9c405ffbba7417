"""Real servers on loopback, shared by the tests that leave them as they found them."""

from collections.abc import Iterator

import pytest

from assay.serving import ModelServerSettings, RunningModels, running


@pytest.fixture(scope="session")
def server(compiled_engine: None) -> Iterator[RunningModels]:
    with running(ModelServerSettings(port=0, aliases={"six": "builtin/noop"})) as server:
        yield server


@pytest.fixture(scope="session")
def address(server: RunningModels) -> str:
    return server.address

"""Real servers on loopback, shared by the tests that leave them as they found them."""

from collections.abc import Iterator

import pytest

from assay.api.servers import serve_models
from assay.models.serving.app import RunningModels


@pytest.fixture(scope="session")
def server(compiled_engine: None) -> Iterator[RunningModels]:
    with serve_models(port=0, aliases={"six": "builtin/noop"}) as server:
        yield server


@pytest.fixture(scope="session")
def address(server: RunningModels) -> str:
    return server.address

"""Real servers on loopback, shared by the tests that leave them as they found them."""

from collections.abc import Iterator

import pytest

from assay.serving import Running, Settings, running


@pytest.fixture(scope="session")
def server(compiled_engine: None) -> Iterator[Running]:
    with running(Settings(port=0, aliases={"six": "builtin/noop"})) as server:
        yield server


@pytest.fixture(scope="session")
def address(server: Running) -> str:
    return server.address

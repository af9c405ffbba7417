"""A real service on loopback, shared by the tests that leave it as they found it."""

from collections.abc import Iterator

import pytest

from assay.crafter.service.app import RunningService, ServiceSettings, running


@pytest.fixture(scope="session")
def service(compiled_engine: None) -> Iterator[RunningService]:
    with running(ServiceSettings(port=0, seed=1)) as service:
        yield service


@pytest.fixture(scope="session")
def address(service: RunningService) -> str:
    return service.address

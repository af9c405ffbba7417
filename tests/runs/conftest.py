"""What the tests of runs share."""

from collections.abc import Iterator
from typing import Any

import pytest

from .places import Place, two_nodes


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """One cluster of two nodes for all tests: to start it takes seconds."""
    with two_nodes() as started:
        yield started


@pytest.fixture(
    params=[
        pytest.param("processes", marks=pytest.mark.extras),
        pytest.param("ray", marks=pytest.mark.ray),
    ]
)
def place(request: pytest.FixtureRequest) -> Place:
    """Each place where workers can be."""
    if request.param == "processes":
        return Place({"executor": "processes"})
    nodes = request.getfixturevalue("cluster")
    return Place({"executor": "ray", "ray_address": nodes.address}, nodes)

"""Fixtures and hooks for all tests.

`record_property("note", "3 of 5 seen")` prints that line after the results, whichever
worker ran the test.
"""

import atexit
import os
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from assay.core import secrets
from assay.crafter import warmup
from tests.runs.places import Place, two_nodes

# The duration of an example depends on the load of the machine, so no test fails for it.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_configure() -> None:
    # Registered first, called last: DuckDB is not used after that.
    atexit.register(_drop_duckdb)
    # A shell that starts tests in the background makes them ignore Ctrl-C, and programs that
    # tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _drop_duckdb() -> None:
    """Drop the types that DuckDB's modules hold; it would list them as leaked."""
    for name in [
        name for name in sys.modules if name.partition(".")[0] in ("duckdb", "_duckdb")
    ]:
        vars(sys.modules[name]).clear()


@pytest.fixture(autouse=True, scope="session")
def no_terminal() -> None:
    """Remove the terminal size that xdist workers and readline set."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
        # Readline sets them where Python does not see it.
        os.unsetenv(name)


@pytest.fixture(autouse=True)
def unknown_secrets() -> None:
    """Forget registered secrets, so that no test redacts the keys of another one."""
    secrets._registered.clear()
    secrets._read_environment_secrets.cache_clear()


@pytest.fixture(scope="session")
def compiled_engine() -> None:
    """Compile the engine once, before any test starts a program."""
    warmup()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Start one cluster of two nodes for all tests: it takes seconds."""
    with two_nodes() as started:
        yield started


@pytest.fixture(
    params=[
        pytest.param("processes", marks=pytest.mark.extras),
        pytest.param("ray", marks=pytest.mark.ray),
    ]
)
def place(request: pytest.FixtureRequest) -> Place:
    """Return each place where workers can run."""
    if request.param == "processes":
        return Place({"executor": "processes"})
    nodes = request.getfixturevalue("cluster")
    return Place({"executor": "ray", "ray_address": nodes.address}, nodes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    notes = [
        (report.nodeid, value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name == "note"
    ]
    if notes:
        terminalreporter.section("notes")
    for test, note in sorted(notes):
        terminalreporter.line(f"{test}: {note}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # Files marked local may import torch, so without it they cannot even be collected.
    if find_spec("torch") or config.option.markexpr == "local":
        return None
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    if is_test and "\npytestmark = pytest.mark.local\n" in collection_path.read_text("utf-8"):
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest test runs first, so that it does not run alone at the end.
    items.sort(key=lambda item: item.path.name != "test_makefile.py")

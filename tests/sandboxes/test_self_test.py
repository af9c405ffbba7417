"""The self-test of sandboxes passes with protection and names missing protection."""

import os

import pytest

from assay.api.checks import CheckState, check_protection
from assay.errors import SandboxUnavailable
from assay.sandboxes.base import ResourceLimits
from assay.sandboxes.self_test import run_self_test, verify_enforcement
from assay.sandboxes.unprotected import UnprotectedBackend

from .boxes import ANY_WAY, leftovers, usable


class Open(UnprotectedBackend):
    """A backend without protection under the name of a protecting one."""

    name = "bubblewrap"


@pytest.mark.parametrize("way", ANY_WAY)
def test_self_test_passes_in_a_sandbox_and_is_recorded(way: str | None) -> None:
    backend = usable(way)
    found = run_self_test(backend)
    assert (found.holes, found.not_held) == ((), ())
    told = verify_enforcement(backend, ResourceLimits()).self_test
    assert told.startswith("held: user, kernel files, mounts, privileges, keyrings, ")
    assert not leftovers()


def test_self_test_finds_every_hole_without_protection() -> None:
    found = run_self_test(Open())
    names = {hole.partition(":")[0] for hole in found.holes}
    assert {"shared memory", "signals", "loopback", "abstract sockets"} <= names
    if os.geteuid() == 0:
        assert {"user", "kernel files", "privileges"} <= names
    assert [limit.partition(":")[0] for limit in found.not_held] >= ["file size", "memory"]
    assert not leftovers()


def test_run_is_rejected_with_the_name_of_the_hole() -> None:
    with pytest.raises(SandboxUnavailable, match=r"loopback: .* can be reached"):
        verify_enforcement(Open(), ResourceLimits())


def test_untested_properties_are_listed() -> None:
    assert not run_self_test(UnprotectedBackend()).is_tested
    check = check_protection("none")
    assert (check.state, check.name) == (CheckState.WARN, "self-test")


@pytest.mark.bench
def test_doctor_runs_the_self_test_on_request() -> None:
    usable(None)
    check = check_protection("bubblewrap")
    assert check.state is CheckState.OK
    assert "held: user, kernel files" in check.detail

"""`assay doctor`: what is in order and what is not, with the next step for each."""

from typing import TYPE_CHECKING

from assay.cli.database import Database
from assay.cli.output import Show, say, say_json
from assay.traces.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.api import Check

__all__ = ["doctor"]


def doctor(
    *,
    service_url: str | None = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Look at everything a run depends on, and say what to do about it.

    Each line says how one thing stands: ok, warn or fail. Nothing is repaired.
    The exit code is 1 if anything fails.

    For example:

        assay doctor --database my_experiments.duckdb

    Args:
        service_url: A service that has to answer; without it, one on port 8901 may.
        database: The database that runs write to.
        show: What to print.
    """
    from assay import api
    from assay.rollouts.config import SETTINGS

    address: str | None = None
    if service_url is not None:
        address = SETTINGS["service_url"].read(service_url, "--service-url")
    found = []
    for check in api.doctor(service_url=address, database=database):
        found.append(check)
        if not show.json and not (show.quiet and check.state is api.CheckState.OK):
            _print(check)
    failed = sum(check.state is api.CheckState.FAIL for check in found)
    warned = sum(check.state is api.CheckState.WARN for check in found)
    if show.json:
        say_json({"checks": [_plain(check) for check in found], "failed": failed})
    elif not show.quiet:
        say(_sum_up(failed, warned))
    return 1 if failed else 0


def _print(check: "Check") -> None:
    say(f"{check.state:5} {check.name:9} {check.detail}")
    if check.next_step is not None:
        say(f"{'':15} next: {check.next_step}")


def _plain(check: "Check") -> dict[str, str | None]:
    return {
        "name": check.name,
        "state": str(check.state),
        "detail": check.detail,
        "next_step": check.next_step,
    }


def _sum_up(failed: int, warned: int) -> str:
    if not failed and not warned:
        return "all is well"
    parts = []
    if failed:
        parts.append(f"{failed} failed")
    if warned:
        parts.append(f"{warned} to look at")
    return ", ".join(parts)

"""`assay doctor` checks the installation; `assay warmup` compiles the world engine."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from assay.cli.options import Database
from assay.cli.output import OutputOptions, print_json, print_line, show_compilation
from assay.cli.tables import print_wrapped
from assay.core.text import counted
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.api.checks import Check


def doctor(
    *,
    service_url: Annotated[str | None, Parameter(show_default="port 8901, optional")] = None,
    database: Database = DEFAULT_DATABASE,
    sandbox: str | None = None,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Check everything a run depends on, and print how to fix problems.

    Each line is the result of one check: ok, warn or fail. Nothing is changed. The exit code
    is 1 if a check fails.

    For example:

        assay doctor --database my_experiments.duckdb

    Args:
        service_url: Crafter service to check; it must respond.
        database: Database that runs write to.
        sandbox: Also run attacks in this sandbox, and report whether it blocks them: bubblewrap
            or docker.
        show: Output options.
    """
    from assay.api.checks import CheckState, doctor
    from assay.episodes.config import SETTINGS

    address: str | None = None
    if service_url is not None:
        address = SETTINGS["service_url"].read(service_url, "--service-url")
    checks = []
    for check in doctor(service_url=address, database=database, sandbox=sandbox):
        checks.append(check)
        if not show.json and not (show.quiet and check.state is CheckState.OK):
            _print_check(check)
    failed = sum(check.state is CheckState.FAIL for check in checks)
    warned = sum(check.state is CheckState.WARN for check in checks)
    if show.json:
        print_json({"checks": [_check_to_json(check) for check in checks], "failed": failed})
    elif not show.quiet:
        print_line(_format_summary(failed, warned))
    return 1 if failed else 0


def _print_check(check: "Check") -> None:
    print_wrapped(f"{check.state:5} {check.name:9} {check.detail}", indent=16)
    if check.next_step is not None:
        print_wrapped(f"{'':15} next: {check.next_step}", indent=18)


def _check_to_json(check: "Check") -> dict[str, str | None]:
    return {
        "name": check.name,
        "state": str(check.state),
        "detail": check.detail,
        "next_step": check.next_step,
    }


def _format_summary(failed: int, warned: int) -> str:
    if not failed and not warned:
        return "all checks passed"
    parts = []
    if failed:
        parts.append(f"{failed} failed")
    if warned:
        parts.append(counted(warned, "warning"))
    return ", ".join(parts)


def warmup(*, show: OutputOptions = OutputOptions()) -> int:
    """Compile the world engine now, so that later commands start faster.

    The result is stored in your cache folder, for this version of assay and this type of
    processor.

    For example:

        assay warmup
    """
    with show_compilation(show):
        from assay.crafter.world import warmup as compile_engine

        done = compile_engine()
    where = None if done.directory is None else str(done.directory)
    if show.json:
        seconds = round(done.seconds, 3)
        print_json({"compiled": done.compiled, "seconds": seconds, "directory": where})
    elif not show.quiet:
        message = (
            "compiled the world engine"
            if done.compiled
            else "the world engine is already compiled"
        )
        print_line(f"{message}; ready in {done.seconds:.1f} s")
        print_line(f"cache: {where or 'none, because no directory is writable'}")
    return 0

"""What `assay traces delete` and `assay experiments delete` have in common."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from assay._util.text import counted
from assay.cli.output import Show, say, say_json
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.exchange.deletion import Deletion

__all__ = ["DryRun", "Yes", "delete_when_agreed"]

DryRun = Annotated[bool, Parameter(name="--dry-run", negative="", show_default=False)]
Yes = Annotated[bool, Parameter(name="--yes", negative="", show_default=False)]


def delete_when_agreed(
    do: Callable[[bool], "Deletion"], *, dry_run: bool, yes: bool, show: Show
) -> int:
    """Say what would be deleted, ask unless that was agreed, and delete it.

    Args:
        do: Deletes; given true, only says what it would delete.
        dry_run: Only say it.
        yes: Ask nothing.
        show: What to print.
    """
    if not dry_run and not yes:
        _tell(do(True), "would be deleted", show)
        if not sys.stdin.isatty():
            raise UsageError("nothing is deleted yet; give --yes to delete it")
        if input("Delete it? [y/N] ").strip().lower() not in ("y", "yes"):
            say("nothing deleted")
            return 1
    done = do(dry_run)
    if show.json:
        say_json({"deleted": not dry_run, **asdict(done)})
    else:
        _tell(done, "would be deleted" if dry_run else "deleted", show)
    return 0


def _tell(done: "Deletion", what: str, show: Show) -> None:
    if show.json:
        return
    if show.quiet:
        for session in done.sessions:
            say(session)
        return
    for kind, names in (("experiment", done.experiments), ("run", done.runs)):
        for name in names:
            say(f"{kind} {name}")
    say(
        f"{what}: {counted(len(done.sessions), 'episode')},"
        f" {counted(len(done.experiments), 'experiment')}, {counted(len(done.runs), 'run')},"
        f" {counted(done.outcomes, 'result')}, {counted(done.messages, 'message')} that no"
        f" other episode uses, {counted(len(done.files), 'file')}"
    )

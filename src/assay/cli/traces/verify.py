"""`assay traces verify`: is what is stored what the worlds really do?"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay._util.text import counted
from assay.cli.database import Database, open_store
from assay.cli.output import Show, compiling_shown, say, say_json
from assay.cli.traces.counting import counting
from assay.traces.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.metrics import Verification

__all__ = ["verify"]

_MAX_LINES = 20


def verify(
    *names: str,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Replay recorded episodes and compare every step with the recording.

    No model is called. The exit code is 1 if any episode differs.

    For example:

        assay traces verify
        assay traces verify best

    Args:
        names: Episodes, experiments or runs: ids, names, or the start of one; or 'best',
            'worst' or 'latest', which name one episode. Without names: all episodes.
        database: The store to read.
        show: What to print.
    """
    from assay import api

    store = open_store(database, show)
    with compiling_shown(show):
        from assay.crafter import warmup

        warmup()
    with counting(show, "verifying") as progress:
        verifications = api.verify(*names, database=store, progress=progress)
    return _report(verifications, show)


def _report(found: Sequence["Verification"], show: Show) -> int:
    from assay.metrics import Finding

    counts = Counter(each.finding for each in found)
    steps = sum(each.steps for each in found)
    different = [each for each in found if each.finding is Finding.DIFFERENT]
    unverifiable = [each for each in found if each.finding is Finding.UNVERIFIABLE]
    if show.json:
        say_json(
            {
                "sessions": len(found),
                "steps": steps,
                **{str(finding): counts[finding] for finding in Finding},
                "differences": {e.session_id: str(e.difference) for e in different},
                "reasons": {e.session_id: e.reason for e in unverifiable},
            }
        )
        return 1 if different else 0
    _list([f"different     {each.session_id}  {each.difference}" for each in different])
    if not show.quiet:
        _list([f"unverifiable  {each.session_id}  {each.reason}" for each in unverifiable])
    say(
        f"{counted(len(found), 'episode')}, {counted(steps, 'step')}:"
        f" {counts[Finding.SAME]} the same, "
        f"{len(different)} different, {len(unverifiable)} unverifiable"
    )
    return 1 if different else 0


def _list(lines: Sequence[str]) -> None:
    for line in lines[:_MAX_LINES]:
        say(line)
    if len(lines) > _MAX_LINES:
        say(f"... and {len(lines) - _MAX_LINES} more; '--json' has them all")

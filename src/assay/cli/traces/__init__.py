"""`assay traces`: look at what was recorded, check it, and carry it elsewhere."""

from cyclopts import App

from assay.cli.traces.delete import delete
from assay.cli.traces.export import export
from assay.cli.traces.import_ import import_
from assay.cli.traces.list import list_
from assay.cli.traces.merge import merge
from assay.cli.traces.replay import replay
from assay.cli.traces.show import show_
from assay.cli.traces.snapshot import snapshot
from assay.cli.traces.verify import verify

__all__ = [
    "delete",
    "export",
    "import_",
    "list_",
    "merge",
    "replay",
    "show_",
    "snapshot",
    "traces",
    "verify",
]

traces = App(
    name="traces",
    help="""List, show, replay, verify, export and import recorded episodes.

For example:

    assay traces show best
""",
    help_format="plaintext",
    group="Look",
)
traces.command(list_, name="list")
traces.command(show_, name="show")
traces.command(replay, name="replay")
traces.command(verify, name="verify")
traces.command(export, name="export")
traces.command(import_, name="import")
traces.command(merge, name="merge")
traces.command(snapshot, name="snapshot")
traces.command(delete, name="delete")

"""`assay sft`: training data from what was recorded."""

from cyclopts import App, Group

from assay.cli.sft.filter import filter_
from assay.cli.sft.show import show_
from assay.cli.sft.stats import stats
from assay.cli.sft.trace import trace
from assay.cli.sft.validate import validate

__all__ = ["filter_", "sft", "show_", "stats", "trace", "validate"]

sft = App(
    name="sft",
    help="""Make training data of recorded episodes, and check it.

For example:

    assay sft filter --min-achievements 3 --output data.jsonl
""",
    help_format="plaintext",
    group=Group("Improve", sort_key=3),
)
sft.command(filter_, name="filter")
sft.command(validate, name="validate")
sft.command(stats, name="stats")
sft.command(show_, name="show")
sft.command(trace, name="trace")

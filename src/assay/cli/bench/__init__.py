"""`assay bench`: coding benchmarks."""

from cyclopts import App

from assay.cli.bench.compare import compare
from assay.cli.bench.import_ import import_
from assay.cli.bench.summarize import summarize
from assay.cli.bench.tag import tag

__all__ = ["bench", "compare", "import_", "summarize", "tag"]

bench = App(
    name="bench",
    help="""Run coding benchmarks, sum them up, and compare them.

For example:

    assay bench summarize my_benchmark
""",
    help_format="plaintext",
    group="Run",
)
bench.command(summarize, name="summarize")
bench.command(compare, name="compare")
bench.command(tag, name="tag")
bench.command(import_, name="import")

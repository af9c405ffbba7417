"""`assay bench`: coding benchmarks."""

from cyclopts import App

from assay.cli.bench.agents import agents
from assay.cli.bench.compare import compare
from assay.cli.bench.grade import eval_, regrade
from assay.cli.bench.import_ import import_
from assay.cli.bench.make import check, new, prepare
from assay.cli.bench.run import resume, run
from assay.cli.bench.summarize import summarize
from assay.cli.bench.tag import tag

__all__ = [
    "agents",
    "bench",
    "check",
    "compare",
    "eval_",
    "import_",
    "new",
    "prepare",
    "regrade",
    "resume",
    "run",
    "summarize",
    "tag",
]

bench = App(
    name="bench",
    help="""Run coding benchmarks, sum them up, and compare them.

For example:

    assay bench run examples/bench/quickstart.toml
""",
    help_format="plaintext",
    group="Run",
)
bench.command(run, name="run")
bench.command(resume, name="resume")
bench.command(summarize, name="summarize")
bench.command(eval_, name="eval")
bench.command(regrade, name="regrade")
bench.command(compare, name="compare")
bench.command(tag, name="tag")
bench.command(import_, name="import")
bench.command(new, name="new")
bench.command(prepare, name="prepare")
bench.command(check, name="check")
bench.command(agents)

"""Commands that commit 557b711 ran, and that the current code runs again.

Commands run in the folder of the unpacked files, so that no path in them is absolute.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["CONFIGURATIONS", "ELSEWHERE", "KILLED", "OUTPUTS", "RUNS", "STORE", "Output"]

ELSEWHERE: Final = "127.55.71.1:8902"
"""The address of the models of one configuration; it is part of its identity."""

STORE: Final = ("--database", "golden.duckdb")

RUNS: Final[Mapping[str, tuple[str, ...]]] = {
    "plain": (
        *("--models", "builtin/forager", "builtin/random", "--episodes", "4"),
        *("--max-turns", "5", "--hooks", "hooks.py", "--metrics-from", "own.py"),
    ),
    "second": (
        *("--models", "builtin/forager", "--episodes", "4", "--max-turns", "5"),
        *("--no-baselines", "--history", "2"),
    ),
    "decided": (
        *("--models", "builtin/random", "builtin/expert", "--no-baselines"),
        *("--until-decided", "--min-effect", "0.5", "--episodes", "12", "--max-turns", "12"),
    ),
}
"""The finished runs of the database, by id."""

KILLED: Final = (
    *("run", "--models", "golden/player", "builtin/noop", "--no-baselines"),
    *("--episodes", "6", "--max-turns", "8", "--hooks", "hooks.py"),
    *("--max-concurrent-episodes", "2", "--database", "killed.duckdb"),
    *("--traces-dir", "files", "--json"),
)
"""The run that was killed. Its base URL comes from a variable, so that any port will do."""

CONFIGURATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "usual": ("--models", "golden/player", "builtin/forager", "--episodes", "1"),
    "chosen": ("--config", "chosen.toml", "--openai-base-url", f"http://{ELSEWHERE}/v1"),
    "decided": (
        *("--models", "golden/player", "builtin/random", "--no-baselines", "--episodes", "5"),
        *("--until-decided", "reward", "--min-effect", "0.5", "--max-turns", "3"),
        *("--hooks", "hooks.py", "--metrics-from", "own.py"),
    ),
}
"""Three configurations by run id; each has an unfinished run."""


class Output(NamedTuple):
    """A command that reads the database, and the files that it writes."""

    command: tuple[str, ...]
    files: tuple[str, ...] = ()
    """Files or folders that it writes; if there are none, its output is kept."""


_PAIRS: Final = (
    '[{"control": "control.seed1", "candidate": "candidate.seed1"},'
    ' {"control": "control.seed2", "candidate": "candidate.seed2"},'
    ' {"control": "control.seed3", "candidate": "candidate.seed3"},'
    ' {"control": "control.seed4", "candidate": "candidate.seed4"}]'
)
_FIRST: Final = ("--baseline", "builtin/forager v1.0")
"""At that commit the first entry was the baseline."""
_CONTROL: Final = ("control.seed1", "...", "control.seed4")

OUTPUTS: Final[Mapping[str, Output]] = {
    "traces-list": Output(("traces", "list", "--limit", "500", "--json", *STORE)),
    "traces-show": Output(("traces", "show", "best", "--json", *STORE)),
    "traces-verify": Output(("traces", "verify", "plain", "--json", *STORE)),
    "experiments-list": Output(("experiments", "list", "--json", *STORE)),
    "experiments-log": Output(("experiments", "log", "builtin/forager", "--json", *STORE)),
    "experiments-show": Output(
        ("experiments", "show", "builtin/forager v1.1", "--json", *STORE)
    ),
    "curves-list": Output(("curves", "list", "--json", *STORE)),
    "curves-show": Output(("curves", "show", "control.seed1", "--json", *STORE)),
    "compare": Output(("compare", "plain", *_FIRST, "--json", *STORE)),
    "compare-own": Output(
        (
            *("compare", "plain", *_FIRST, "--metrics", "idle,reward"),
            *("--metrics-from", "own.py"),
            *("--min-effect", "2", "--json", *STORE),
        )
    ),
    "compare-decided": Output(("compare", "decided", "--json", *STORE)),
    "compare-over-time": Output(
        ("compare", "builtin/forager", "--over-time", "--json", *STORE)
    ),
    "compare-files": Output(
        (
            *("compare", "decided", "--output", "outputs/decided.json"),
            *("--output", "outputs/decided.csv", "--output", "outputs/decided.md", *STORE),
        ),
        ("decided.json", "decided.csv", "decided.md"),
    ),
    "variance": Output(
        (
            *("variance", *_CONTROL, "--metric", "reward", "--json"),
            *("--output", "variance.png", *STORE),
        )
    ),
    "analysis": Output(
        (
            *("analysis", "--pairs", _PAIRS, "--plan", "plan.toml"),
            *("--ttest.enabled", "--power.enabled", "--json", *STORE),
        )
    ),
    "analysis-file": Output(
        (
            *("analysis", "--control-run-ids", *_CONTROL, "--candidate-run-ids"),
            *("candidate.seed1", "...", "candidate.seed4", "--metric", "reward"),
            *("--bootstrap.method", "bca", "--output.csv_path", "outputs/analysis.csv", *STORE),
        ),
        ("analysis.csv",),
    ),
    "export-json": Output(
        ("traces", "export", "plain", "--output", "outputs/json", *STORE), ("json",)
    ),
    "export-jsonl": Output(
        (
            *("traces", "export", "--format", "jsonl"),
            *("--output", "outputs/all.jsonl", *STORE),
        ),
        ("all.jsonl",),
    ),
    "export-parquet": Output(
        (
            *("traces", "export", "plain", "--format", "parquet"),
            *("--output", "outputs/parquet", *STORE),
        ),
        ("parquet",),
    ),
    "export-atif": Output(
        (
            *("traces", "export", "second", "--format", "atif"),
            *("--output", "outputs/atif", *STORE),
        ),
        ("atif",),
    ),
    "experiments-export": Output(
        ("experiments", "export", "plain", "--output", "outputs/experiments.json", *STORE),
        ("experiments.json",),
    ),
    "compare-experiments-file": Output(
        ("compare", "--experiments", "outputs/experiments.json", "--json")
    ),
    "compare-results-files": Output(
        (
            *("compare", "--baseline", "results/plain.json#builtin/random"),
            *("--improved", "results/plain.json#builtin/forager"),
            *("--metric", "reward", "--json"),
        )
    ),
}
"""Commands that read the database, in order, by the name of their output."""

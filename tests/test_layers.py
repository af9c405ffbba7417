"""Imports point one way: a package may import only what stands above it in the list."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "assay"

LAYERS = (
    *("_version", "errors", "_util", "types"),
    *("_http", "crafter", "stats", "judge", "models", "traces"),
    *("exchange", "experiments", "service", "players", "agents", "serving", "metrics"),
    *("trials", "runs", "rollouts", "bench", "curves", "sweeps", "analyses", "datasets"),
    "finetune",
    *("training", "loop", "report", "viewer", "api", "cli", "__main__"),
)
SIBLINGS = {"_http", "crafter", "models", "traces", "stats"}
STORES = {"traces", "exchange", "experiments"}
"""Who may speak to DuckDB, and who alone writes SQL."""
OWN_FILE = Path("models/cache.py")
"""The cache of replies is an SQLite file of its own, which no other package reads."""
SERVERS = {"_http", "service", "serving", "finetune", "viewer"}
HOMES = {
    "PIL": {"crafter", "cli"},
    "aiohttp": {"bench", "models", "service"},
    "crafter": {"crafter"},
    "cyclopts": {"cli"},
    "duckdb": STORES,
    "gymnasium": {"crafter", "rollouts", "training"},
    "httpx2": {"models"},
    "llvmlite": {"crafter"},
    "matplotlib": {"report"},
    "mettagrid": {"training"},
    "numba": {"crafter"},
    "openai": {"models", "finetune"},
    "optuna": {"sweeps"},
    "pandas": {"traces"},
    "pyarrow": STORES,
    "pydantic": {*STORES, *SERVERS, "bench", "models", "rollouts", "curves"},
    "pydantic_core": {*STORES, *SERVERS, "models", "rollouts", "curves", "datasets"},
    "ray": {"runs"},
    "rich": {"cli", "report"},
    "safetensors": {"_util"},
    "scipy": {"stats"},
    "starlette": SERVERS,
    "statsmodels": set[str](),
    "torch": {"_util", "finetune", "training"},
    "uvicorn": SERVERS,
    "wandb": {"curves", "training"},
}
PUBLIC = {
    "_http": {"guard", "hosting", "protocol", "refusal", "replies"},
    "_util": {
        *(
            "backoff",
            "bounds",
            "canonical",
            "descriptors",
            "files",
            "git",
            "lazy",
            "loops",
            "names",
        ),
        *(
            "provenance",
            "redact",
            "secret",
            "settings",
            "syncing",
            "tensors",
            "text",
            "user_files",
            "user_threads",
        ),
        *("values", "wildcards"),
    },
    "analyses": {
        *("achievements", "actions", "costs", "deaths", "episodes", "hooks", "last_steps"),
        *("declared_hooks", "enhanced_hooks", "hook_schema", "quality"),
        *("terrain", "training", "worlds"),
    },
    "agents": {"builtin", "chat_models", "game", "options", "own", "tuned"},
    "bench": {
        *(
            "arms",
            "checking",
            "coders",
            "attempt",
            "comparing",
            "config",
            "ends",
            "grading",
            "harbor",
            "importing",
            "kind",
        ),
        *(
            "manifest",
            "sandboxes",
            "sandboxes.base",
            "seams",
            "selecting",
            "summary",
            "tagging",
            "tasks",
        ),
    },
    "crafter": {
        *("difficulty", "engine.jit", "gif", "rules", "text", "text.observation", "view"),
    },
    "curves": {
        *("analysis", "capacity", "design", "files", "gather", "looks", "plan", "settings"),
        *("sources", "variance", "wandb_project"),
    },
    "datasets": {
        *("building", "chat_template", "data_file", "examples", "filters", "formats"),
        *("manifest", "masks", "message_checks", "plan", "schemas", "split", "tokenizer"),
        "validation",
    },
    "exchange": {
        *("deletion", "export", "formats", "formats.layout", "imports", "merge"),
        *("mlflow_stores", "parquet"),
        *("results", "snapshot", "sources", "trace_folder"),
    },
    "experiments": {
        *(
            "analysis_looks",
            "changelog",
            "curves",
            "finetune_jobs",
            "looks",
            "metric_outcomes",
            "outcome_files",
            "outcomes",
        ),
        *("plans", "trained_worlds", "training", "versions"),
    },
    "finetune": {"service"},
    "judge": {
        *("changes", "describing", "design", "facts", "looks", "matching", "outcomes"),
        *("over_time", "plans", "ranking", "subjects"),
    },
    "metrics": {"tally"},
    "models": {"connections", "cost", "faults", "local_service", "reach", "registry", "wire"},
    "players": {"expert", "expert.turns"},
    "report": {
        *(
            "analyses",
            "analysis",
            "benchmark",
            "comparison",
            "data",
            "dataset_card",
            "figures.drawing",
            "files",
            "loop",
            "over_time",
        ),
        *("ranking", "terminal", "variance"),
    },
    "rollouts": {
        *("config", "environments", "estimate", "forks", "progress", "sample"),
        *("template", "verifying"),
    },
    "runs": {
        "addresses",
        "arms",
        "choosing",
        "kind",
        "looks",
        "model_calls",
        "processes",
        "remaining",
        "room",
        "settings",
        "spending",
        "template",
    },
    "service": {"client", "client.http", "results", "worlds"},
    "serving": {"answers", "app", "wire"},
    "stats": {
        *("clusters", "differences", "effects", "intervals", "learning", "many", "means"),
        *(
            "normality",
            "pairing",
            "planning",
            "precision",
            "ranking",
            "score",
            "selection",
            "look_alphas",
            "sequential",
            "spending",
            "t_bounds",
        ),
        *("components", "estimates", "losses", "passes", "shares"),
        *("significance", "spread", "survival", "two_samples", "windows", "within"),
    },
    "traces": {
        "attaching",
        *(
            "call_totals",
            "codec",
            "columns",
            "conversations",
            "database",
            "facts",
            "folder",
            "ingest",
            "intake",
            "journal",
            "listing",
        ),
        *("load", "location", "migrations", "names", "queries", "recorder", "records", "rows"),
        *("opening", "schema"),
        *("select", "steps", "store", "totals", "trace", "writer"),
    },
    "training": {"agent", "architectures", "extra", "launch", "wandb_log"},
}
"""The modules of a package that others may name; everything else is its own business."""
COMPOSED = {
    "curves": set[str](),
    "exchange": {"formats"},
    "experiments": set[str](),
    "traces": {"location", "store"},
}
"""What commands get from `api` alone, but for these modules; types are theirs to name."""
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|ATTACH|COPY|WITH|FROM)\s")


class Import(NamedTuple):
    line: int
    module: str
    """The absolute dotted name."""
    names: tuple[str, ...] = ()
    """What is taken from it; empty for `import a`."""


def violations(path: Path, text: str) -> list[str]:
    """What a file, given relative to the package, imports that it may not."""
    layer = path.parts[0].removesuffix(".py")
    if path == Path("__init__.py"):
        return []
    if layer not in LAYERS:
        return [f"{path}: {layer!r} has no place in the list of layers"]
    reasons = ((imported, _objection(layer, imported)) for imported in imports(path, text))
    found = [
        f"{path}:{imported.line}: {imported.module}: {reason}"
        for imported, reason in reasons
        if reason
    ]
    if layer not in STORES and path != OWN_FILE:
        found += [
            f"{path}:{line}: SQL belongs into {sorted(STORES)} only" for line in queries(text)
        ]
    return found


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    """All that a file is made of; walking takes longer than looking."""
    return tuple(ast.walk(ast.parse(text)))


def queries(text: str) -> Iterator[int]:
    """The lines on which a file gives SQL to a connection."""
    for node in nodes(text):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="execute" | "executemany" | "sql" | "query"),
                args=[
                    ast.Constant(value=str(sql))
                    | ast.JoinedStr(values=[ast.Constant(value=str(sql)), *_]),
                    *_,
                ],
            ) if SQL.match(sql):
                yield node.lineno


def imports(path: Path, text: str) -> Iterator[Import]:
    """Every import of a file, at any depth, with relative ones resolved."""
    package = ("assay", *path.parent.parts)
    typing = {
        id(inner)
        for node in nodes(text)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in nodes(text):
        if path.parts[0] == "cli" and id(node) in typing:
            continue
        match node:
            case ast.Import(names=names):
                yield from (Import(node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package[: len(package) - level + 1] if level else ()
                start = ".".join([*base, *([module] if module else [])])
                if start == "assay":
                    yield from (Import(node.lineno, f"assay.{alias.name}") for alias in names)
                else:
                    yield Import(node.lineno, start, tuple(alias.name for alias in names))
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield Import(node.lineno, module)


def _objection(layer: str, imported: Import) -> str | None:
    top, *rest = imported.module.split(".")
    if top != "assay":
        homes = HOMES.get(top)
        return None if homes is None or layer in homes else f"belongs into {sorted(homes)} only"
    target = rest[0] if rest else ""
    if target not in LAYERS:
        return "name the package that has it, not 'assay'"
    if target == layer:
        return None
    if LAYERS.index(target) > LAYERS.index(layer):
        return f"{target!r} stands below {layer!r}"
    if {target, layer} <= SIBLINGS:
        return f"{target!r} and {layer!r} do not know each other"
    if layer == "cli" and target in COMPOSED and ".".join(rest[1:]) not in COMPOSED[target]:
        return "ask 'assay.api' for it: commands parse, call and print"
    if layer == "runs" and target in {"crafter", "service", "players", "agents"}:
        return f"{layer!r} knows no world and nobody who plays in it"
    module = ".".join(rest[1:])
    if module and module not in PUBLIC.get(target, set()):
        return f"{module!r} is not a public module of {target!r}"
    private = [
        name for name in imported.names if name.startswith("_") and not name.endswith("__")
    ]
    return f"{', '.join(private)} of {target!r} is private" if private else None


def test_every_import_points_up_the_list_and_heavy_ones_stay_at_home() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 10
    found = [
        line
        for file in files
        for line in violations(file.relative_to(SOURCE), file.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("crafter/world.py", "import assay.agents", id="import"),
        pytest.param("crafter/world.py", "from assay.agents import play", id="from"),
        pytest.param("crafter/world.py", "from assay import agents", id="from the root"),
        pytest.param("crafter/world.py", "from ..agents import play", id="relative"),
        pytest.param("crafter/world.py", "from .. import agents", id="relative to the root"),
        pytest.param("crafter/world.py", "def f():\n    from assay import cli", id="nested"),
        pytest.param("crafter/world.py", "import_module('assay.cli')", id="by name"),
        pytest.param("crafter/world.py", "import assay.stats", id="sibling"),
        pytest.param("runs/execute.py", "import assay.crafter", id="a run of no world"),
        pytest.param("report/x.py", "from assay.traces.rows import _Builder", id="private"),
        pytest.param("report/x.py", "from assay.traces.lines import line", id="not public"),
        pytest.param("agents/react.py", "import openai", id="a client of models"),
        pytest.param("agents/react.py", "import aiohttp", id="a client of HTTP"),
        pytest.param("report/x.py", "import pydantic", id="nothing comes in here"),
        pytest.param("report/x.py", "from PIL import Image", id="pictures"),
        pytest.param("trials/x.py", "import ray", id="clusters"),
        pytest.param("cli/x.py", "import assay.traces.queries", id="a command that composes"),
        pytest.param("cli/x.py", 'c.execute("SELECT 1")', id="SQL"),
        pytest.param("cli/x.py", 'c.execute(f"DELETE FROM {name}")', id="SQL put together"),
        pytest.param("errors.py", "import assay._util.text", id="a file as a layer"),
        pytest.param("agents/expert.py", "from assay import World", id="through the root"),
        pytest.param("agents/expert.py", "import assay", id="the root itself"),
        pytest.param("agents/expert.py", "import numba", id="heavy"),
        pytest.param("stats/table.py", "from rich.table import Table", id="heavy part"),
        pytest.param("agents/expert.py", "import crafter", id="the reference game"),
        pytest.param("helpers/names.py", "", id="a package that nobody planned"),
    ],
)
def test_the_check_objects_to_a_wrong_import(path: str, text: str) -> None:
    assert len(violations(Path(path), text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("__init__.py", "import assay.cli", id="the root is exempt"),
        pytest.param("agents/expert.py", "from assay.crafter import World", id="upward"),
        pytest.param("agents/react.py", "from .reading import Decision", id="own package"),
        pytest.param("_util/names.py", "from assay._version import __version__", id="version"),
        pytest.param("crafter/jit.py", "import numba, numpy", id="heavy at home"),
        pytest.param("traces/x.py", 'c.execute("SELECT 1")', id="SQL at home"),
        pytest.param("api/x.py", "from assay.traces.rows import row", id="a public module"),
        pytest.param("cli/x.py", "self._body.execute('run the plan')", id="no SQL"),
        pytest.param("__main__.py", "from assay.cli import main", id="the program"),
    ],
)
def test_the_check_lets_a_right_import_pass(path: str, text: str) -> None:
    assert violations(Path(path), text) == []


def test_a_module_is_public_only_if_another_package_names_it() -> None:
    named = {
        imported.module
        for path in (file.relative_to(SOURCE) for file in SOURCE.rglob("*.py"))
        for imported in imports(path, (SOURCE / path).read_text("utf-8"))
        if not imported.module.startswith(f"assay.{path.parts[0]}.")
    }
    public = {
        f"assay.{package}.{module}" for package, modules in PUBLIC.items() for module in modules
    }
    assert public - named == set()

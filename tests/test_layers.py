"""Imports point one way: a package may import only packages before it in the list."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "assay"

LAYERS = (
    *("_version", "errors", "core", "types"),
    *("stats", "crafter", "judge", "store", "models", "agents", "runs", "episodes"),
    *("sandboxes", "bench", "training", "finetune", "report", "analyses", "api", "cli"),
    "__main__",
)
ROOT = {"__init__", "curves", "metrics", "traces"}
"""Modules that only re-export: the root, and paths that user files and documents use."""
BELOW = {"_version", "errors", "types"}
KNOWN = {
    "stats": {"core"},
    "crafter": {"core"},
    "judge": {"core", "stats", "crafter"},
    "models": {"core"},
    "sandboxes": {"core"},
    "runs": {"core", "stats", "judge", "store", "models"},
}
"""Packages with fewer imports than the order allows: judge no store, runs no world or agent."""
SQL_HOMES = (Path("store"), Path("models/cache.py"), Path("training/readers/mlflow.py"))
"""Where SQL is written; the cache of replies and MLflow's stores are files of their own."""
SERVERS = {"core", "crafter", "models", "finetune", "report"}
HOMES = {
    "PIL": {"crafter", "cli"},
    "aiohttp": {"crafter", "models", "sandboxes"},
    "crafter": {"crafter"},
    "cyclopts": {"cli"},
    "duckdb": {"store"},
    "gymnasium": {"crafter", "episodes", "training"},
    "httpx2": {"models"},
    "llvmlite": {"crafter"},
    "matplotlib": {"report"},
    "mettagrid": {"training"},
    "modal": {"sandboxes"},
    "numba": {"crafter"},
    "openai": {"models", "finetune"},
    "optuna": {"training"},
    "pandas": {"store"},
    "pyarrow": {"store"},
    "pydantic": {"crafter", "store", "models", "bench", "finetune"},
    "pydantic_core": {"core", "crafter", "store", "finetune"},
    "ray": {"runs"},
    "rich": {"cli", "report"},
    "safetensors": {"core"},
    "scipy": {"stats"},
    "starlette": SERVERS,
    "statsmodels": set[str](),
    "torch": {"core", "training", "finetune"},
    "uvicorn": {"core"},
    "wandb": {"training"},
}
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|ATTACH|COPY|WITH|FROM)\s")


class Import(NamedTuple):
    line: int
    module: str
    """The absolute dotted name."""
    names: tuple[str, ...] = ()
    """The imported names; empty for `import a`."""


def violations(path: Path, text: str) -> list[str]:
    """Yield the forbidden imports of a file, given relative to the package."""
    layer = path.parts[0].removesuffix(".py")
    if len(path.parts) == 1 and layer in ROOT:
        return []
    if layer not in LAYERS:
        return [f"{path}: {layer!r} has no place in the list of layers"]
    reasons = ((imported, _objection(layer, imported)) for imported in imports(path, text))
    found = [
        f"{path}:{imported.line}: {imported.module}: {reason}"
        for imported, reason in reasons
        if reason
    ]
    if not any(path.is_relative_to(home) for home in SQL_HOMES):
        found += [f"{path}:{line}: SQL belongs into 'store'" for line in queries(text)]
    return found


@cache
def nodes(text: str) -> tuple[ast.AST, ...]:
    """Return all syntax nodes of a file, cached because walking is slow."""
    return tuple(ast.walk(ast.parse(text)))


def queries(text: str) -> Iterator[int]:
    """Yield the lines on which a file passes SQL to a connection."""
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
    """Yield every import of a file, also nested and type-only ones, with resolved names."""
    package = ("assay", *path.parent.parts)
    for node in nodes(text):
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
        return f"{target!r} stands after {layer!r}"
    if target not in KNOWN.get(layer, {target}) | BELOW:
        return f"{layer!r} knows {sorted(KNOWN[layer])} only"
    private = [name for name in imported.names if name[0] == "_" and name[:2] != "__"]
    return f"{', '.join(private)} of {target!r} is private" if private else None


def test_every_import_follows_the_order_and_heavy_ones_stay_in_their_package() -> None:
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
        pytest.param(
            "crafter/world.py", "if TYPE_CHECKING:\n    from assay import cli", id="for types"
        ),
        pytest.param("crafter/world.py", "import_module('assay.cli')", id="by name"),
        pytest.param("crafter/world.py", "import assay.stats", id="a world of statistics"),
        pytest.param("models/client.py", "import assay.store", id="a model that records"),
        pytest.param("runs/run.py", "import assay.crafter", id="a run of no world"),
        pytest.param("report/x.py", "from assay.store.rows import _Builder", id="private"),
        pytest.param("agents/react.py", "import openai", id="a client of models"),
        pytest.param("agents/react.py", "import aiohttp", id="a client of HTTP"),
        pytest.param("report/x.py", "import pydantic", id="nothing comes in here"),
        pytest.param("report/x.py", "from PIL import Image", id="pictures"),
        pytest.param("episodes/x.py", "import ray", id="clusters"),
        pytest.param("cli/x.py", 'c.execute("SELECT 1")', id="SQL"),
        pytest.param("cli/x.py", 'c.execute(f"DELETE FROM {name}")', id="SQL put together"),
        pytest.param("errors.py", "import assay.core.text", id="a file as a layer"),
        pytest.param("agents/react.py", "from assay import World", id="through the root"),
        pytest.param("agents/react.py", "import assay", id="the root itself"),
        pytest.param("agents/react.py", "from assay.metrics import hook", id="through a shim"),
        pytest.param("agents/react.py", "import numba", id="heavy"),
        pytest.param("stats/table.py", "from rich.table import Table", id="heavy part"),
        pytest.param("agents/react.py", "import crafter", id="the reference game"),
        pytest.param("helpers/names.py", "", id="an unlisted package"),
    ],
)
def test_the_check_reports_a_forbidden_import(path: str, text: str) -> None:
    assert len(violations(Path(path), text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        pytest.param("__init__.py", "import assay.cli", id="the root is exempt"),
        pytest.param("metrics.py", "import assay.episodes.hooks", id="so are its shims"),
        pytest.param("agents/react.py", "from assay.crafter import World", id="upward"),
        pytest.param("agents/react.py", "from .replies import Decision", id="own package"),
        pytest.param("core/x.py", "from assay._version import __version__", id="the version"),
        pytest.param("crafter/jit.py", "import numba, numpy", id="heavy at home"),
        pytest.param("store/x.py", 'c.execute("SELECT 1")', id="SQL at home"),
        pytest.param("models/cache.py", 'c.execute("SELECT 1")', id="SQL of a file's own"),
        pytest.param("api/x.py", "from assay.store.rows import row", id="a module below"),
        pytest.param("cli/x.py", "self._body.execute('run the plan')", id="no SQL"),
        pytest.param("__main__.py", "from assay.cli import main", id="the program"),
    ],
)
def test_the_check_accepts_an_allowed_import(path: str, text: str) -> None:
    assert violations(Path(path), text) == []

"""Imports point one way: a package may import only what stands above it in the list."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "assay"

LAYERS = (
    *("errors", "_util", "types"),
    *("crafter", "models", "traces", "stats"),
    *("service", "agents", "metrics", "trials", "rollouts", "bench", "datasets"),
    *("curves", "serving", "finetune", "training", "report", "loop", "api", "cli", "__main__"),
)
SIBLINGS = {"crafter", "models", "traces", "stats"}
HOMES = {
    "crafter": {"crafter"},
    "cyclopts": {"cli"},
    "duckdb": {"traces"},
    "gymnasium": {"crafter", "training"},
    "llvmlite": {"crafter"},
    "matplotlib": {"report"},
    "numba": {"crafter"},
    "pandas": {"traces"},
    "plotly": {"report"},
    "pyarrow": {"traces"},
    "rich": {"cli", "report"},
    "scipy": {"stats"},
    "starlette": {"service", "serving"},
    "statsmodels": {"stats"},
    "torch": {"finetune", "training"},
    "uvicorn": {"service", "serving"},
}


class Import(NamedTuple):
    line: int
    module: str
    """The absolute dotted name; for `from a import b` both `a` and `a.b` are tried."""


def violations(path: Path, text: str) -> list[str]:
    """What a file, given relative to the package, imports that it may not."""
    layer = path.parts[0].removesuffix(".py")
    if path == Path("__init__.py"):
        return []
    if layer not in LAYERS:
        return [f"{path}: {layer!r} has no place in the list of layers"]
    reasons = (
        (imported, _objection(layer, imported.module)) for imported in imports(path, text)
    )
    return [
        f"{path}:{imported.line}: {imported.module}: {reason}"
        for imported, reason in reasons
        if reason
    ]


def imports(path: Path, text: str) -> Iterator[Import]:
    """Every import of a file, at any depth, with relative ones resolved."""
    package = ("assay", *path.parent.parts)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                yield from (Import(node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package[: len(package) - level + 1] if level else ()
                start = ".".join([*base, *([module] if module else [])])
                if start == "assay":
                    yield from (Import(node.lineno, f"assay.{alias.name}") for alias in names)
                else:
                    yield Import(node.lineno, start)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield Import(node.lineno, module)


def _objection(layer: str, module: str) -> str | None:
    top, *rest = module.split(".")
    if top != "assay":
        homes = HOMES.get(top)
        return None if homes is None or layer in homes else f"belongs into {sorted(homes)} only"
    if rest == ["__version__"]:
        return None
    target = rest[0] if rest else ""
    if target not in LAYERS:
        return "name the package that has it, not 'assay'"
    if target == layer:
        return None
    if LAYERS.index(target) > LAYERS.index(layer):
        return f"{target!r} stands below {layer!r}"
    if {target, layer} <= SIBLINGS:
        return f"{target!r} and {layer!r} do not know each other"
    return None


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
        pytest.param("agents/expert.py", "from .policies import Policy", id="own package"),
        pytest.param("_util/names.py", "from assay import __version__", id="the version"),
        pytest.param("crafter/jit.py", "import numba, numpy", id="heavy at home"),
        pytest.param("__main__.py", "from assay.cli import main", id="the program"),
    ],
)
def test_the_check_lets_a_right_import_pass(path: str, text: str) -> None:
    assert violations(Path(path), text) == []

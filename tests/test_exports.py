"""Packages list exactly their public names in `__all__`; modules have no `__all__`."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted((SOURCE / "assay").rglob("*.py"))
SHIMS = [SOURCE / "assay" / f"{name}.py" for name in ("curves", "metrics", "traces")]
"""Modules that re-export names under paths that user files and documents use."""
PACKAGES = [*(file for file in FILES if file.name == "__init__.py"), *SHIMS]


def exported(tree: ast.Module) -> list[str] | None:
    """Return the value of `__all__`, or None if it is missing."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the top-level statements of a module, including those for the type checker."""
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from node.body
        else:
            yield node


def bound(tree: ast.Module) -> set[str]:
    """Return the names a module defines at its top level, and those it imports from assay."""
    names: set[str] = set()
    for node in statements(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                if level or (module or "").split(".")[0] == "assay":
                    names |= {alias.asname or alias.name for alias in aliases}
    return names


def in_order(name: str) -> tuple[int, str]:
    """Return a sort key in the linter's order: constants, then classes, then the rest."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


def dotted(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@pytest.mark.parametrize("file", PACKAGES, ids=dotted)
def test_a_package_exports_exactly_its_public_names(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"))
    package = importlib.import_module(dotted(file))
    listed = exported(tree) or sorted(getattr(package, "__all__", ()), key=in_order)
    public = {name for name in bound(tree) if not name.startswith("_")}
    assert set(listed) == public
    assert [name for name in listed if not hasattr(package, name)] == []
    assert listed == sorted(set(listed), key=in_order)


def test_a_module_in_a_package_has_no_export_list() -> None:
    modules = set(FILES) - set(PACKAGES)
    assert [
        dotted(file) for file in modules if exported(ast.parse(file.read_text("utf-8")))
    ] == []


def test_the_check_finds_definitions_and_imports_from_assay() -> None:
    tree = ast.parse(
        "import re\nfrom assay.a import B, c\nD = 1\ndef e(): ...\n__all__ = ['e']"
    )
    assert exported(tree) == ["e"]
    assert bound(tree) == {"B", "c", "D", "e", "__all__"}

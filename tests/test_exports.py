"""What a package says it exports is what it exports."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted((SOURCE / "assay").rglob("*.py"))
LOCAL = ("assay.finetune.local", "assay.training")
"""Packages whose names need torch, which only `make test-local` has."""
PACKAGES = [file for file in FILES if file.name == "__init__.py"]


def exported(tree: ast.Module) -> list[str] | None:
    """The value of `__all__`, or None where there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The top level of a module, with what it shows to the type checker only."""
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from node.body
        else:
            yield node


def bound(tree: ast.Module, *, with_imports: bool) -> set[str]:
    """The names a module defines at its top level, and those it takes from assay."""
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
            case ast.ImportFrom(module=module, names=aliases, level=level) if with_imports:
                if level or (module or "").split(".")[0] == "assay":
                    names |= {alias.asname or alias.name for alias in aliases}
    return names


def in_order(name: str) -> tuple[int, str]:
    """The order of the linter: constants, then classes, then the rest."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


def dotted(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=[pytest.mark.local] * (dotted(file) in LOCAL), id=dotted(file))
        for file in PACKAGES
    ],
)
def test_a_package_exports_all_its_public_names_and_no_other(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"))
    listed = exported(tree) or []
    public = {name for name in bound(tree, with_imports=True) if not name.startswith("_")}
    assert {name for name in listed if name != "__version__"} == public
    package = importlib.import_module(dotted(file))
    assert [name for name in listed if not hasattr(package, name)] == []


@pytest.mark.parametrize("file", FILES, ids=dotted)
def test_a_list_of_exports_is_sorted_and_names_each_once(file: Path) -> None:
    names = exported(ast.parse(file.read_text("utf-8"))) or []
    assert names == sorted(set(names), key=in_order)


@pytest.mark.parametrize("file", sorted(set(FILES) - set(PACKAGES)), ids=dotted)
def test_a_module_defines_what_it_exports(file: Path) -> None:
    tree = ast.parse(file.read_text("utf-8"))
    assert set(exported(tree) or []) <= bound(tree, with_imports=False)


def test_the_check_tells_definitions_from_imports() -> None:
    tree = ast.parse("from assay.a import B, c\nD = 1\ndef e(): ...\n__all__ = ['B', 'e']")
    assert exported(tree) == ["B", "e"]
    assert bound(tree, with_imports=True) >= {"B", "c", "D", "e"}
    assert bound(tree, with_imports=False) == {"D", "e", "__all__"}

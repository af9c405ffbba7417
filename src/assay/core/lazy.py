"""Packages whose names are imported on first use (PEP 562).

    if TYPE_CHECKING:
        from .store import Store as Store

    __getattr__, __dir__ = lazy_names(__name__)

The module of each name, and `__all__` if it is not defined, are read from the imports for the
type checker, so that each name is written once.
"""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import resolve_name
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package."""

    @cache
    def find_sources() -> dict[str, tuple[str, str]]:
        """Return, by name, its module and its name there."""
        spec = sys.modules[package].__spec__
        source = spec.loader.get_source(package)  # type: ignore[union-attr]
        return {
            alias.asname or alias.name: (
                resolve_name("." * statement.level + (statement.module or ""), package),
                alias.name,
            )
            for block in ast.parse(source).body
            if isinstance(block, ast.If)
            for statement in block.body
            if isinstance(statement, ast.ImportFrom)
            for alias in statement.names
        }

    def load(name: str) -> Any:
        if name == "__all__":
            return sorted(find_sources())
        # Python looks up some of these in every package.
        if name.startswith("__") or name not in find_sources():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original_name = find_sources()[name]
        loaded = import_module(module)
        if module == package or not hasattr(loaded, original_name):  # `from . import part`
            return import_module(f"{module}.{original_name}")
        return getattr(loaded, original_name)

    return load, lambda: list(sys.modules[package].__all__)

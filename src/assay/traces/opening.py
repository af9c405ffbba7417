"""The store that a caller means: a path, an open store, or the default one."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from .location import default_database

if TYPE_CHECKING:
    from .store import Store

__all__ = ["Where", "store_at"]

Where: TypeAlias = Union[Path, str, "Store", None]
"""A file, an open store, or None for $ASSAY_DATABASE, else the usual file in this folder."""


def store_at(database: Where) -> "Store":
    """The store that is meant; nothing is opened yet."""
    from .store import Store

    if isinstance(database, Store):
        return database
    return Store(default_database() if database is None else Path(database))

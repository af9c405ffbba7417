"""The store that a caller means: a path, an open store, or the default one."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from assay.store.location import default_database

if TYPE_CHECKING:
    from assay.store.store import Store

Where: TypeAlias = Union[Path, str, "Store", None]
"""A file, an open store, or None for $ASSAY_DATABASE, else the usual file in this folder."""


def store_at(database: Where) -> "Store":
    """The store that is meant; nothing is opened yet."""
    from assay.store.store import Store

    if isinstance(database, Store):
        return database
    return Store(default_database() if database is None else Path(database))

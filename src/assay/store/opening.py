"""Selection of the database: a path, an open `Store`, or the default."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, Union

from assay.store.location import default_database

if TYPE_CHECKING:
    from assay.store.store import Store

Where: TypeAlias = Union[Path, str, "Store", None]
"""A file, a `Store`, or None for $ASSAY_DATABASE or the default file in this folder."""


def store_at(database: Where) -> "Store":
    """Return the `Store` of a database; nothing is opened yet."""
    from assay.store.store import Store

    if isinstance(database, Store):
        return database
    return Store(default_database() if database is None else Path(database))

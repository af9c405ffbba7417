"""Where the episodes of training data are read from: a store, or a folder of traces."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from assay.api._stores import traces_as_store
from assay.errors import UsageError
from assay.traces.opening import Where, store_at

if TYPE_CHECKING:
    from assay.traces.store import Store

__all__ = ["open_source", "source_from", "store_of_folder"]


@contextmanager
def open_source(input_dir: Path | str | None, database: Where) -> "Iterator[Store]":
    """The store that is meant, or one for as long as the block takes, made of a folder."""
    if input_dir is None:
        yield store_at(database)
        return
    from assay.exchange.trace_folder import INDEX

    folder = Path(input_dir)
    if not folder.is_dir():
        raise UsageError(_no_folder(folder))
    paths = [folder, *sorted(each.parent for each in folder.glob(f"*/{INDEX}"))]
    with traces_as_store(paths) as traces:
        yield traces.store


def _no_folder(folder: Path) -> str:
    from assay.exchange.trace_folder import INDEX

    near = sorted(str(path.parent) for path in Path().glob(f"*/{INDEX}"))
    stores = sorted(map(str, Path().glob("*.duckdb")))
    there = " and ".join(
        part
        for part in (
            f"folders of traces here: {', '.join(near)}" if near else "",
            f"stores, for --database: {', '.join(stores)}" if stores else "",
        )
        if part
    )
    return f"there is no folder {str(folder)!r}; " + (
        there or "here are neither folders of traces nor stores; 'assay run' makes both"
    )


def source_from(input_dir: Path | str | None, store: "Store", output: Path) -> dict[str, str]:
    """Where the episodes are, seen from the data file."""
    here = output.absolute().parent
    if input_dir is not None:
        return {"input_dir": os.path.relpath(Path(input_dir).absolute(), here)}
    return {"database": os.path.relpath(store.path.absolute(), here)}


def store_of_folder(folder: Path) -> "Store | None":
    """The store whose traces a folder holds, if it is there."""
    from assay.exchange.trace_folder import read_index

    try:
        index = read_index(folder)
    except UsageError:
        return None
    path = None if index is None else folder / index.database
    return store_at(path) if path is not None and path.is_file() else None

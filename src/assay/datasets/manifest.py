"""Where the rows of a data set came from: a JSON file beside it, one line for each row.

`data.jsonl` has `data.manifest.json`. It says how the rows were chosen and made, and for each
of them the session, the turns and the reward. Read in pieces: it may have a million rows.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from assay._util.canonical import canonical_json
from assay._util.files import atomic_file
from assay.errors import UsageError

__all__ = ["Lineage", "RowOrigin", "manifest_path", "read_lineage", "row_origins"]

FORMAT: Final = "assay-dataset/1"
_ROWS: Final = b'"rows":['
_BUFFER: Final = 1 << 20
"""Bytes that are written or copied together."""


class RowOrigin(NamedTuple):
    """Where one row came from."""

    session_id: str
    first_turn: int
    last_turn: int
    reward: float
    """What its turns earned."""
    split: str
    """train, or holdout."""
    other: str = ""
    """Of a pair of answers, an episode with the one that is not preferred."""


def manifest_path(data: Path) -> Path:
    """The manifest of a data file, which need not be there."""
    name = data.name.removesuffix(data.suffix).removesuffix(".holdout")
    return data.with_name(f"{name}.manifest.json")


class Lineage:
    """The origins of rows while they are written, in a file of their own."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._first = True

    @classmethod
    @contextmanager
    def begun(cls) -> "Iterator[Lineage]":
        """A lineage without rows."""
        with tempfile.TemporaryFile(buffering=_BUFFER) as spool:
            yield cls(spool)

    def add(self, rows: list[str]) -> None:
        """Add the origins of rows, each as JSON text."""
        if rows:
            self._spool.write(
                ("\n" if self._first else ",\n").encode() + ",\n".join(rows).encode()
            )
            self._first = False

    def write(self, path: Path, about: Mapping[str, Any]) -> None:
        """Write the manifest: what it says of all, then a line for each row."""
        with atomic_file(path) as stream:
            stream.write(b"{\n")
            for name, value in about.items():
                stream.write(canonical_json(name) + b":" + canonical_json(value) + b",\n")
            stream.write(b'"columns":' + canonical_json(RowOrigin._fields) + b",\n" + _ROWS)
            self._spool.seek(0)
            shutil.copyfileobj(self._spool, stream, _BUFFER)
            stream.write(b"\n]}\n")


def read_lineage(data: Path) -> dict[str, Any] | None:
    """What the manifest of a data file says of all rows; None where there is none.

    Raises:
        UsageError: It is damaged.
    """
    path = manifest_path(data)
    head: list[bytes] = []
    try:
        with path.open("rb") as stream:
            for line in stream:
                if line.startswith(_ROWS):
                    break
                head.append(line)
            about = json.loads(b"".join(head).rstrip(b",\n") + b"}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)!r} is no manifest that can be read: {error}") from error
    if about.get("format") != FORMAT:
        raise UsageError(f"{str(path)!r} is no manifest of a data set ({FORMAT})")
    return dict(about)


def row_origins(data: Path, split: str = "train") -> Iterator[RowOrigin]:
    """Where the rows of a data file came from, one after the other.

    Raises:
        UsageError: There is no manifest, or it is damaged.
    """
    path = manifest_path(data)
    try:
        with path.open("rb") as stream:
            for line in stream:
                if line.startswith(_ROWS):
                    break
            for line in stream:
                if not line.startswith(b"["):
                    break
                origin = RowOrigin(*json.loads(line.rstrip(b",\n")))
                if origin.split == split:
                    yield origin
    except FileNotFoundError:
        raise UsageError(
            f"there is no {str(path)!r}, which says where the rows came from; "
            "'assay sft filter' writes it beside its data"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{str(path)!r} is no manifest that can be read: {error}") from error

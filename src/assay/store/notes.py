"""Notes on sessions and labels of sessions, which people write while they look at them."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

from duckdb import DuckDBPyConnection

from assay.core.text import check_unicode, shown
from assay.errors import UsageError
from assay.store.ingest import transaction

OPPOSITES: Final = ("keep", "drop")
"""Labels of which a session has at most one."""
_LABEL: Final = re.compile(r"\w[\w.-]{0,39}")
_LONGEST: Final = 10_000
_MOST_LABELS: Final = 50


class Note(NamedTuple):
    """One note."""

    id: str
    step: int | None
    """None if it is about the whole session."""
    text: str
    at: str
    """When it was written, in ISO 8601."""


def add_note(
    connection: DuckDBPyConnection, session_id: str, text: str, step: int | None = None
) -> Note:
    """Store a note on a session.

    Raises:
        UsageError: The text is empty or too long.
    """
    check_unicode("a note", text)
    if not text.strip() or len(text) > _LONGEST:
        raise UsageError(f"a note has 1 to {_LONGEST:,} characters, not {len(text.strip()):,}")
    now = datetime.now(UTC).replace(tzinfo=None)
    note = Note(uuid4().hex[:20], step, text.strip(), f"{now:%Y-%m-%dT%H:%M:%S.%fZ}")
    connection.execute(
        "INSERT INTO session_notes (id, session_id, step, text, created_at)"
        " VALUES (?, ?, ?, ?, ?)",
        [note.id, session_id, step, note.text, now],
    )
    return note


def delete_note(connection: DuckDBPyConnection, session_id: str, note_id: str) -> bool:
    """Delete a note; return whether it existed."""
    found = connection.execute(
        "DELETE FROM session_notes WHERE session_id = ? AND id = ? RETURNING id",
        [session_id, note_id],
    ).fetchall()
    return bool(found)


def load_notes(connection: DuckDBPyConnection, session_id: str) -> list[Note]:
    """Return the notes on a session, the oldest first."""
    rows = connection.execute(
        "SELECT id, step, text, strftime(created_at, '%Y-%m-%dT%H:%M:%S.%fZ')"
        " FROM session_notes WHERE session_id = ? ORDER BY created_at, id",
        [session_id],
    ).fetchall()
    return [Note(*row) for row in rows]


def set_labels(
    connection: DuckDBPyConnection, session_id: str, labels: Sequence[Any]
) -> list[str]:
    """Replace the labels of a session; return them in order.

    Raises:
        UsageError: A label is not a word, or two of them exclude each other.
    """
    wanted = sorted({*map(_check, labels)})
    if len(wanted) > _MOST_LABELS:
        raise UsageError(f"{len(wanted)} labels are too many; at most {_MOST_LABELS}")
    if {*OPPOSITES} <= {*wanted}:
        raise UsageError(f"a session has one label of {' and '.join(OPPOSITES)}, not both")
    with transaction(connection):
        connection.execute(
            "DELETE FROM session_labels WHERE session_id = ?"
            " AND NOT list_contains(?::VARCHAR[], label)",
            [session_id, wanted],
        )
        connection.execute(
            "INSERT INTO session_labels SELECT $1, label, now() AT TIME ZONE 'UTC'"
            " FROM (SELECT unnest($2::VARCHAR[]) AS label)"
            " WHERE label NOT IN (SELECT label FROM session_labels WHERE session_id = $1)",
            [session_id, wanted],
        )
    return wanted


def _check(label: Any) -> str:
    if not isinstance(label, str) or not _LABEL.fullmatch(label):
        raise UsageError(
            f"label {shown(label)} is not allowed; give 1 to 40 letters, digits, '.', '_' and "
            "'-', starting with a letter or a digit"
        )
    return label

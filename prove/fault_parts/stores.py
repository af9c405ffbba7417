"""Databases that are damaged or manipulated."""

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb

from assay.api.checks import CheckState, check_database
from assay.errors import AssayError
from assay.store.merge import merge_stores
from assay.store.store import Store
from tests.store.sessions import make_run, make_sessions
from tests.store.stores import fill

from .tried import FaultRow, scaled_range

__all__ = ["attack"]

_FLIPS = 50
_PLANTED = 5


def attack(folder: Path, chance: random.Random) -> Iterator[FaultRow]:
    """Flip bits that the doctor must detect; plant messages and views."""
    run = make_run()
    store = fill(folder / "a.duckdb", run, make_sessions(run, 20, turns=20))
    whole, before = store.path.read_bytes(), _hash_tables(store)
    copy = folder / "b.duckdb"

    detected = 0
    flips = FaultRow("a bit of the file flipped, read by the doctor")
    for _ in scaled_range(_FLIPS):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        copy.write_bytes(content)
        if check_database(copy).state is CheckState.FAIL:
            detected += 1
            flips.count()
        else:
            flips.count(
                ""
                if _hash_tables(Store(copy)) == before
                else "reported as healthy, but it is not"
            )
    flips.note = f"{detected} detected; the others changed no table"
    yield flips

    planted = FaultRow("a message that is not what its hash says", note="the merge is refused")
    for number in scaled_range(_PLANTED):
        copy.write_bytes(whole)
        with duckdb.connect(str(copy)) as connection:
            connection.execute(
                'UPDATE message_bodies SET body = \'{"role":"user","content":"planted"}\''
                " WHERE hash = (SELECT hash FROM message_bodies ORDER BY 1 LIMIT 1 OFFSET ?)",
                [chance.randrange(100)],
            )
        into = Store(folder / f"into-{number}.duckdb")
        try:
            merge_stores(into, [Store(copy)])
        except AssayError:
            planted.count()
        else:
            planted.count("it was merged")
    yield planted

    views = FaultRow("a view that reads a file of this machine", note="not read")
    (folder / "private").write_text("private words")
    for name in ("episodes", "messages", "turns", "achievements", "model_usage"):
        copy.write_bytes(whole)
        with duckdb.connect(str(copy)) as connection:
            connection.execute(
                f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM read_text('{folder}/private')"
            )
        with Store(copy).reading() as connection:
            rows_text = str(connection.execute(f"FROM {name}").fetchall())
        views.count("the file was read" if "private words" in rows_text else "")
    yield views


def _hash_tables(store: Store) -> object:
    with store.reading() as connection:
        return [
            connection.execute(f"SELECT count(*), bit_xor(hash(t)) FROM {name} t").fetchall()
            for name in (
                "session_traces",
                "events",
                "message_bodies",
                "message_rows",
                "outcomes",
            )
        ]

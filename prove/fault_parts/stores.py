"""Stores that are damaged, or that somebody made to deceive."""

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

from .tried import Tried, times

__all__ = ["attack"]

_FLIPS = 50
_PLANTED = 5


def attack(folder: Path, chance: random.Random) -> Iterator[Tried]:
    """Flipped bits and cuts that the doctor must see, planted messages and views."""
    run = make_run()
    store = fill(folder / "a.duckdb", run, make_sessions(run, 20, turns=20))
    whole, before = store.path.read_bytes(), _rows(store)
    copy = folder / "b.duckdb"

    told = 0
    flips = Tried("a bit of the file flipped, read by the doctor")
    for _ in times(_FLIPS):
        content = bytearray(whole)
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        copy.write_bytes(content)
        if check_database(copy).state is CheckState.FAIL:
            told += 1
            flips.count()
        else:
            flips.count("" if _rows(Store(copy)) == before else "called well, and it is not")
    flips.note = f"{told} named; the others hit no table, whose rows are all there"
    yield flips

    planted = Tried("a message that is not what its hash says", note="the merge is refused")
    for number in times(_PLANTED):
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

    views = Tried("a view that reads a file of this machine", note="not read")
    (folder / "private").write_text("private words")
    for name in ("episodes", "messages", "turns", "achievements", "model_usage"):
        copy.write_bytes(whole)
        with duckdb.connect(str(copy)) as connection:
            connection.execute(
                f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM read_text('{folder}/private')"
            )
        with Store(copy).reading() as connection:
            found = str(connection.execute(f"FROM {name}").fetchall())
        views.count("the file was read" if "private words" in found else "")
    yield views


def _rows(store: Store) -> object:
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

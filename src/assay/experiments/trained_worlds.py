"""The worlds that training data was made of, so that nobody is tested on them unawares.

A row is a world, a task with a seed, in one data set: trained on, or held out of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb

from assay.traces.ingest import transaction

__all__ = ["TrainedWorlds", "register_dataset", "trained_worlds"]


@dataclass(frozen=True, slots=True)
class TrainedWorlds:
    """The worlds of a test that a data set was trained on."""

    name: str
    """What the data file is called."""
    dataset: str
    seeds: tuple[int, ...]

    def __str__(self) -> str:
        """Say it in one line."""
        few = ", ".join(map(str, self.seeds[:6])) + (", …" if len(self.seeds) > 6 else "")
        worlds = "world" if len(self.seeds) == 1 else "worlds"
        return f"{len(self.seeds)} {worlds} of the training data {self.name} (seed {few})"


def register_dataset(
    connection: duckdb.DuckDBPyConnection,
    dataset: str,
    name: str,
    worlds: Mapping[str, Iterable[tuple[str, int | None]]],
) -> None:
    """Store the worlds of a data set by split; one that is there is replaced."""
    now = datetime.now(UTC).replace(tzinfo=None)
    rows = [
        (task, seed, split)
        for split, those in worlds.items()
        for task, seed in those
        if seed is not None
    ]
    tasks, seeds, splits = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    with transaction(connection):
        connection.execute("DELETE FROM dataset_worlds WHERE dataset = ?", [dataset])
        connection.execute(
            "INSERT INTO dataset_worlds (task, seed, split, dataset, name, created_at)"
            " SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]), unnest(?::VARCHAR[]), ?, ?, ?",
            [tasks, seeds, splits, dataset, name, now],
        )


def trained_worlds(
    connection: duckdb.DuckDBPyConnection, worlds: Sequence[tuple[str, int]]
) -> list[TrainedWorlds]:
    """Which data sets were made of some of these worlds, the newest first."""
    rows = connection.execute(
        """
        SELECT d.dataset, any_value(d.name), list(DISTINCT d.seed ORDER BY d.seed)
        FROM dataset_worlds d JOIN (
            SELECT unnest(?::VARCHAR[]) AS task, unnest(?::BIGINT[]) AS seed
        ) w USING (task, seed)
        WHERE d.split = 'train' GROUP BY d.dataset ORDER BY max(d.created_at) DESC, d.dataset
        """,
        [[task for task, _ in worlds], [seed for _, seed in worlds]],
    ).fetchall()
    return [TrainedWorlds(name, dataset, tuple(seeds)) for dataset, name, seeds in rows]

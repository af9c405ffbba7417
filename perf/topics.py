"""All topics in the order of the table, and choosing among them."""

import shutil
from collections.abc import Sequence
from typing import Final

from . import (
    rows_agents,
    rows_batches,
    rows_bench,
    rows_gymnasium,
    rows_local_models,
    rows_looks,
    rows_models,
    rows_queries,
    rows_ray,
    rows_resets,
    rows_runs,
    rows_sandbox,
    rows_service,
    rows_starts,
    rows_states,
    rows_statistics,
    rows_steps,
    rows_store,
    rows_text,
    rows_tracer,
    rows_training,
    rows_training_data,
)
from .measure import Row, Topic
from .processes import (
    INSPECT_PYTHON,
    LOCAL_PYTHON,
    ORACLES_PYTHON,
    PEERS_PYTHON,
    RAY_PYTHON,
    TRL_PYTHON,
)

__all__ = ["TOPICS", "choose_topics", "find_unavailable_sides"]

TOPICS: Final = (
    rows_steps.TOPIC,
    rows_looks.TOPIC,
    rows_resets.TOPIC,
    rows_batches.TOPIC,
    rows_batches.OPTIMISTIC,
    rows_states.TOPIC,
    rows_text.TOPIC,
    rows_service.TOPIC,
    rows_gymnasium.GYMNASIUM,
    rows_gymnasium.EXPERT,
    rows_starts.FIRST,
    rows_starts.SECOND,
    rows_runs.TOPIC,
    rows_runs.OPEN,
    rows_runs.MEMORY,
    rows_runs.MANY,
    rows_ray.TOPIC,
    rows_sandbox.LONG,
    rows_sandbox.SHORT,
    rows_store.TOPIC,
    rows_store.SIZE,
    rows_tracer.TOPIC,
    rows_queries.TOPIC,
    rows_training_data.TOPIC,
    rows_training_data.MEMORY,
    rows_models.TOPIC,
    rows_models.AT_ONCE,
    rows_models.PACE,
    rows_statistics.TOPIC,
    rows_statistics.BCA,
    rows_local_models.STEP,
    rows_local_models.GENERATE,
    rows_training.TOPIC,
    rows_training.ENVIRONMENT,
    rows_training.LAUNCH,
    rows_bench.TOPIC,
    rows_bench.DOCKER,
    rows_agents.START,
    rows_agents.PROXY,
)


def choose_topics(names: Sequence[str]) -> list[tuple[Topic, list[Row]]]:
    """Return the named topics and rows; all of them by default."""
    known = {name for topic in TOPICS for name in (topic.name, *(r.name for r in topic.rows))}
    for name in names:
        if name not in known:
            raise ValueError(f"unknown row or topic {name!r}; see 'python -m perf --list'")
    picked = [
        (topic, [row for row in topic.rows if not names or {row.name, topic.name} & {*names}])
        for topic in TOPICS
    ]
    return [(topic, rows) for topic, rows in picked if rows]


def find_unavailable_sides(no_peers: bool, quick: bool) -> dict[str, str]:
    """Return the sides that cannot be measured, with the reason."""
    groups = (
        ("Craftax", "peers", PEERS_PYTHON, rows_batches.CRAFTAX_SIDES),
        (
            "Inspect AI",
            "peers",
            INSPECT_PYTHON,
            (*rows_runs.INSPECT_SIDES, *rows_models.INSPECT_SIDES),
        ),
        ("rliable", "oracles", ORACLES_PYTHON, rows_statistics.RLIABLE_SIDES),
        ("datasets", "oracles", ORACLES_PYTHON, rows_training_data.DATASETS_SIDES),
        (
            "torch",
            "local",
            LOCAL_PYTHON,
            (*rows_local_models.LOCAL_SIDES, *rows_training.TRAINING_SIDES),
        ),
        ("Ray", "ray", RAY_PYTHON, rows_ray.RAY_SIDES),
        ("TRL", "peers", TRL_PYTHON, rows_local_models.TRL_SIDES),
    )
    missing: dict[str, str] = {}
    for name, environment, python, sides in groups:
        if no_peers or quick:
            option = "--quick" if quick else "--no-peers"
            missing |= dict.fromkeys(sides, f"skipped by {option}")
        elif not python.exists():
            reason = f"skipped, {name} is not there: make install-{environment}"
            missing |= dict.fromkeys(sides, reason)
    if quick:
        missing |= dict.fromkeys(rows_bench.DOCKER_SIDES, "skipped by --quick")
        missing |= dict.fromkeys(rows_agents.AGENT_SIDES, "skipped by --quick")
        if shutil.which("bwrap") is None:
            sides = (*rows_bench.BUBBLEWRAP_SIDES, *rows_sandbox.BUBBLEWRAP_SIDES)
            missing |= dict.fromkeys(sides, "skipped, bubblewrap is not installed")
    return missing

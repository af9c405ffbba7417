"""Lists for the viewer: runs, episodes, the worlds of a run, and all episodes of one world."""

import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from assay.core.text import visible
from assay.crafter.film import map_tiles
from assay.crafter.players.policies import make_policy
from assay.episodes.replay import Replay
from assay.errors import UsageError
from assay.judge.matching import MeasuredTrials, mean_over_worlds
from assay.judge.subjects import TrialOutcome, death_cause
from assay.report.figures.palette import COLOURS
from assay.report.viewer.episodes import live_row, message_text, moment, tool_values
from assay.report.viewer.library import Library, Missing
from assay.store.names import resolve_run
from assay.store.queries import list_open
from assay.store.records import SessionRecord
from assay.store.run_folder import RunFolder
from assay.store.viewing import (
    episode_page,
    episode_rows,
    experiment_values,
    facets,
    latest_run,
    run_page,
    run_worlds,
    search_messages,
    world_episodes,
)

METRIC: Final = "achievements"
_LEVEL: Final = 0.95
_MOST_WORLDS: Final = 16
_MOST_MODELS: Final = 8
_MOST_RACERS: Final = 32
_SAID: Final = 4_000
_AROUND: Final = 80
_FUTURES: Final = 32
_HORIZON: Final = 300


def list_runs(library: Library, **wanted: Any) -> dict[str, Any]:
    """Return one page of runs, the newest first; runs in progress before all others."""
    folders = {folder.record.id: folder for folder in library.open_runs()}
    page: dict[str, Any] = {"total": 0, "rows": []}
    if library.path.exists():
        with library.reading() as connection:
            found = run_page(connection, **wanted)
            entries = [entry for run in found.rows for entry in run["models"]]
            values = experiment_values(
                connection, [entry["experiment"] for entry in entries], METRIC
            )
        page = {
            "total": found.total,
            "rows": [_run_row(run, folders.pop(run["id"], None), values) for run in found.rows],
        }
    if not any(wanted.get(name) for name in ("offset", "status", "model", "text", "ids")):
        new = [_new_run(folder) for folder in folders.values() if folder.holder() is not None]
        page = {"total": page["total"] + len(new), "rows": [*reversed(new), *page["rows"]]}
    return page


def one_run(library: Library, name: str) -> dict[str, Any]:
    """Return the row of one run.

    Raises:
        Missing: It is unknown.
    """
    if library.path.exists():
        try:
            with library.reading() as connection:
                name = resolve_run(connection, name)
        except UsageError as error:
            raise Missing(str(error)) from error
        for row in list_runs(library, ids=[name])["rows"]:
            found: dict[str, Any] = row
            return found
    raise Missing(f"run {name!r} not found; see the list of runs")


def _run_row(
    run: Mapping[str, Any],
    folder: RunFolder | None,
    values: Mapping[str, Sequence[tuple[str, str | None, int | None, float]]],
) -> dict[str, Any]:
    process = folder.holder() if folder else None
    status = run["status"]
    if status == "running" and process is None:
        status = "interrupted"
    running = len(folder.journals()) if folder and process is not None else 0
    models = [
        {
            **entry,
            "running": 0,
            "planned": _planned(folder),
            "metric": METRIC,
            **_mean(values.get(entry["experiment"], ()), final=process is None),
        }
        for entry in run["models"]
    ]
    costs = [entry["cost_usd"] for entry in models if entry["cost_usd"] is not None]
    return {
        **run,
        "status": status,
        "process": process,
        "resume": folder.resume_command if folder and process is None else None,
        "kind": next((entry["kind"] for entry in models if entry["kind"]), None),
        "models": models,
        **{
            state: sum(entry[state] for entry in models)
            for state in ("result", "failure", "infrastructure")
        },
        "running": running,
        "cost_usd": sum(costs) if costs else None,
    }


def _planned(folder: RunFolder | None) -> int | None:
    """Return the number of trials of each entry in a run that is in progress."""
    if folder is None:
        return None
    configuration = folder.record.configuration
    numbers = [configuration.get(name) for name in ("episodes", "replicates")]
    numbers += [len(configuration.get("difficulty") or [0])]
    if all(isinstance(number, int) for number in numbers):
        return math.prod(number for number in numbers if isinstance(number, int))
    return None


def _mean(
    trials: Sequence[tuple[str, str | None, int | None, float]], *, final: bool
) -> dict[str, float | None]:
    """Return the mean over worlds, with its interval if the run has ended."""
    if not trials:
        return {"mean": None, "low": None, "high": None}
    outcomes = [
        TrialOutcome(trial_id=trial, pair=f"{task} {seed}", task=task, seed=seed)
        for trial, task, seed, _ in trials
    ]
    measured = MeasuredTrials.of(outcomes, [value for *_, value in trials])
    interval = mean_over_worlds(measured, METRIC, _LEVEL)
    known = final and interval.known
    return {
        "mean": interval.point,
        "low": interval.low if known else None,
        "high": interval.high if known else None,
    }


def _new_run(folder: RunFolder) -> dict[str, Any]:
    """Return the row of a run that has stored nothing yet."""
    record = folder.record
    empty = {"result": 0, "failure": 0, "infrastructure": 0, "cost_usd": None}
    return {
        "id": record.id,
        "status": "running",
        "created_at": moment(record.created_at),
        "finished_at": None,
        "command": record.command,
        "process": folder.holder(),
        "resume": None,
        "kind": None,
        "models": [
            {
                **empty,
                "experiment": entry.id,
                "name": entry.model,
                "model": entry.model,
                "baseline": entry.tags.get("baseline") is True,
                "description": None,
                "note": None,
                "running": 0,
                "planned": _planned(folder),
                "metric": METRIC,
                "mean": None,
                "low": None,
                "high": None,
            }
            for entry in record.experiments
        ],
        **empty,
        "running": len(folder.journals()),
    }


def list_episodes(
    library: Library, filters: Mapping[str, str], *, sort: str, offset: int, limit: int
) -> dict[str, Any]:
    """Return one page of episodes, with the number by state and the values of filters."""
    live = [
        session.session_id
        for run in list_open(library.path)
        if run.process is not None and filters.get("run") in (None, run.run_id)
        for session in run.sessions
    ]
    empty = {"total": 0, "counts": {}, "facets": {}, "rows": []}
    if not library.path.exists():
        return empty
    if filters.get("state") == "running":
        rows = [{**live_row(library.session(key)), "live": True} for key in live]
        return {**empty, "total": len(rows), "rows": rows[offset : offset + limit]}
    with library.reading() as connection:
        page = episode_page(connection, filters, sort=sort, offset=offset, limit=limit)
        values = facets(connection, filters) if not offset else {}
    rows = [{**row, "live": False} for row in page.rows]
    counts = {**page.counts, "running": len(live)}
    return {"total": page.total, "counts": counts, "facets": values, "rows": rows}


def wall(library: Library, run: str | None, metric: str, offset: int = 0) -> dict[str, Any]:
    """Return the worlds of a run and the episodes in them, the largest loss first.

    The difference in a world is that of the last entry and the first, as in a comparison.
    """
    with library.reading() as connection:
        name = latest_run(connection) if run is None else resolve_run(connection, run)
        if name is None:
            raise UsageError("the database has no episodes yet; start with 'assay run'")
        trials = run_worlds(connection, name)
        row = run_page(connection, ids=[name]).rows[0]
        entries = row["models"]
        values = experiment_values(
            connection, [entry["experiment"] for entry in entries], metric
        )
    measured = {trial: value for rows in values.values() for trial, *_, value in rows}
    played = [entry for entry in entries if not entry["baseline"]]
    baseline, candidate = (played[0], played[-1]) if len(played) > 1 else (None, None)
    cells: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for trial in trials:
        world = (trial["task"], trial["seed"], trial["replicate"])
        cells.setdefault(world, {})[trial["experiment"]] = trial
    differences = {
        world: _difference(found, measured, baseline, candidate)
        for world, found in cells.items()
    }
    worlds = sorted(cells, key=lambda world: _loss_first(differences[world], world))
    shown = worlds[offset : offset + _MOST_WORLDS]
    models = sorted(entries, key=lambda entry: entry["baseline"])[:_MOST_MODELS]
    films = {
        trial["id"]
        for trial in trials
        if str(trial["task"]).startswith("crafter/") and trial["seed"] is not None
    }
    rows = [
        [_cell(cells[world].get(model["experiment"]), measured, films) for world in shown]
        for model in models
    ]
    return {
        "run": name,
        "metric": metric,
        "baseline": baseline and baseline["model"],
        "candidate": candidate and candidate["model"],
        "models": [
            {
                **{key: model[key] for key in ("model", "experiment", "name", "baseline")},
                "mean": _mean(values.get(model["experiment"], ()), final=True)["mean"],
            }
            for model in models
        ],
        "worlds": [
            {
                "task": world[0],
                "seed": world[1],
                "replicate": world[2],
                "difference": differences[world],
            }
            for world in shown
        ],
        "cells": rows,
        "steps": max((cell["steps"] for row in rows for cell in row if cell), default=0),
        "left_out": max(0, len(worlds) - offset - len(shown)),
    }


def _difference(
    found: Mapping[str, Mapping[str, Any]],
    measured: Mapping[str, float],
    baseline: Mapping[str, Any] | None,
    candidate: Mapping[str, Any] | None,
) -> float | None:
    if baseline is None or candidate is None:
        return None
    values = [
        measured.get(found[entry["experiment"]]["id"])
        for entry in (candidate, baseline)
        if entry["experiment"] in found
    ]
    if len(values) < 2 or values[0] is None or values[1] is None:
        return None
    return values[0] - values[1]


def _loss_first(difference: float | None, world: Sequence[Any]) -> tuple[float, str, int, int]:
    task, seed, replicate = world
    return (
        math.inf if difference is None else difference,
        task or "",
        -1 if seed is None else seed,
        replicate,
    )


def _cell(
    trial: Mapping[str, Any] | None, measured: Mapping[str, float], films: set[str]
) -> dict[str, Any] | None:
    if trial is None:
        return None
    names = ("id", "reward", "achievements", "steps", "state", "stop_reason")
    return {
        **{name: trial[name] for name in names},
        "value": measured.get(trial["id"]),
        "died": death_cause(trial["stop_reason"] or "") is not None,
        "film": trial["id"] in films,
    }


def race(
    library: Library, *, run: str | None, task: str | None, seed: int | None, ids: Sequence[str]
) -> dict[str, Any]:
    """Return the map of one world, and the way of every episode in it.

    Raises:
        UsageError: The episodes are of different worlds, or there are none.
    """
    with library.reading() as connection:
        if run is not None:
            run = resolve_run(connection, run)
        if not ids:
            if task is None or seed is None:
                raise UsageError("name a world, with task and seed, or episodes")
            ids = world_episodes(connection, task, seed, run=run, most=_MOST_RACERS)
    keys = [library.resolve(name) for name in ids][:_MOST_RACERS]
    if not keys:
        raise UsageError("no episode of this world is stored")
    with library.reading() as connection:
        rows = {row["id"]: row for row in episode_rows(connection, keys)}
    recordings = library.recordings(keys)
    drawn = [key for key in keys if len(recordings[key].frames)]
    if not drawn:
        raise UsageError(recordings[keys[0]].reason or "no episode of it can be replayed")
    first = recordings[drawn[0]].session
    worlds = {_world(recordings[key].session) for key in drawn}
    if len(worlds) > 1:
        raise UsageError("these episodes are of different worlds; choose those of one")
    tiles = map_tiles(Replay(first).world)
    return {
        "task": first.header.task,
        "seed": first.header.seed,
        "difficulty": first.header.difficulty,
        "map": b64encode(tiles.tobytes()).decode(),
        "episodes": [
            {
                **{name: rows[key][name] for name in _RACER if key in rows},
                "id": key,
                "colour": COLOURS[place % len(COLOURS)],
                **_trail(recordings[key]),
            }
            for place, key in enumerate(drawn)
        ],
        "left_out": [
            {"id": key, "reason": recordings[key].reason} for key in keys if key not in drawn
        ],
    }


_RACER: Final = (
    *("model", "experiment_name", "replicate", "steps", "reward", "achievements", "state"),
    *("stop_reason", "run"),
)


def _world(session: SessionRecord) -> tuple[Any, ...]:
    header = session.header
    return header.task, header.seed, header.metadata.get("world_episode", 1)


def _trail(recording: Any) -> dict[str, Any]:
    places = recording.frames[:, -2:]
    flags = [
        {
            "step": step.index,
            "achievement": name,
            "x": int(places[step.index][0]),
            "y": int(places[step.index][1]),
        }
        for played in recording.session.played
        for step in played.steps
        for name in step.unlocked
        if step.index < len(places)
    ]
    end = recording.session.end
    cause = death_cause(end.stop_reason) if end else None
    x, y = (int(number) for number in places[-1])
    death = None if cause is None else {"step": len(places) - 1, "x": x, "y": y, "cause": cause}
    return {"trail": places.ravel().tolist(), "flags": flags, "death": death}


def search(library: Library, text: str, run: str | None, **page: int) -> dict[str, Any]:
    """Return the messages that contain a text, each with the words around it."""
    if not text.strip():
        raise UsageError("give a text to search for")
    with library.reading() as connection:
        run = None if run is None else resolve_run(connection, run)
        total, hits = search_messages(connection, text, run=run, **page)
    rows = []
    for hit in hits:
        # Lower case may have another length; then the place is near, not exact.
        at = max(0, hit.text.lower().find(text.lower()))
        end = at + len(text)
        rows.append(
            {
                **{name: getattr(hit, name) for name in hit._fields if name != "text"},
                "before": visible(hit.text[max(0, at - _AROUND) : at]),
                "hit": visible(hit.text[at:end]),
                "after": visible(hit.text[end : end + _AROUND]),
            }
        )
    return {"total": total, "rows": rows}


def pair(library: Library, a: str, b: str) -> dict[str, Any]:
    """Return where two episodes of one world part, and what each did there."""
    first, second = (library.session(library.resolve(name)) for name in (a, b))
    same = _world(first) == _world(second)
    parted = _parted(first, second) if same else None
    unlocks = [
        {
            name: step.index
            for played in session.played
            for step in played.steps
            for name in step.unlocked
        }
        for session in (first, second)
    ]
    sides = {key: _side(session, parted) for key, session in (("a", first), ("b", second))}
    return {
        "same_world": same,
        "reason": None if same else "they are of different worlds",
        "parts_at": parted,
        "sentence": _parting(parted, sides) if same else "They are of different worlds.",
        **sides,
        "achievements": [
            {"achievement": name, "a": unlocks[0].get(name), "b": unlocks[1].get(name)}
            for name in dict.fromkeys([*unlocks[0], *unlocks[1]])
        ],
    }


def _parted(first: SessionRecord, second: SessionRecord) -> int | None:
    """Return the first step after which the states differ, or the end of the shorter one."""
    a, b = (
        [step for played in session.played for step in played.steps]
        for session in (first, second)
    )
    for one, other in zip(a, b, strict=False):
        if (one.digest, one.action) != (other.digest, other.action):
            return one.index
    return None if len(a) == len(b) else min(len(a), len(b)) + 1


def cost_of_parting(library: Library, a: str, b: str) -> dict[str, Any]:
    """Estimate what it cost to part: the expert plays futures of both sides.

    Both sides have the same chance in the same future, so futures are pairs.
    """
    keys = [library.resolve(name) for name in (a, b)]
    first, second = (library.session(key) for key in keys)
    step = _parted(first, second) if _world(first) == _world(second) else None
    if step is None:
        raise UsageError("these episodes do not part in one world")
    values = [_futures(session, step) for session in (first, second)]
    gaps = [y - x for x, y in zip(*values, strict=True)]
    trials = [TrialOutcome(trial_id=str(n), pair=str(n), seed=n) for n in range(len(gaps))]
    gap = mean_over_worlds(MeasuredTrials.of(trials, gaps), "difference", _LEVEL)
    ends = f" [{gap.low:+.2f}, {gap.high:+.2f}]" if gap.known else ""
    return {
        "step": step,
        "futures": _FUTURES,
        "a": {"id": keys[0], "mean": sum(values[0]) / _FUTURES, "values": values[0]},
        "b": {"id": keys[1], "mean": sum(values[1]) / _FUTURES, "values": values[1]},
        "difference": {
            "point": gap.point,
            "low": gap.low if gap.known else None,
            "high": gap.high if gap.known else None,
        },
        "sentence": (
            f"After step {step}, the expert reaches {gap.point:+.2f}{ends} achievements more "
            f"from the second state, over {_FUTURES} futures of {_HORIZON} steps each."
        ),
    }


def _futures(session: SessionRecord, step: int) -> list[int]:
    """Return the achievements of each future after a step."""
    replay = Replay(session)
    for _ in islice(replay, min(step, replay.steps)):
        pass
    found = []
    for number in range(_FUTURES):
        world, policy = replay.world.fork(random_seed=number), make_policy("expert", number)
        for _ in range(_HORIZON):
            if world.done:
                break
            world.step(policy.act(world.view()))
        found.append(sum(1 for count in world.achievements.values() if count))
    return found


def _side(session: SessionRecord, step: int | None) -> dict[str, Any]:
    header = session.header
    found: dict[str, Any] = {"id": header.session_id, "model": header.subject, "step": step}
    turn = action = None
    for played in session.played:
        for each in played.steps:
            if each.index == step:
                turn, action = played.turn, each.action
    reply = next((call.reply for call in session.calls if call.turn == turn), None)
    said = next((each for each in session.messages if each.position == reply), None)
    return {
        **found,
        "turn": turn,
        "action": action,
        "reply": reply,
        "text": "" if said is None else message_text(said)[:_SAID],
        **({"reasoning": None, "calls": []} if said is None else tool_values(said)),
    }


def _parting(step: int | None, sides: Mapping[str, Mapping[str, Any]]) -> str:
    if step is None:
        return "They are the same in every step."
    done = [sides[key]["action"] or "the end" for key in ("a", "b")]
    if done[0] == done[1]:
        return f"They part at step {step}: both chose {done[0]}, with different results."
    return f"They part at step {step}: {done[0]} and {done[1]}."

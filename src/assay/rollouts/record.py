"""A run as it is written down before it starts: its id, its experiments, and its plan."""

import secrets
import time
from dataclasses import asdict

from assay._util.canonical import canonical_json, content_hash, derived_id
from assay._util.provenance import provenance
from assay._util.settings import Counts
from assay.errors import UsageError
from assay.traces.records import ExperimentRecord, RunRecord
from assay.trials import Group, Plan, Trial

from .config import BASELINES, RunConfig
from .spec import EpisodeLimits, EpisodeSettings, EpisodeSpec

__all__ = ["checked_run_id", "episode_settings", "make_plan", "new_run_id", "run_record"]

_MAX_RUN_ID = 80


def new_run_id() -> str:
    """An id that sorts by time and that nobody else has."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def checked_run_id(run_id: str) -> str:
    """An id given by the user, which becomes the name of a folder."""
    plain = run_id.replace("-", "").replace("_", "").replace(".", "")
    if not (plain.isascii() and plain.isalnum() and len(run_id) <= _MAX_RUN_ID) or (
        run_id.startswith((".", "-"))
    ):
        raise UsageError(
            f"run id {run_id!r} is not allowed; give at most {_MAX_RUN_ID} letters, digits, "
            "'-', '_' and '.', starting with a letter or digit"
        )
    return run_id


def run_record(config: RunConfig, run_id: str, command: str) -> RunRecord:
    """The run, with an experiment for each model and each baseline."""
    return RunRecord(
        id=run_id,
        command=command,
        configuration=config.stored(),
        provenance=asdict(provenance()),
        created_at=round(time.time(), 6),
        experiments=tuple(
            ExperimentRecord(
                id=derived_id(run_id, model),
                series=_series(config, model),
                model=model,
                fingerprint=_fingerprint(config, model),
                tags={"baseline": True} if model in BASELINES else {},
            )
            for model in (*config.models, *config.extra_baselines)
        ),
    )


def _series(config: RunConfig, model: str) -> str:
    if config.name is None or model in config.extra_baselines:
        return model
    return config.name if len(config.models) == 1 else f"{config.name} {model}"


def _fingerprint(config: RunConfig, model: str) -> str:
    """Who plays and how; which worlds, and how many of them, make no other version."""
    return content_hash(canonical_json({"model": model, **config.stored(Counts.VERSION)}))


def make_plan(config: RunConfig, run_id: str) -> Plan[EpisodeSpec]:
    """Every model plays the same worlds, in the same order."""

    def group(model: str) -> Group[EpisodeSpec]:
        def make(index: int) -> Trial[EpisodeSpec]:
            spec = EpisodeSpec(
                run_id=run_id, model=model, episode=index, seed=config.seed + index
            )
            return Trial(spec.session_id, model, index, spec)

        return Group(model, config.episodes, make)

    return Plan(tuple(group(model) for model in (*config.models, *config.extra_baselines)))


def episode_settings(config: RunConfig) -> EpisodeSettings:
    """What all episodes of the run have in common."""
    return EpisodeSettings(
        difficulty=config.difficulty,
        agent=config.agent,
        limits=EpisodeLimits(
            turns=config.max_turns,
            steps=config.step_limit,
            tokens=config.token_limit,
            seconds=config.time_limit,
        ),
    )

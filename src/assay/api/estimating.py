"""What a run would take and cost, before it starts; and the file that configures one."""

from dataclasses import replace
from functools import partial

from assay.agents.chat_models import is_played_here, pool_of
from assay.api._run_parts import NOTHING_OWN, environment_of, episode_parts
from assay.api.run_preparation import load_agent
from assay.models import ModelPool, Price
from assay.rollouts import EpisodeKind, RunConfig
from assay.rollouts.estimate import Asker, Quote, RunEstimate, estimate_run
from assay.rollouts.sample import play_sample
from assay.runs import Arm, PreparedRun
from assay.runs.remaining import remaining
from assay.runs.spending import spent_so_far

__all__ = ["config_template", "estimate"]

_PATIENCE = 5.0
"""Seconds that who asks for an estimate waits for the database."""


def estimate(prepared: PreparedRun[RunConfig]) -> RunEstimate:
    """What a prepared run would take; needs no key and no network, and writes nothing.

    Raises:
        ModelRejected: There is no such model, or it is gone.
    """
    config = prepared.config
    pool = pool_of(replace(config, cache=None))
    kind = EpisodeKind(
        config,
        prepared.arms,
        partial(episode_parts, own=NOTHING_OWN, load_agent=load_agent),
        {},
    )
    return estimate_run(
        config,
        [_quote(arm, config, pool) for arm in prepared.arms],
        play_sample(config, environment_of(config, None)),
        remaining(
            prepared,
            kind.plan(prepared.record),
            config.max_turns,
            (lambda spec: config.forks[spec.fork].turn) if config.forks else None,
        ),
        spent=spent_so_far(
            prepared, patience=_PATIENCE, allow_different=prepared.allow_different
        ),
    )


def _quote(arm: Arm, config: RunConfig, pool: ModelPool) -> Quote:
    name, asked_by = arm.model, Asker.OURS
    if arm.agent is not None:
        asked_by = Asker.NOBODY if name is None else Asker.OWN
    if name is None or is_played_here(name, config):
        free = Price(input=0.0, output=0.0)
        return Quote(
            model=arm.label, provider="builtin", in_process=True, price=free, asked_by=asked_by
        )
    entry = pool.entry(name, retired=True)
    price = pool.price(entry)
    missing = pool.missing(entry)
    if price is None and config.budget is not None:
        missing += (f"the budget needs a price of {name!r}; give --price IN/OUT",)
    return Quote(
        model=arm.label,
        provider=entry.provider.name,
        price=price,
        per_minute=entry.requests_per_minute,
        missing=missing,
        asked_by=asked_by,
    )


def config_template() -> str:
    """The text of a configuration file with every key, its default and what it may be."""
    from assay.rollouts.template import run_template

    return run_template()

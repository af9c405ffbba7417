"""Arms of a run of episodes: models, user-defined agents, and baselines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.agents.builtin import BUILTIN_MODELS
from assay.agents.options import AgentOptions
from assay.agents.user_agents import OwnAgent
from assay.core.settings import Counts
from assay.episodes.config import BASELINES, DEFAULT_MODELS, ArmTable, RunConfig
from assay.episodes.environments import RANDOM, OwnEnvironment
from assay.errors import UsageError
from assay.runs.kind import Arm


def arms_of(
    config: RunConfig,
    agents: Mapping[str, OwnAgent],
    environment: OwnEnvironment | None = None,
) -> tuple[Arm, ...]:
    """Return the arms of a run in the given order, followed by automatic baselines.

    Args:
        config: Configuration of the run.
        agents: User-defined agents, by their name in the configuration.
        environment: The environment, if it is not Crafter.
    """
    asked = [*_asked(config, agents, environment)]
    if environment is not None:
        _check_models(asked, environment)
    labels = [table.label for table in asked]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise UsageError(
            f"two arms of the run are called {twice!r}; give one another label in [[arms]]"
        )
    if config.until_decided is not None and len(asked) < 2:
        raise UsageError(
            f"--until-decided compares arms, and {labels[0]!r} is the only one; give two or "
            "more, the baseline first"
        )
    beside = [ArmTable(name, name) for name in config.baselines_beside if name not in labels]
    alone = len(asked) == 1
    return (
        *(_arm(config, table, agents, environment, alone=alone) for table in asked),
        *(_arm(config, table, agents, environment, beside=True) for table in beside),
    )


def _check_models(asked: Sequence[ArmTable], environment: OwnEnvironment) -> None:
    for table in asked:
        if table.agent is not None or table.model == RANDOM:
            continue
        if table.model in BUILTIN_MODELS:
            raise UsageError(
                f"{table.model} plays Crafter and nothing else; in {environment.name} give "
                f"{RANDOM}, models, or agents of your own"
            )
        if not environment.can_be_told:
            lacks = "text(observation)" if environment.actions else "actions, their names"
            raise UsageError(
                f"{environment.name} cannot be told to a language model such as {table.model}: "
                f"it has no {lacks}; give --agents of your own, or a class that has it"
            )


def arm_options(config: RunConfig, arm: Arm) -> AgentOptions:
    """Return the agent options of an arm: those of the run with its own overrides."""
    stored = config.agent.stored() | dict(arm.settings)
    return AgentOptions(**stored)


def _asked(
    config: RunConfig, agents: Mapping[str, OwnAgent], environment: OwnEnvironment | None
) -> Iterator[ArmTable]:
    # If the environment has no text, models are only used by agents that call them.
    asking = any(agents[spec].takes_model for spec in config.agents)
    silent = asking and environment is not None and not environment.can_be_told
    for model in config.models:
        if model == RANDOM or not silent:
            yield ArmTable(model, model)
    names = [agents[spec].name for spec in config.agents]
    for spec, name in zip(config.agents, names, strict=True):
        label = name if names.count(name) == 1 else spec
        if not agents[spec].takes_model:
            yield ArmTable(label, None, spec)
        elif not config.models:
            raise UsageError(
                f"{spec} takes a model, and the run has none; name one or more with --models"
            )
        for model in config.models if agents[spec].takes_model else ():
            yield ArmTable(f"{label}+{model}", model, spec)
    yield from config.arms


def _arm(
    config: RunConfig,
    table: ArmTable,
    agents: Mapping[str, OwnAgent],
    environment: OwnEnvironment | None,
    *,
    alone: bool = False,
    beside: bool = False,
) -> Arm:
    if environment is not None and table.model == RANDOM and table.agent is None:
        # Not a language model, but a random choice from the available actions.
        table = replace(table, model=None, agent=RANDOM)
        agents = {**agents, RANDOM: environment.random_agent()}
    version: dict[str, Any] = {"model": table.model or table.label}
    version |= config.stored(Counts.VERSION)
    tags: dict[str, Any] = {}
    if table.settings:
        version["agent"] = {**version["agent"], **table.settings}
        tags["settings"] = dict(table.settings)
    if table.agent is not None:
        own = agents[table.agent]
        version["own_agent"] = {"name": own.name, "sha": own.sha}
        tags["agent"] = table.agent
        if own.sha:
            tags["agent_hash"] = own.sha
    if table.model is not None and table.model != table.label:
        tags["model"] = table.model
    if table.label in BASELINES and (beside or config.models == DEFAULT_MODELS):
        tags["baseline"] = True  # added automatically
    if environment is not None and environment.outcomes:
        tags["metrics"] = {
            name: {
                "metric": environment.name,
                "sha": environment.sha,
                "higher_is_better": better == "higher",
            }
            for name, better in environment.outcomes.items()
        }
    # In another environment, the same name is a different series.
    series = table.label if environment is None else f"{table.label} in {environment.name}"
    if config.forks:
        # Forked episodes are not comparable with whole episodes.
        series = f"{table.label} forked"
    if config.name is not None and not beside:
        series = config.name if alone else f"{config.name} {table.label}"
    return Arm(
        label=table.label,
        series=series,
        model=table.model,
        agent=table.agent,
        settings=dict(table.settings),
        version=version,
        tags=tags,
        is_compared=not beside,
    )

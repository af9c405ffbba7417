"""Arms of a run of episodes: models, user-defined agents, and baselines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.agents.builtin import BUILTIN_MODELS
from assay.agents.options import AgentOptions
from assay.agents.user_agents import UserAgent
from assay.core.settings import Counts
from assay.episodes.config import BASELINES, DEFAULT_MODELS, ArmTable, RunConfig
from assay.episodes.environments import RANDOM, UserEnvironment
from assay.errors import UsageError
from assay.runs.kind import Arm


def make_arms(
    config: RunConfig,
    agents: Mapping[str, UserAgent],
    environment: UserEnvironment | None = None,
) -> tuple[Arm, ...]:
    """Return the arms of a run in the given order, followed by automatic baselines.

    Args:
        config: Configuration of the run.
        agents: User-defined agents, by their name in the configuration.
        environment: The environment, if it is not Crafter.
    """
    tables = [*_iterate_tables(config, agents, environment)]
    if environment is not None:
        _check_models(tables, environment)
    labels = [table.label for table in tables]
    repeated = next((label for label in labels if labels.count(label) > 1), None)
    if repeated is not None:
        raise UsageError(
            f"two arms of the run have the label {repeated!r}; change one label in [[arms]]"
        )
    if config.until_decided is not None and len(tables) < 2:
        raise UsageError(
            f"--until-decided compares arms, and {labels[0]!r} is the only one; give two or "
            "more, the baseline first"
        )
    baselines = [ArmTable(name, name) for name in config.added_baselines if name not in labels]
    is_alone = len(tables) == 1
    return (
        *(_make_arm(config, table, agents, environment, is_alone=is_alone) for table in tables),
        *(
            _make_arm(config, table, agents, environment, is_baseline=True)
            for table in baselines
        ),
    )


def _check_models(tables: Sequence[ArmTable], environment: UserEnvironment) -> None:
    for table in tables:
        if table.agent is not None or table.model == RANDOM:
            continue
        if table.model in BUILTIN_MODELS:
            raise UsageError(
                f"{table.model} can play only Crafter; for {environment.name} give {RANDOM}, "
                "models, or your own agents"
            )
        if not environment.supports_models:
            missing = "text(observation)" if environment.actions else "list of action names"
            raise UsageError(
                f"{table.model} cannot play {environment.name}, which has no {missing}; give "
                "your own --agents, or add this to the class"
            )


def make_arm_options(config: RunConfig, arm: Arm) -> AgentOptions:
    """Return the agent options of an arm: those of the run with its own overrides."""
    stored = config.agent.stored() | dict(arm.settings)
    return AgentOptions(**stored)


def _iterate_tables(
    config: RunConfig, agents: Mapping[str, UserAgent], environment: UserEnvironment | None
) -> Iterator[ArmTable]:
    # If the environment has no text, models are only used by agents that call them.
    has_calling_agent = any(agents[spec].takes_model for spec in config.agents)
    skips_models = (
        has_calling_agent and environment is not None and not environment.supports_models
    )
    for model in config.models:
        if model == RANDOM or not skips_models:
            yield ArmTable(model, model)
    names = [agents[spec].name for spec in config.agents]
    for spec, name in zip(config.agents, names, strict=True):
        label = name if names.count(name) == 1 else spec
        if not agents[spec].takes_model:
            yield ArmTable(label, None, spec)
        elif not config.models:
            raise UsageError(
                f"{spec} takes a model, and the run has none; give one or more with --models"
            )
        for model in config.models if agents[spec].takes_model else ():
            yield ArmTable(f"{label}+{model}", model, spec)
    yield from config.arms


def _make_arm(
    config: RunConfig,
    table: ArmTable,
    agents: Mapping[str, UserAgent],
    environment: UserEnvironment | None,
    *,
    is_alone: bool = False,
    is_baseline: bool = False,
) -> Arm:
    if environment is not None and table.model == RANDOM and table.agent is None:
        # Not a language model, but a random choice from the available actions.
        table = replace(table, model=None, agent=RANDOM)
        agents = {**agents, RANDOM: environment.make_random_agent()}
    version: dict[str, Any] = {"model": table.model or table.label}
    version |= config.stored(Counts.VERSION)
    tags: dict[str, Any] = {}
    if table.settings:
        version["agent"] = {**version["agent"], **table.settings}
        tags["settings"] = dict(table.settings)
    if table.agent is not None:
        user_agent = agents[table.agent]
        version["own_agent"] = {"name": user_agent.name, "sha": user_agent.sha}
        tags["agent"] = table.agent
        if user_agent.sha:
            tags["agent_hash"] = user_agent.sha
    if table.model is not None and table.model != table.label:
        tags["model"] = table.model
    if table.label in BASELINES and (is_baseline or config.models == DEFAULT_MODELS):
        tags["baseline"] = True  # added automatically
    if environment is not None and environment.outcomes:
        tags["metrics"] = {
            name: {
                "metric": environment.name,
                "sha": environment.sha,
                "higher_is_better": better == "higher",
                **({"declared": {"better": better}} if better == "higher" else {}),
            }
            for name, better in environment.outcomes.items()
        }
    # In another environment, the same name is a different series.
    series = table.label if environment is None else f"{table.label} in {environment.name}"
    if config.forks:
        # Forked episodes are not comparable with whole episodes.
        series = f"{table.label} forked"
    if config.name is not None and not is_baseline:
        series = config.name if is_alone else f"{config.name} {table.label}"
    return Arm(
        label=table.label,
        series=series,
        model=table.model,
        agent=table.agent,
        settings=dict(table.settings),
        version=version,
        tags=tags,
        is_compared=not is_baseline,
    )

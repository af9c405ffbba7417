"""Preparation of runs with every kind of agent, including trained policies."""

from functools import partial
from pathlib import Path

from assay.agents.user_agents import CHECKPOINT, UserAgent
from assay.agents.user_agents import load_agent as load_own_agent
from assay.episodes.config import RunConfig
from assay.episodes.prepare import prepare as prepare_with
from assay.errors import UsageError


def load_agent(config: RunConfig, spec: str) -> UserAgent:
    """Load the agent for `file.py:name` or `checkpoint:FOLDER`."""
    if not spec.startswith(CHECKPOINT):
        return load_own_agent(spec)
    from assay.training.config import require_training_packages

    require_training_packages()
    from assay.training.checkpoints import checkpoint_agent

    if config.environment is not None:
        raise UsageError(
            f"{spec} was trained in Crafter and cannot be used in {config.environment}; omit "
            "one of them"
        )
    return checkpoint_agent(Path(spec.removeprefix(CHECKPOINT)))


prepare = partial(prepare_with, load_agent=load_agent)
"""Resolves and checks the settings of a run; see `assay.episodes.prepare.prepare`."""

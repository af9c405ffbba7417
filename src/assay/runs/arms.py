"""What plays in a run: each arm is an experiment of it, and a subject of statistics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Arm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """An agent, a model or none, and the settings in which it differs from its run."""

    label: str
    """What users call it; no other arm of the run has it."""
    series: str
    """What one follows over time."""
    model: str | None
    """Who is asked, by name; None for an agent that asks nobody."""
    agent: str | None = None
    """Where an agent of the user's own is, or what it is called; None for ours."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By name, what it has other than the run."""
    version: Mapping[str, Any] = field(default_factory=dict)
    """All that makes a version of it; a change makes a new one."""
    tags: Mapping[str, Any] = field(default_factory=dict)
    """Of its experiment."""
    is_compared: bool = True
    """Whether it was asked for; False for baselines that play beside."""

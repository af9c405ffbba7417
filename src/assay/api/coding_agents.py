"""The coding agents that a benchmark can name, and how those of others are installed."""

from typing import NamedTuple

from assay.bench.coders import (
    AGENTS,
    PROGRAMS,
    InstalledAgent,
    default_agent,
    install_agent,
    installed_agent,
)

__all__ = ["ListedAgent", "bench_agents", "bench_install_agent"]


class ListedAgent(NamedTuple):
    """A coding agent by name."""

    about: str
    default: bool
    """Whether it works where a task names none."""
    version: str | None
    """Of one that is a program of others, and is installed."""
    sha256: str | None
    installed: bool


def bench_agents() -> dict[str, ListedAgent]:
    """The coding agents that a benchmark can name, by name."""
    default = default_agent()
    listed = {}
    for name, about in AGENTS.items():
        agent = installed_agent(name) if name in PROGRAMS else None
        listed[name] = ListedAgent(
            about=about,
            default=name == default,
            version=None if agent is None else agent.version,
            sha256=None if agent is None else agent.sha256,
            installed=name not in PROGRAMS or agent is not None,
        )
    return listed


def bench_install_agent(name: str, version: str | None = None) -> InstalledAgent:
    """Install a coding agent below the cache folder; another version of it is replaced.

    Args:
        name: The agent.
        version: Of it; the latest if None.
    """
    return install_agent(name, version)

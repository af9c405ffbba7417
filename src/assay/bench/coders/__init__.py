"""Coding agents: whoever works on the repository of a task in a sandbox."""

from .choosing import AGENTS, default_agent, make_coder
from .programs import PROGRAMS, InstalledAgent, install_agent, installed_agent

__all__ = [
    "AGENTS",
    "PROGRAMS",
    "InstalledAgent",
    "default_agent",
    "install_agent",
    "installed_agent",
    "make_coder",
]

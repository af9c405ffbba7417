"""Coding agents that are programs of others: installed once, mounted into every sandbox."""

from .coder import ProgramCoder
from .installing import (
    PROGRAMS,
    InstalledAgent,
    agents_folder,
    install_agent,
    installed_agent,
)

__all__ = [
    "PROGRAMS",
    "InstalledAgent",
    "ProgramCoder",
    "agents_folder",
    "install_agent",
    "installed_agent",
]

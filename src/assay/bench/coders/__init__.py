"""Coding agents: whoever works on the repository of a task in a sandbox."""

from .choosing import AGENTS, make_coder

__all__ = ["AGENTS", "make_coder"]

"""Coding agents: whoever works on the repository of a task in a sandbox."""

"""Coding agents, which work on the repository of a task in a sandbox."""

"""Scripted players: policies that see a view, and an episode of one."""

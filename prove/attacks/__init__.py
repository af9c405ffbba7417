"""Attacks of tasks, agents and files on the machine that runs them, each tried for real."""

"""Sides of ours that need a process of their own. Each prints one line of JSON."""

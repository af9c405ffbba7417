"""Sides of ours that need a separate process. Each prints one line of JSON."""

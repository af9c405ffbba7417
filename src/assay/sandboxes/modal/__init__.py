"""Sandboxes on Modal's machines."""

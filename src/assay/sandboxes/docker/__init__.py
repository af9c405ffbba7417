"""Sandboxes in Docker's containers."""

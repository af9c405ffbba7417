"""The episode as a kind of trial, its hooks, metrics and outcomes, replay and verification."""

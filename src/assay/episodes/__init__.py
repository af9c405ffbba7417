"""Episodes as a kind of trial, with hooks, metrics, outcomes, replay and verification."""

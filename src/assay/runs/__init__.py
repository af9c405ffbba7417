"""Runs of any kind of trial: plan, engine, journals, resume, budget, looks, executors.

This package does not depend on environments or agents. A `TrialKind` executes one trial and
returns its result.
"""

"""A run of any kind of trial: plan, engine, journals, resume, budget, looks, executors.

Knows no world and no agent: a `TrialKind` runs one trial, and says how it ended.
"""

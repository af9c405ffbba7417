"""Launching: the same training for many seeds, as a kind of trial of `runs`.

`seeds` has the fixed list, `config` what can be chosen, `trainers` who trains, `kind` the
trial, `manifest` what is written down before the first run, `skypilot` tasks for elsewhere.
"""

"""Analyses of many episodes and their reports, with one module per analysis.

`episodes` defines the facts about an episode, read without its messages, and helpers that the
reports share.
"""

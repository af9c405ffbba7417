"""Numbers over many episodes, and the report of each: one file an analysis.

`episodes` has the facts of an episode, read without its messages, and what all reports share.
"""

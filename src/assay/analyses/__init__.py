"""Numbers over many episodes, and the report of each: one file an analysis.

`episodes` has the facts of an episode, read without its messages; `documents` the report of an
analysis by its type.
"""

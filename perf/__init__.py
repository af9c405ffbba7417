"""What `make perf` measures: the speed of assay as ratios against named peers.

`python -m perf` from the project's root prints one table. Every figure is a ratio of two
sides measured in turns in the same run: on a shared machine a time says little by itself.
`python -m perf --quick` only tries every row out, so that none is broken without being noticed.
`python -m perf --against COMMIT` sets this tree against another commit's in the same way, and
fails where it is worse; `against.py` says when that is.
"""

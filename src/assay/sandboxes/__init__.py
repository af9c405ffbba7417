"""Sandboxes: isolated places for commands, with access only to given files.

`base` has the types, `backends` selects a backend by name.
"""

"""Sandboxes: where commands run that reach nothing but what they were given.

`base` has the types, `backends` chooses one by its name.
"""

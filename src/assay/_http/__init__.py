"""The hosting of every server: who may ask, how much at once, and how it starts and stops.

Knows no world and no model. Import its modules.
"""

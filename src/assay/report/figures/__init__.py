"""Figures: numbers in, a `Drawing` out; each module draws one kind.

Nothing here opens a file but `drawing.save_png`, and nothing keeps state between drawings.
Every figure raises a `UsageError` where there is nothing to draw.
"""

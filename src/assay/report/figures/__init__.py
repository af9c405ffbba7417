"""Figures: numbers in, a `Drawing` out; each module draws one kind.

Only `drawing.save_png` writes a file, and no state is kept between drawings. Every figure
raises `UsageError` if there is nothing to draw.
"""

"""Grading of patches by hidden tests and by a judge, and the result files."""

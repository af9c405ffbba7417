"""Grading: what a patch comes to, by hidden tests and by a judge, and the files that say so."""

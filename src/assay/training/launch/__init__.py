"""The same training for many seeds, as a kind of trial of `runs`."""

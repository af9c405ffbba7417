"""Launches: one training configuration, trained with many seeds as trials of a run."""

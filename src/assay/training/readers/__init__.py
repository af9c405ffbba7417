"""Metric curves of training runs, read from files and trackers."""

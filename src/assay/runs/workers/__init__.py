"""Processes and Ray workers that run trials for a driver."""

"""Shared utilities: settings, values, text, files, secrets, git, HTTP hosting.

They know nothing of environments, models or traces. Import the modules directly.
"""

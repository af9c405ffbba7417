"""What every room uses: settings, values, text, files, secrets, git, HTTP hosting.

Knows no world, no model and no trace. Import its modules.
"""

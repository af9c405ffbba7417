"""What the trials of a store mean: versions, changes, subjects and outcomes, looks, plans.

Import its modules.
"""

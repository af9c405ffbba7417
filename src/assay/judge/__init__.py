"""Statistical comparison: trial outcomes in, verdicts out. No markup, figures or files.

subjects, outcomes: the entries that are compared, and the catalogue of metrics
              │
design, looks, plans: checks that forbid or govern a verdict before any number is read
              │
matching ─► contrasts ─► caveats, power, ranking, versions
all of it ─► results, which `report` turns into text, tables and figures
"""

"""Who is better: from the outcomes of trials to verdicts. No markup, no figures, no files.

subjects, outcomes: what is compared, and the metrics it is compared in
                  │
design, looks, plans: what forbids a verdict, or governs it, before any number
                  │
matching ─► contrasts ─► caveats, power, ranking, versions
all of it ─► results, which `report` puts into words, tables and figures
"""

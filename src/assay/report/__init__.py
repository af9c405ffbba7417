"""Reports of results, for people and programs.

run · comparison · over_time · benchmark · training_analysis ─► document document ─► terminal ·
html · files (Markdown, JSON, CSV), by file name extension
"""

"""What was found, for people and programs to read.

run · comparison · over_time · benchmark · training_analysis ─► document
document ─► terminal · html · files (Markdown, JSON, CSV), by their ending
"""

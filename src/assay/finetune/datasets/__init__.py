"""Training data from what was recorded: filters, rows, formats, lineage and validation."""

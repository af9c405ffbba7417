"""Training data from recorded episodes: filters, rows, formats, lineage and validation."""

"""The report of a comparison that `judge` made: words, tables, figures, and data."""

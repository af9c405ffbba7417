"""Report of a comparison by `judge`: sentences, tables, figures and data."""

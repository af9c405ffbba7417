"""Tasks in Harbor's layout, run unchanged."""

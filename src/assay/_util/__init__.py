"""Small helpers that know nothing of worlds, models or traces."""

"""A scripted player that plays above human level, from the local view alone."""

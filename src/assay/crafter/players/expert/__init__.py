"""A scripted player that plays above human level, using only its local view."""

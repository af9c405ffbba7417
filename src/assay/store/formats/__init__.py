"""File formats of exported and imported sessions."""

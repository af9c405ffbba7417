"""Scripts that ask other packages, in an environment of their own, for the same numbers."""

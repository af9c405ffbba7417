"""How long to wait before something is tried again."""

__all__ = ["backoff"]


def backoff(attempt: int, first: float, longest: float) -> float:
    """Seconds after an attempt, counted from 0: they double up to the longest wait.

    Callers wait a random part of it, so that those that failed together do not come back
    together.
    """
    # Far below the attempt where a power of two would no longer fit into a float.
    return min(longest, first * 2.0 ** min(attempt, 60))

"""What agents did, written down: a journal per session, then tables in one DuckDB file."""

__all__: list[str] = []

"""Proofs: long runs whose tables are committed in the documents."""

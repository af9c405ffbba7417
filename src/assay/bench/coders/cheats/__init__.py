"""Attacks on the benchmark, as coding agents: `--agent cheat/NAME`."""

from assay.bench.coders.cheats.cheats import CHEATS, Cheat, CheatCoder

__all__ = ["CHEATS", "Cheat", "CheatCoder"]

"""State digest: XXH64 over the canonical bytes of a world, shifted right by one bit.

XXH64 is the published 64-bit xxHash with seed 0, so that any implementation of it can check a
digest against `World.snapshot()`.
"""

from typing import Final

import numpy as np

from assay.crafter.engine.jit import entry, inlined
from assay.crafter.engine.layout import uint64_at

DIGEST_VERSION: Final = 1
"""Increased whenever the digest of any state changes."""

_P1: Final = np.uint64(11400714785074694791)
_P2: Final = np.uint64(14029467366897019727)
_P3: Final = np.uint64(1609587929392839161)
_P4: Final = np.uint64(9650029242287828579)


@inlined
def _rotate(word: np.uint64, bits: int) -> np.uint64:
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


@inlined
def _round(lane: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(lane + word * _P2, 31) * _P1


@inlined
def _merge(total: np.uint64, lane: np.uint64) -> np.uint64:
    return (total ^ _round(np.uint64(0), lane)) * _P1 + _P4


@entry
def xxh64(data: int, length: int) -> int:
    """Return XXH64 of `length` bytes at `data`, shifted right by one; length % 32 == 0."""
    words = uint64_at(data, length // 8)
    a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
    for i in range(0, length // 8, 4):
        a = _round(a, words[i])
        b = _round(b, words[i + 1])
        c = _round(c, words[i + 2])
        d = _round(d, words[i + 3])
    total = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
    total = _merge(_merge(_merge(_merge(total, a), b), c), d)
    total += np.uint64(length)
    total = (total ^ (total >> np.uint64(33))) * _P2
    total = (total ^ (total >> np.uint64(29))) * _P3
    total ^= total >> np.uint64(32)
    return int(np.int64(total >> np.uint64(1)))

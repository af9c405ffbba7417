"""Worlds that are held out of training: whole seeds, and never single rows."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import blake2b

from assay.errors import UsageError

__all__ = ["Holdout", "read_seeds", "read_share"]

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST = 1_000_000


def read_seeds(text: str, option: str) -> tuple[int, ...]:
    """The seeds of a list such as `42,43,50-59`.

    Raises:
        UsageError: It is none.
    """
    seeds: dict[int, None] = {}
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        found = _RANGE.fullmatch(part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < first + _MOST:
            raise UsageError(
                f"{option} {text!r}: {part!r} is no seed; give seeds such as 42,43,50-59"
            )
        seeds.update(dict.fromkeys(range(first, last + 1)))
    if not seeds:
        raise UsageError(f"{option} {text!r} has no seed; give seeds such as 42,43,50-59")
    return tuple(seeds)


def read_share(text: str, option: str) -> float:
    """The share that a text such as `20%` or `0.2` stands for.

    Raises:
        UsageError: It is none above 0 and up to 1.
    """
    try:
        percent = text.strip().endswith("%")
        share = float(text.strip().removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"{option} {text!r} is no share; give one such as 20% or 0.2")
    return share


@dataclass(frozen=True, slots=True)
class Holdout:
    """Which seeds are held out: these, or a share of those there are."""

    seeds: tuple[int, ...] = ()
    share: float | None = None

    @classmethod
    def read(cls, text: str) -> "Holdout":
        """What a list of seeds, or a share such as `20%`, stands for."""
        if "%" in text:
            return cls(share=read_share(text, "--holdout-seeds"))
        return cls(read_seeds(text, "--holdout-seeds"))

    def among(self, seeds: Collection[int]) -> frozenset[int]:
        """The seeds among these that are held out.

        A share takes the seeds with the smallest hashes, so that the same ones are taken
        every time and have nothing to do with how they were played.
        """
        if self.share is None:
            return frozenset(self.seeds) & frozenset(seeds)
        ranked = sorted(
            set(seeds), key=lambda seed: blake2b(str(seed).encode(), digest_size=8).digest()
        )
        return frozenset(ranked[: max(1, round(self.share * len(ranked)))] if ranked else ())

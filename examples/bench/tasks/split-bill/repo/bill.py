"""Who pays what."""

from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")


def split(total, people):
    """What each of so many people pays."""
    share = (Decimal(total) / people).quantize(CENT, ROUND_HALF_UP)
    return [share] * people

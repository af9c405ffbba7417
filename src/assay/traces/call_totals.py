"""Running totals of the model calls of one trial."""

from .records import CallRecord

__all__ = ["CallTotals"]


class CallTotals:
    """Tokens, cost and turns of the calls so far."""

    __slots__ = ("_turns", "cost_usd", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        """Prompt and completion tokens."""
        self.cost_usd: float | None = 0.0
        """What the calls cost; None once the price of one is not known."""
        self._turns: set[int] = set()

    def add_call(self, call: CallRecord) -> None:
        """Count one call of the model."""
        self._turns.add(call.turn)
        self.tokens += call.usage.total
        if self.cost_usd is not None:
            self.cost_usd = None if call.cost_usd is None else self.cost_usd + call.cost_usd

    @property
    def turns(self) -> int:
        """How many turns were counted."""
        return len(self._turns)

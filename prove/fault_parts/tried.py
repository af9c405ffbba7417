"""What one attack came to."""

from dataclasses import dataclass

__all__ = ["Tried"]


@dataclass(slots=True)
class Tried:
    """A line of the table: an attack, tried several times."""

    attack: str
    tries: int = 0
    losses: int = 0
    """Tries after which something was lost, wrong or hidden."""
    note: str = ""
    """What was seen, in a few words."""
    first_loss: str = ""

    def count(self, lost: str = "") -> None:
        """One more try; `lost` says what it lost, if it did."""
        self.tries += 1
        if lost:
            self.losses += 1
            self.first_loss = self.first_loss or lost

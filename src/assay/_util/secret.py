"""A text that must not be shown."""

__all__ = ["Secret"]


class Secret:
    """A text that is shown nowhere; only `reveal` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that has to send it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

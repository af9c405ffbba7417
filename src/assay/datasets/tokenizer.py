"""The tokenizer of a user's model: a local file, and never the network."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from assay.errors import UsageError

__all__ = ["TokenizerFile"]


class TokenizerFile:
    """The `tokenizer.json` of a model.

    Raises:
        UsageError: The file is no such tokenizer, or the library that reads it is not there.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise UsageError(
                f"--tokenizer {str(path)!r} is no file; name the tokenizer.json of your model"
            )
        try:
            library: Any = import_module("tokenizers")
        except ImportError:
            raise UsageError(
                "--tokenizer needs the library tokenizers, which is not installed: "
                "pip install tokenizers; without --tokenizer, tokens are estimated"
            ) from None
        try:
            self._tokenizer = library.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise UsageError(
                f"--tokenizer {str(path)!r} is no tokenizer.json that can be read: {error}"
            ) from error

    def count(self, text: str) -> int:
        """How many tokens a text has, without those that the tokenizer would add."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def places(self, text: str) -> Sequence[tuple[int, int]]:
        """Where each token of a text begins and ends, in characters."""
        found: Sequence[tuple[int, int]] = self._tokenizer.encode(
            text, add_special_tokens=False
        ).offsets
        return found

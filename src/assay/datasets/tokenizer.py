"""Counts of tokens by a tokenizer of the user's: a local file, and never the network."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from assay.errors import UsageError

__all__ = ["token_counter"]


def token_counter(path: Path) -> Callable[[str], int]:
    """What counts the tokens of a text as the `tokenizer.json` of a model does.

    Special tokens, which a chat template adds, are not counted.

    Raises:
        UsageError: The file is no such tokenizer, or the library that reads it is not there.
    """
    if not path.is_file():
        raise UsageError(
            f"--tokenizer {str(path)!r} is no file; name the tokenizer.json of your model"
        )
    try:
        library = import_module("tokenizers")
    except ImportError:
        raise UsageError(
            "--tokenizer needs the library tokenizers, which is not installed: "
            "pip install tokenizers; without --tokenizer, tokens are estimated"
        ) from None
    try:
        tokenizer = library.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise UsageError(
            f"--tokenizer {str(path)!r} is no tokenizer.json that can be read: {error}"
        ) from error
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)

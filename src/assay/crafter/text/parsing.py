"""Reading a text back, whichever form it has.

What was read is written again and must come out the same. So a text is accepted exactly if
one of the forms would say it, and what a form says twice cannot contradict itself.
"""

from assay.errors import UsageError

from .full import full_text, read_full
from .lines import Lines
from .observation import Observation
from .short import read_short, short_text

__all__ = ["parse"]


def parse(text: str) -> Observation:
    """The observation that `full_text` or `short_text` wrote; else a UsageError.

    Takes the whole text of an observation and nothing around it.
    """
    if not isinstance(text, str):
        raise UsageError(f"not an observation: {text!r}; give the text as a str")
    lines = Lines(text)
    if text.startswith("Step"):
        observation = read_full(lines)
        again = full_text(observation)
    else:
        observation = read_short(lines)
        again = short_text(observation)
    if again != text:
        lines.compare(again)
    return observation

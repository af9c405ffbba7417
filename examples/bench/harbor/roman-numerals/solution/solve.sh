#!/bin/sh
cat > /app/roman.py <<'END'
"""Roman numerals."""

import re

VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
RIGHT = re.compile("M*(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})")


def to_number(text):
    """The number that a Roman numeral stands for."""
    if not text or not RIGHT.fullmatch(text):
        raise ValueError(f"{text!r} is not a Roman numeral")
    values = [VALUES[letter] for letter in text]
    return sum(
        -value if value < after else value
        for value, after in zip(values, [*values[1:], 0])
    )
END

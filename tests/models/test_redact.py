import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from assay.core.secrets import MARK, redact


@pytest.mark.parametrize("write", [str, json.dumps, quote, quote_plus])
def test_a_secret_is_found_however_it_is_written(write: Callable[[str], str]) -> None:
    secret = 'sk-"odd"/key+\\1234'
    text = redact(f"before {write(secret)} after", [secret])
    assert MARK in text
    assert "odd" not in text
    assert text.startswith("before ")
    assert text.endswith(" after")


def test_the_longer_secret_goes_first() -> None:
    assert redact("sk-abcdefgh-more", ["sk-abcdefgh", "sk-abcdefgh-more"]) == MARK


def test_a_short_secret_is_taken_out_only_where_it_stands_alone() -> None:
    assert redact("test the latest: test", ["test"]) == f"{MARK} the latest: {MARK}"


def test_nothing_is_secret_where_there_are_no_secrets() -> None:
    assert redact("all of it", [None, ""]) == "all of it"

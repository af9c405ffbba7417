import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import ModelRefused
from assay.models.budget import cost, upper_bound
from assay.models.registry import Price
from assay.types import ChatRequest, Encoded, Message, Usage

from .server import request

PRICE = Price(input=2.0, output=8.0, cached=0.5)


def test_cached_tokens_have_their_own_price() -> None:
    usage = Usage(prompt=1000, completion=100, cached=400, reasoning=50)
    assert cost(usage, PRICE) == pytest.approx((600 * 2.0 + 400 * 0.5 + 100 * 8.0) / 1e6)


def test_cached_tokens_without_a_price_cost_as_much_as_others() -> None:
    usage = Usage(prompt=1000, cached=400)
    assert cost(usage, Price(input=2.0, output=8.0)) == pytest.approx(0.002)


def test_a_prompt_beyond_the_price_has_an_unknown_cost() -> None:
    price = Price(input=2.0, output=8.0, up_to=100)
    assert cost(Usage(prompt=101), price) is None
    with pytest.raises(ModelRefused, match="no known price"):
        upper_bound(request("long " * 100), price)


@given(
    texts=st.lists(st.text(max_size=80), max_size=6),
    tools=st.integers(0, 3),
    max_tokens=st.integers(1, 4096),
    cached=st.floats(0, 1),
)
def test_cost_bound_holds_for_any_tokenization(
    texts: list[str], tools: int, max_tokens: int, cached: float
) -> None:
    messages = [Message({"role": "user", "content": text}) for text in texts]
    asked = ChatRequest(
        "m", messages, Encoded([{"type": "function"}] * tools), max_tokens=max_tokens
    )
    # A token for each byte of all that is sent, and some around each message and tool.
    worst = sum(len(m.encoded) + 10 for m in messages) + len(asked.tools.encoded) + 30 * tools
    usage = Usage(worst, max_tokens, cached=int(worst * cached))
    actual = cost(usage, PRICE)
    assert actual is not None
    assert actual <= upper_bound(asked, PRICE)


def test_cache_write_cost_is_included_in_the_bound() -> None:
    dear = Price(input=2.0, output=8.0, cache_write=2.5)
    assert upper_bound(request(), dear) > upper_bound(request(), PRICE)

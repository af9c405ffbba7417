"""How a provider is reached: its address and its key, as the environment has them."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from assay._util.secret import Secret
from assay.errors import ModelRejected

from .registry import Provider

__all__ = ["find_base_url", "find_key", "is_address"]


def find_key(provider: Provider, environment: Mapping[str, str] | None = None) -> Secret | None:
    """The key for a provider; None if it needs none.

    Raises:
        ModelRejected: It needs one and there is none, or what is there cannot be a key.
    """
    variable = provider.key_variable
    text = "" if variable is None else _value(variable, environment)
    if text and not (text.isascii() and text.isprintable() and " " not in text):
        raise ModelRejected(
            f"the variable {variable} does not hold a key: "
            "a key has printable ASCII characters only, and no blanks between them"
        )
    if text:
        return Secret(text)
    if provider.key is not None:
        return provider.key
    if variable is None or provider.key_optional:
        return None
    raise ModelRejected(
        f"there is no key for provider {provider.name!r}; set the variable {variable}"
    )


def find_base_url(provider: Provider, environment: Mapping[str, str] | None = None) -> str:
    """The address of a provider, without a slash at its end.

    Raises:
        ModelRejected: Nobody says where it is, or what is said is no address.
    """
    variable = provider.base_url_variable
    text = "" if variable is None else _value(variable, environment)
    if text and not is_address(text):
        raise ModelRejected(
            f"the variable {variable} does not hold a URL such as "
            "http://localhost:8000/v1, without a name or password in it"
        )
    if text and provider.path and not text.rstrip("/").endswith(provider.path):
        text = text.rstrip("/") + provider.path
    address = text or provider.base_url
    if address is None:
        step = f"set the variable {variable}" if variable else "give its row a base_url"
        raise ModelRejected(f"nobody says where provider {provider.name!r} is; {step}")
    return address.rstrip("/")


def is_address(text: str) -> bool:
    """Whether a text is a URL of a service, with no name or password in it."""
    if not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and "@" not in parts.netloc
        and port != 0
        and not parts.query
        and not parts.fragment
    )


def _value(variable: str, environment: Mapping[str, str] | None) -> str:
    return (os.environ if environment is None else environment).get(variable, "").strip()

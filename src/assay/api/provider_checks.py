"""How providers stand: rows of the user, keys and addresses.

Keys are told by the names of their variables, and sent to nobody.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from assay.api.checking import Check, CheckState
from assay.errors import ModelRejected, UsageError

if TYPE_CHECKING:
    from assay.models import Provider, Registry

__all__ = ["check_backends", "check_models", "check_providers"]

_TIMEOUT = 3.0


def check_models() -> Check:
    """Whether the rows of models can be read, those of the user too."""
    from assay.models import load_registry, user_rows

    path = user_rows()
    try:
        registry = load_registry()
    except UsageError as error:
        step = "correct that file, or name another with ASSAY_MODELS; see docs/models.md"
        return Check("models", CheckState.FAIL, str(error), step)
    own = "no file of your own" if path is None else f"with those of {path}"
    if registry.warnings:
        return Check("models", CheckState.WARN, "; ".join(registry.warnings))
    return Check("models", CheckState.OK, f"{len(registry.entries)} rows, {own}")


def check_providers(timeout: float = _TIMEOUT) -> list[Check]:
    """How the providers stand that a variable is set for; one line names all others."""
    import asyncio

    from assay.models import load_registry
    from assay.models.reach import why_unreachable

    try:
        registry = load_registry()
    except UsageError:
        return []  # told by `check_models`
    used = [one for one in registry.providers.values() if _is_used(one, os.environ)]
    found = [_access(provider) for provider in used]
    addresses = [one.address for one in found if isinstance(one, _Access)]
    silent = asyncio.run(why_unreachable(addresses, timeout)) if addresses else {}
    checks = [
        one if isinstance(one, Check) else _answered(one, silent.get(one.address))
        for one in found
    ]
    return [*checks, *_others(registry, used)]


def check_backends() -> Check:
    """Which fine-tuning services can be used, and what others lack; asks nobody."""
    from importlib.util import find_spec

    from assay.api._finetune_parts import place_of
    from assay.finetune import BACKENDS

    parts = []
    for backend in BACKENDS.values():
        try:
            address, _, lacks = place_of(backend, None)
        except UsageError as error:
            address, lacks = None, (str(error),)
        extra = backend.loopback and find_spec("torch") is None
        more = ", without the extra 'local'" if extra else ""
        parts.append(f"{backend.name}: {'; '.join(lacks) or f'at {address}'}{more}")
    step = "'assay finetune health --backend NAME' asks one whether it answers"
    return Check("finetune", CheckState.OK, ". ".join(parts), step)


class _Access(NamedTuple):
    """A provider that can be asked."""

    name: str
    key: str
    """In words."""
    address: str


def _is_used(provider: "Provider", environment: Mapping[str, str]) -> bool:
    variables = (provider.key_variable, provider.base_url_variable)
    is_set = any(name is not None and environment.get(name) for name in variables)
    return is_set or provider.key is not None


def _access(provider: "Provider") -> Check | _Access:
    from assay.models import find_base_url, find_key

    try:
        key = find_key(provider)
        address = find_base_url(provider)
    except ModelRejected as error:
        return Check("provider", CheckState.WARN, f"{provider.name}: {error}")
    variable = provider.key_variable
    if key is None:
        words = "asked without a key"
    elif variable is not None and os.environ.get(variable, "").strip():
        words = f"key in {variable}"
    else:
        words = "key in the file of models"
    return _Access(provider.name, words, address)


def _answered(access: _Access, reason: str | None) -> Check:
    start = f"{access.name}: {access.key}"
    if reason is None:
        return Check("provider", CheckState.OK, f"{start}, answers on {access.address}")
    detail = f"{start}, cannot be reached on {access.address}: {reason}"
    return Check(
        "provider", CheckState.WARN, detail, "check the address, the network and proxies"
    )


def _others(registry: "Registry", used: list["Provider"]) -> list[Check]:
    rest = [one for one in registry.providers.values() if one not in used]
    locked = [
        f"{one.name} ({one.key_variable})"
        for one in rest
        if one.key_variable is not None and not one.key_optional
    ]
    free = [one.name for one in rest if one.key_variable is None or one.key_optional]
    parts = []
    if locked:
        parts.append(f"no key for {', '.join(locked)}")
    if free:
        parts.append(f"no key needed for {', '.join(free)}")
    if not parts:
        return []
    step = "set the variable in brackets to use such models; built-in ones need no key"
    return [Check("provider", CheckState.OK, "; ".join(parts), step if locked else None)]

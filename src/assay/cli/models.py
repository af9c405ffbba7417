"""`assay models`: list the known models with their prices, and test one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from assay.cli.options import Database
from assay.cli.output import OutputOptions, print_json, print_line, print_note, print_warning
from assay.cli.tables import print_table, print_wrapped
from assay.core.text import printable
from assay.errors import ModelRejected
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.models.registry import ModelEntry, Price, Provider, Registry
    from assay.types import ChatModel, ChatReply

_HEADS = (
    *("model", "provider", "key", "input", "cached", "output", "priced on"),
    *("context", "retired"),
)
_TEXT_COLUMNS = ("model", "provider", "key", "priced on", "retired")
_BUILTIN = "builtin"
_MAX_REPLY = 500

models = App(
    name="models",
    help="""List the known models, or test one.

For example:

    assay models --provider openai
    assay models test builtin/noop
""",
    help_format="plaintext",
)


@models.default
def list_models(
    *,
    provider: str | None = None,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """List the known models, their prices, and whether an API key is set.

    Prices are in dollars per million tokens, on the date shown. Keys are never shown.

    For example:

        assay models --provider openai

    Args:
        provider: Only models from this provider.
        database: DuckDB file; models from its fine-tuning jobs are also listed.
        show: Output options.
    """
    from assay.api.models import list_models

    registry, builtin, entries = list_models(provider, database=database)
    for warning in registry.warnings:
        print_warning(warning)
    if show.json:
        print_json(_to_json(registry, builtin, entries, provider))
    elif show.quiet:
        for name in [*builtin, *(entry.name for entry in entries)]:
            print_line(name)
    else:
        _print_models(builtin, entries, registry, provider)
    return 0


@models.command(name="test")
def try_model(
    name: str,
    /,
    *,
    provider: Annotated[str | None, Parameter(show_default=False)] = None,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Send a model a short request; print its reply, latency, tokens and cost.

    For most models this costs far less than a cent.

    For example:

        assay models test builtin/noop

    Args:
        name: Name of the model, as in 'assay run --models'.
        provider: Provider of a fine-tuned model whose name is ambiguous.
        database: DuckDB file whose fine-tuning jobs may have created the model.
        show: Output options.
    """
    from assay.api.models import try_model

    model, reply = try_model(name, provider=provider, database=database, notice=print_note)
    if show.json:
        print_json(
            {
                "model": name,
                "provider": model.provider,
                "reply": _shorten_reply(reply),
                "finish_reason": reply.finish_reason,
                "latency_s": reply.latency_s,
                "waited_s": reply.waited_s,
                "retries": reply.retries,
                "usage": asdict(reply.usage),
                "cost_usd": reply.cost_usd,
            }
        )
    elif show.quiet:
        print_line(_shorten_reply(reply))
    else:
        _print_reply(model, reply)
    return 0


def _shorten_reply(reply: "ChatReply") -> str:
    text = reply.message.text
    return text if len(text) <= _MAX_REPLY else f"{text[: _MAX_REPLY - 1]}…"


def _print_reply(model: "ChatModel", reply: "ChatReply") -> None:
    usage = reply.usage
    cost = "unknown: the model has no price"
    if reply.cost_usd is not None:
        cost = f"${reply.cost_usd:.3g}" if reply.cost_usd else "$0"
    print_line(f"model    {model.name} of {model.provider}")
    print_line(f"reply    {_shorten_reply(reply) or '(no text)'}")
    print_line(f"ended by {reply.finish_reason}")
    print_line(
        f"latency  {reply.latency_s:.3f} s, after {reply.waited_s:.3f} s of waiting "
        f"and {reply.retries} retries"
    )
    print_line(
        f"tokens   {usage.prompt} in the prompt ({usage.cached} cached), "
        f"{usage.completion} in the reply ({usage.reasoning} of reasoning)"
    )
    print_line(f"cost     {cost}")


def _print_models(
    builtin: Sequence[str],
    entries: Sequence["ModelEntry"],
    registry: "Registry",
    provider: str | None,
) -> None:
    free = [(name, _BUILTIN, "not needed", "0", "0", "0", "", "", "") for name in builtin]
    print_table(_HEADS, [*free, *(_format_cells(entry) for entry in entries)], _TEXT_COLUMNS)
    print_line("")
    print_wrapped("prices in dollars per million tokens, on the date shown; context in tokens")
    if provider is None:
        others = ", ".join(registry.providers)
        print_wrapped(f"also any model of a provider, as PROVIDER/NAME: {others}")
    elif provider != _BUILTIN:
        print_wrapped(f"also any other model of this provider, as {provider}/NAME")
        entry = registry.providers[provider]
        if entry.note:
            print_wrapped(f"{provider}: {entry.note}")


def _format_cells(entry: "ModelEntry") -> tuple[str, ...]:
    price = entry.price
    return (
        printable(entry.name),
        printable(entry.provider.name),
        _format_key(entry.provider),
        "" if price is None else f"{price.input:g}",
        "" if price is None or price.cached is None else f"{price.cached:g}",
        "" if price is None else f"{price.output:g}",
        "" if price is None else str(price.dated),
        "" if entry.context is None else str(entry.context),
        _format_retirement(entry),
    )


def _format_retirement(entry: "ModelEntry") -> str:
    after = f"; use {printable(entry.successor)}" if entry.successor else ""
    if entry.retired is None:
        return ""
    return f"{'since' if entry.is_retired() else 'from'} {entry.retired}{after}"


def _format_key(provider: "Provider") -> str:
    if provider.key_variable is None and provider.key is None:
        return "not needed"
    if _has_key(provider):
        return "yes"
    return "optional" if provider.key_optional else f"no: {provider.key_variable}"


def _has_key(provider: "Provider") -> bool:
    from assay.models.registry import find_key

    try:
        return find_key(provider) is not None
    except ModelRejected:
        return False


def _to_json(
    registry: "Registry",
    builtin: Sequence[str],
    entries: Sequence["ModelEntry"],
    provider: str | None,
) -> dict[str, Any]:
    providers = [
        entry for entry in registry.providers.values() if provider in (None, entry.name)
    ]
    return {
        "models": [
            *({"name": name, "provider": _BUILTIN, "key_present": None} for name in builtin),
            *(_entry_to_json(entry) for entry in entries),
        ],
        "providers": [_provider_to_json(entry) for entry in providers],
    }


def _entry_to_json(entry: "ModelEntry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "provider": entry.provider.name,
        "remote_name": entry.remote_name,
        "price": None if entry.price is None else _price_to_json(entry.price),
        "context": entry.context,
        "tools": entry.tools,
        "requests_per_minute": entry.requests_per_minute,
        "key_present": _is_key_set(entry.provider),
        "retired": _format_day(entry.retired),
        "is_retired": entry.is_retired(),
        "successor": entry.successor,
        "looked_up": _format_day(entry.looked_up),
        "note": entry.note,
    }


def _provider_to_json(provider: "Provider") -> dict[str, Any]:
    return {
        "name": provider.name,
        "base_url": provider.base_url,
        "base_url_variable": provider.base_url_variable,
        "key_variable": provider.key_variable,
        "key_present": _is_key_set(provider),
        "note": provider.note,
    }


def _price_to_json(price: "Price") -> Mapping[str, Any]:
    return {**asdict(price), "dated": _format_day(price.dated)}


def _is_key_set(provider: "Provider") -> bool | None:
    """Return whether an API key is set; None if none is needed."""
    if provider.key_variable is None and provider.key is None:
        return None
    return _has_key(provider)


def _format_day(day: object) -> str | None:
    return None if day is None else str(day)

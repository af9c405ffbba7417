"""`assay models`: list the known models with their prices, and test one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from assay.cli.options import Database
from assay.cli.output import Show, note, say, say_json, warn
from assay.cli.tables import say_prose, say_table
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
_LEFT = ("model", "provider", "key", "priced on", "retired")
_BUILTIN = "builtin"
_LONGEST_REPLY = 500

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
    show: Show = Show(),
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
        warn(warning)
    if show.json:
        say_json(_plain(registry, builtin, entries, provider))
    elif show.quiet:
        for name in [*builtin, *(entry.name for entry in entries)]:
            say(name)
    else:
        _say_table(builtin, entries, registry, provider)
    return 0


@models.command(name="test")
def try_model(
    name: str,
    /,
    *,
    provider: Annotated[str | None, Parameter(show_default=False)] = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
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

    model, reply = try_model(name, provider=provider, database=database, notice=note)
    if show.json:
        say_json(
            {
                "model": name,
                "provider": model.provider,
                "reply": _words(reply),
                "finish_reason": reply.finish_reason,
                "latency_s": reply.latency_s,
                "waited_s": reply.waited_s,
                "retries": reply.retries,
                "usage": asdict(reply.usage),
                "cost_usd": reply.cost_usd,
            }
        )
    elif show.quiet:
        say(_words(reply))
    else:
        _say_reply(model, reply)
    return 0


def _words(reply: "ChatReply") -> str:
    text = reply.message.text
    return text if len(text) <= _LONGEST_REPLY else f"{text[: _LONGEST_REPLY - 1]}…"


def _say_reply(model: "ChatModel", reply: "ChatReply") -> None:
    usage = reply.usage
    cost = "unknown: the model has no price"
    if reply.cost_usd is not None:
        cost = f"${reply.cost_usd:.3g}" if reply.cost_usd else "nothing"
    say(f"model    {model.name} of {model.provider}")
    say(f"reply    {_words(reply) or '(no text)'}")
    say(f"ended by {reply.finish_reason}")
    say(
        f"latency  {reply.latency_s:.3f} s, after {reply.waited_s:.3f} s of waiting "
        f"and {reply.retries} retries"
    )
    say(
        f"tokens   {usage.prompt} in the prompt ({usage.cached} cached), "
        f"{usage.completion} in the reply ({usage.reasoning} of reasoning)"
    )
    say(f"cost     {cost}")


def _say_table(
    builtin: Sequence[str],
    entries: Sequence["ModelEntry"],
    registry: "Registry",
    provider: str | None,
) -> None:
    free = [(name, _BUILTIN, "not needed", "0", "0", "0", "", "", "") for name in builtin]
    say_table(_HEADS, [*free, *(_cells(entry) for entry in entries)], _LEFT)
    say("")
    say_prose(
        "prices in dollars per million tokens, on the day they were seen; context in tokens"
    )
    if provider is None:
        others = ", ".join(registry.providers)
        say_prose(f"also any model of a provider, as PROVIDER/NAME: {others}")
    elif provider != _BUILTIN:
        say_prose(f"also any other model of this provider, as {provider}/NAME")
        one = registry.providers[provider]
        if one.note:
            say_prose(f"{provider}: {one.note}")


def _cells(entry: "ModelEntry") -> tuple[str, ...]:
    price = entry.price
    return (
        printable(entry.name),
        printable(entry.provider.name),
        _key(entry.provider),
        "" if price is None else f"{price.input:g}",
        "" if price is None or price.cached is None else f"{price.cached:g}",
        "" if price is None else f"{price.output:g}",
        "" if price is None else str(price.dated),
        "" if entry.context is None else str(entry.context),
        _retired(entry),
    )


def _retired(entry: "ModelEntry") -> str:
    after = f"; use {printable(entry.successor)}" if entry.successor else ""
    if entry.retired is None:
        return ""
    return f"{'since' if entry.is_retired() else 'from'} {entry.retired}{after}"


def _key(provider: "Provider") -> str:
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


def _plain(
    registry: "Registry",
    builtin: Sequence[str],
    entries: Sequence["ModelEntry"],
    provider: str | None,
) -> dict[str, Any]:
    providers = [one for one in registry.providers.values() if provider in (None, one.name)]
    return {
        "models": [
            *({"name": name, "provider": _BUILTIN, "key_present": None} for name in builtin),
            *(_plain_entry(entry) for entry in entries),
        ],
        "providers": [_plain_provider(one) for one in providers],
    }


def _plain_entry(entry: "ModelEntry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "provider": entry.provider.name,
        "remote_name": entry.remote_name,
        "price": None if entry.price is None else _plain_price(entry.price),
        "context": entry.context,
        "tools": entry.tools,
        "requests_per_minute": entry.requests_per_minute,
        "key_present": _key_present(entry.provider),
        "retired": _day(entry.retired),
        "is_retired": entry.is_retired(),
        "successor": entry.successor,
        "looked_up": _day(entry.looked_up),
        "note": entry.note,
    }


def _plain_provider(provider: "Provider") -> dict[str, Any]:
    return {
        "name": provider.name,
        "base_url": provider.base_url,
        "base_url_variable": provider.base_url_variable,
        "key_variable": provider.key_variable,
        "key_present": _key_present(provider),
        "note": provider.note,
    }


def _plain_price(price: "Price") -> Mapping[str, Any]:
    return {**asdict(price), "dated": _day(price.dated)}


def _key_present(provider: "Provider") -> bool | None:
    """Return whether an API key is set; None if none is needed."""
    if provider.key_variable is None and provider.key is None:
        return None
    return _has_key(provider)


def _day(day: object) -> str | None:
    return None if day is None else str(day)

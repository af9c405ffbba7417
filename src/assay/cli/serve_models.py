"""`assay serve-models`: the built-in models over HTTP, with faults on request."""

import os
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from assay.cli.access import secret_of, warn_of_others
from assay.cli.numbers import Whole
from assay.cli.output import Show, say, say_json
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.serving import Faults, RunningModels, ServingLimits

__all__ = ["serve_models"]

_KEY_VARIABLE: Final = "ASSAY_SERVE_MODELS_KEY"
_FAULTS: Final = Group("Faults", sort_key=7)
_PER_MINUTE: Final = re.compile(r"([1-9][0-9]{0,7})(?:/min)?")
_Seconds = Annotated[float, Parameter(validator=Number(gte=0, lte=3600))]
_Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
_Count = Annotated[Whole | None, Parameter(validator=Number(gte=1, lte=10_000_000))]


@Parameter(name="*", group=_FAULTS)
@dataclass(frozen=True, kw_only=True)
class FaultOptions:
    """What goes wrong on purpose."""

    latency: _Seconds = 0.0
    """Seconds every answer takes."""
    jitter: _Seconds = 0.0
    """Up to so many seconds more, drawn for each call."""
    rate_limit: str | None = None
    """Calls a minute, for example 300 or 300/min; what is more gets 429 with Retry-After."""
    rate_burst: _Count = None
    """Calls that may come at once after a pause; without it a second's worth."""
    max_concurrency: _Count = None
    """Calls that may be open; one more gets 429."""
    error_rate: _Share = 0.0
    """The share of calls that get 500, 502 or 503."""
    busy_rate: _Share = 0.0
    """The share of calls that get 429, whatever the limits say."""
    cut_rate: _Share = 0.0
    """The share of calls whose connection is lost, mostly in the middle of the answer."""
    malformed_rate: _Share = 0.0
    """The share of calls that get 200 and no completion."""
    late_rate: _Share = 0.0
    """The share of calls whose answer comes late."""
    late_seconds: _Seconds = 30.0
    """How late."""
    seed: Annotated[Whole, Parameter(validator=Number(gte=0))] = 0
    """Decides, with the bytes of a request, what happens to it."""


_NONE: Final = FaultOptions()


def serve_models(
    *,
    host: str = "127.0.0.1",
    port: Annotated[Whole, Parameter(validator=Number(gte=0, lte=65535))] = 8903,
    alias: Annotated[list[str] | None, Parameter(negative="")] = None,
    api_key_env: str = _KEY_VARIABLE,
    allow_host: Annotated[list[str] | None, Parameter(negative="")] = None,
    faults: FaultOptions = _NONE,
    show: Show = Show(),
) -> int:
    """Serve the built-in models to clients of OpenAI's chat API until Ctrl-C.

    Real HTTP without a key or a network: for trying things out, as a load, and to see what
    a client does when answers are slow, refused, cut off or nonsense. GET /stats counts
    what was asked.

    For example:

        assay serve-models --latency 0.5 --rate-limit 300 --error-rate 0.05

    Args:
        host: The address to listen on; anything but loopback lets other machines in.
        port: The port to listen on; 0 picks a free one.
        alias: A further name of a model, as NAME=builtin/noop; may be given many times.
        api_key_env: The environment variable that holds the key clients must send; where
            it is not set, no key is asked for.
        allow_host: Names that clients may call the server by, besides its own.
        faults: What goes wrong on purpose.
        show: What to print.
    """
    key = secret_of(api_key_env, default=_KEY_VARIABLE, option="--api-key-env", what="API key")
    from assay.serving import ModelServerSettings, RunningModels, run

    settings = ModelServerSettings(
        host=host,
        port=port,
        aliases=_aliases(alias or []),
        faults=_faults(faults),
        limits=_limits(faults),
        api_key=key,
        allowed_hosts=tuple(allow_host or ()),
    )

    def announce(service: RunningModels) -> None:
        if not settings.is_local:
            warn_of_others(host, api_key_env, has_secret=key is not None, what="API key")
        _announce(service, show, api_key_env)

    run(settings, announce)
    if not (show.quiet or show.json):
        say("stopped")
    return 0


def _aliases(given: list[str]) -> dict[str, str]:
    aliases: dict[str, str] = {}
    for text in given:
        name, equals, model = text.rpartition("=")
        if not equals or not name:
            raise UsageError(f"--alias {text!r} is not allowed; give NAME=builtin/noop")
        if aliases.setdefault(name, model) != model:
            raise UsageError(f"--alias {name!r} is given twice, for different models")
    return aliases


def _faults(options: FaultOptions) -> "Faults":
    from assay.serving import Faults

    limits = ("rate_limit", "rate_burst", "max_concurrency")
    chosen = {name: value for name, value in asdict(options).items() if name not in limits}
    return Faults(**chosen)


def _limits(options: FaultOptions) -> "ServingLimits":
    from assay.serving import ServingLimits

    per_minute = None
    if options.rate_limit is not None:
        found = _PER_MINUTE.fullmatch(options.rate_limit)
        if found is None:
            raise UsageError(
                f"--rate-limit {options.rate_limit!r} is not allowed; "
                "give calls a minute, for example 300 or 300/min"
            )
        per_minute = int(found[1])
    elif options.rate_burst is not None:
        raise UsageError("--rate-burst is a part of --rate-limit; give that too")
    return ServingLimits(
        per_minute=per_minute, burst=options.rate_burst, at_once=options.max_concurrency
    )


def _announce(service: "RunningModels", show: Show, variable: str) -> None:
    settings = service.settings
    if show.json:
        say_json(
            {
                "address": service.address,
                "base_url": service.base_url,
                "pid": os.getpid(),
                "models": list(service.names),
                "api_key": settings.api_key is not None,
                "faults": asdict(settings.faults),
                "limits": asdict(settings.limits),
            }
        )
    elif show.quiet:
        say(service.base_url)
    else:
        header = f' -H "Authorization: Bearer ${variable}"' if settings.api_key else ""
        say(f"serving models on {service.base_url} (Ctrl-C ends it)")
        say(f"models: {', '.join(service.names)}")
        say(f"counts: {service.address}/stats")
        key = f"${variable}" if settings.api_key else "none"
        say(f"clients: OPENAI_BASE_URL={service.base_url} OPENAI_API_KEY={key}")
        say(
            f"try: curl{header} {service.base_url}/chat/completions -d '"
            '{"model": "builtin/noop", "messages": [{"role": "user", "content": "hi"}]}'
            "'"
        )

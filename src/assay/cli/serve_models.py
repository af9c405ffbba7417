"""`assay serve-models`: the built-in models over HTTP, with faults on request."""

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
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
    """Seconds that every reply takes."""
    jitter: _Seconds = 0.0
    """Up to this many seconds more, drawn at random for each call."""
    rate_limit: str | None = None
    """Calls per minute, such as 300 or 300/min; more get 429 with Retry-After."""
    rate_burst: Annotated[_Count, Parameter(show_default="one second's worth")] = None
    """Calls allowed at once after a pause."""
    max_concurrency: _Count = None
    """Calls that may be open at once; more get 429."""
    error_rate: _Share = 0.0
    """The share of calls answered with 500, 502 or 503."""
    busy_rate: _Share = 0.0
    """The share of calls answered with 429, whatever the limits are."""
    cut_rate: _Share = 0.0
    """The share of calls whose connection breaks, mostly in the middle of the reply."""
    malformed_rate: _Share = 0.0
    """The share of calls answered with 200 but without a valid completion."""
    late_rate: _Share = 0.0
    """The share of calls whose reply comes late."""
    late_seconds: _Seconds = 30.0
    """Seconds that a late reply takes longer."""
    seed: Annotated[Whole, Parameter(validator=Number(gte=0))] = 0
    """The seed of the faults: with the same seed, a request always gets the same fault."""


_NONE: Final = FaultOptions()


def serve_models(
    *,
    host: str = "127.0.0.1",
    port: Annotated[Whole, Parameter(validator=Number(gte=0, lte=65535))] = 8903,
    alias: Annotated[list[str] | None, Parameter(negative="")] = None,
    script: Path | None = None,
    api_key_env: str = _KEY_VARIABLE,
    allow_host: Annotated[list[str] | None, Parameter(negative="")] = None,
    faults: FaultOptions = _NONE,
    show: Show = Show(),
) -> int:
    """Serve the built-in models to clients of OpenAI's chat API until Ctrl-C.

    A real HTTP server that needs no key and no network: to try things out, to test under
    load, and to see how a client handles slow, refused, broken or malformed replies. GET
    /stats counts the requests.

    For example:

        assay serve-models --latency 0.5 --rate-limit 300 --error-rate 0.05

    Args:
        host: The address to listen on; any address but loopback can be reached from other
            machines.
        port: The port to listen on; 0 picks a free port.
        alias: Another name for a model, as NAME=builtin/noop. May be repeated.
        script: A TOML file with shell commands that a further model runs one after another, to
            try coding agents: solve.toml is served as scripted/solve.
        api_key_env: The environment variable with the key that clients must send. If it is not
            set, no key is needed.
        allow_host: Another host name that clients may use for this server. May be repeated.
        faults: What goes wrong on purpose.
        show: What to print.
    """
    key = secret_of(api_key_env, default=_KEY_VARIABLE, option="--api-key-env", what="API key")
    from assay.agents.builtin import builtin_models
    from assay.serving import ModelServerSettings, RunningModels, run

    settings = ModelServerSettings(
        host=host,
        port=port,
        aliases=_aliases(alias or []),
        script=script,
        faults=_faults(faults),
        limits=_limits(faults),
        api_key=key,
        allowed_hosts=tuple(allow_host or ()),
    )

    def announce(service: RunningModels) -> None:
        if not settings.is_local:
            warn_of_others(host, api_key_env, has_secret=key is not None, what="API key")
        _announce(service, show, api_key_env)

    run(settings, announce, builtin_models())
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

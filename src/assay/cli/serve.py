"""`assay serve`: the world over HTTP."""

import os
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from assay.cli.access import secret_of, warn_of_others
from assay.cli.numbers import Whole
from assay.cli.output import Show, compiling_shown, say, say_json

if TYPE_CHECKING:
    from assay.service import RunningService

__all__ = ["serve"]

_TOKEN_VARIABLE = "ASSAY_SERVICE_TOKEN"


def serve(
    *,
    host: str = "127.0.0.1",
    port: Annotated[Whole, Parameter(validator=Number(gte=0, lte=65535))] = 8901,
    max_instances: Annotated[Whole, Parameter(validator=Number(gte=1, lte=100_000))] = 1024,
    idle_timeout: Annotated[float, Parameter(validator=Number(gt=0, lte=1e9))] = 3600.0,
    token_env: str = _TOKEN_VARIABLE,
    allow_host: Annotated[list[str] | None, Parameter(negative="")] = None,
    seed: Annotated[
        Whole | None, Parameter(validator=Number(gte=0), show_default="random")
    ] = None,
    show: Show = Show(),
) -> int:
    """Serve Crafter worlds over HTTP until Ctrl-C.

    Clients create worlds with POST /env/CrafterClassic/initialize and play them with
    /step; /docs describes every route. Worlds are kept in memory until the service ends.

    For example:

        assay serve --port 8901 --max-instances 64

    Args:
        host: The address to listen on; any address but loopback can be reached from other
            machines.
        port: The port to listen on; 0 picks a free port.
        max_instances: The most worlds that may be open at once.
        idle_timeout: Seconds without a request after which a world is closed.
        token_env: The environment variable with the token that clients must send. If it is
            not set, no token is needed.
        allow_host: Another host name that clients may use for this service. May be repeated.
        seed: The seed for worlds that are created without one.
        show: What to print.
    """
    token = secret_of(token_env, default=_TOKEN_VARIABLE, option="--token-env", what="token")
    from assay.service import RunningService, ServiceSettings, run

    settings = ServiceSettings(
        host=host,
        port=port,
        max_instances=max_instances,
        idle_timeout=idle_timeout,
        token=token,
        allowed_hosts=tuple(allow_host or ()),
        **({} if seed is None else {"seed": seed}),
    )

    def prepare() -> None:
        with compiling_shown(show):
            from assay.crafter import warmup

            warmup()

    def announce(service: RunningService) -> None:
        if not settings.is_local:
            warn_of_others(host, token_env, has_secret=token is not None, what="token")
        _announce(service, show, token_env)

    run(settings, announce, prepare)
    if not (show.quiet or show.json):
        say("stopped")
    return 0


def _announce(service: "RunningService", show: Show, variable: str) -> None:
    settings = service.settings
    if show.json:
        say_json(
            {
                "address": service.address,
                "pid": os.getpid(),
                "seed": settings.seed,
                "max_instances": settings.max_instances,
                "idle_timeout": settings.idle_timeout,
                "token": settings.token is not None,
            }
        )
    elif show.quiet:
        say(service.address)
    else:
        header = f' -H "Authorization: Bearer ${variable}"' if settings.token else ""
        say(f"serving CrafterClassic on {service.address} (Ctrl-C ends it)")
        say(f"routes: {service.address}/docs")
        say(f"worlds created without a seed get one from --seed {settings.seed}")
        say(
            f"try: curl{header} {service.address}/env/CrafterClassic/initialize"
            """ -d '{"config": {"seed": 7}}'"""
        )

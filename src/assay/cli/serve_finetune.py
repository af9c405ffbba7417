"""`assay serve-finetune`: fine-tuning and chats with local models over HTTP."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from assay.cli.access import secret_of, warn_of_others
from assay.cli.numbers import Whole
from assay.cli.output import Show, say, say_json

if TYPE_CHECKING:
    from assay.finetune.service import RunningFinetune

__all__ = ["serve_finetune"]

_KEY_VARIABLE: Final = "ASSAY_SERVE_FINETUNE_KEY"
_GIGABYTE: Final = 1_000_000_000


def serve_finetune(
    *,
    host: str = "127.0.0.1",
    port: Annotated[Whole, Parameter(validator=Number(gte=0, lte=65535))] = 8904,
    folder: Annotated[
        Path | None, Parameter(show_default="~/.local/share/assay/finetune")
    ] = None,
    quota_gb: Annotated[float, Parameter(validator=Number(gt=0))] = 10.0,
    threads: Annotated[Whole, Parameter(validator=Number(gte=1, lte=1024))] = 1,
    free_calls: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    api_key_env: str = _KEY_VARIABLE,
    allow_host: Annotated[list[str] | None, Parameter(negative="")] = None,
    end_with_stdin: Annotated[bool, Parameter(negative="", show=False)] = False,
    show: Show = Show(),
) -> int:
    """Fine-tune local models, and let them answer, until Ctrl-C.

    Speaks OpenAI's protocol for files, fine-tuning jobs and chats; its models are local/tiny,
    which is trained from scratch, and local/smollm2-135m. Jobs are trained one after the
    other. Those that have not ended are resumed when the service starts again.

    Needs the extra: pip install 'assay[local]'

    For example:

        assay serve-finetune --port 8904

    Args:
        host: The address to listen on; any address but loopback can be reached from other
            machines.
        port: The port to listen on; 0 picks a free port.
        folder: Where files, jobs and models are kept.
        quota_gb: How large that folder may become, in gigabytes.
        threads: Processor threads for training and for answers; with one, the same data and
            seed give the same weights.
        free_calls: Let models write tool calls as they like, instead of keeping them to the
            schemas of the tools.
        api_key_env: The environment variable with the key that clients must send. If it is not
            set, no key is needed.
        allow_host: Another host name that clients may use for this server. May be repeated.
        end_with_stdin: End when standard input does, for a command that starts it.
        show: What to print.
    """
    key = secret_of(api_key_env, default=_KEY_VARIABLE, option="--api-key-env", what="API key")
    from assay.finetune.service import FinetuneServerSettings, RunningFinetune, run
    from assay.models.local_service import default_folder, require_local

    require_local()
    settings = FinetuneServerSettings(
        host=host,
        port=port,
        folder=folder or default_folder(),
        quota=int(quota_gb * _GIGABYTE),
        constrained=not free_calls,
        threads=threads,
        ends_with=sys.stdin.buffer if end_with_stdin else None,
        api_key=key,
        allowed_hosts=tuple(allow_host or ()),
    )

    def announce(service: RunningFinetune) -> None:
        if not settings.is_local:
            warn_of_others(host, api_key_env, has_secret=key is not None, what="API key")
        _announce(service, show, api_key_env)

    run(settings, announce)
    if not (show.quiet or show.json):
        say("stopped")
    return 0


def _announce(service: "RunningFinetune", show: Show, variable: str) -> None:
    settings = service.settings
    if show.json:
        say_json(
            {
                "address": service.address,
                "base_url": service.base_url,
                "pid": os.getpid(),
                "folder": str(settings.folder),
                "models": list(service.names),
                "api_key": settings.api_key is not None,
            }
        )
    elif show.quiet:
        say(service.base_url)
    else:
        key = f"${variable}" if settings.api_key else "none"
        say(f"fine-tuning on {service.base_url} (Ctrl-C ends it)")
        say(f"models: {', '.join(service.names)}")
        say(f"kept in: {settings.folder}")
        say(f"clients: OPENAI_BASE_URL={service.base_url} OPENAI_API_KEY={key}")
        say("try: assay finetune start data.jsonl --backend local --model local/tiny")

"""`assay serve`, `serve-models`, `serve-finetune`: worlds, models and training over HTTP."""

import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from assay.cli.options import Flag
from assay.cli.output import OutputOptions, print_json, print_line, show_compilation
from assay.cli.tables import Whole
from assay.core.text import printable
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.crafter.service.app import RunningService
    from assay.finetune.service.server import RunningFinetune
    from assay.models.serving.app import RunningModels
    from assay.models.serving.faults import Faults, ServingLimits


def read_secret(variable: str, *, default: str, option: str, kind: str) -> str | None:
    """Return the secret in an environment variable; None if the default variable is not set.

    The secret is never printed, even if it is invalid. `what` names it in messages.
    """
    secret = os.environ.get(variable)
    if secret is None:
        if variable == default:
            return None
        raise UsageError(f"{option}: environment variable {variable!r} is not set")
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise UsageError(
            f"the {kind} in {variable} is not allowed; "
            "give one or more printable ASCII characters without blanks"
        )
    return secret


def warn_about_exposure(host: str, variable: str, *, has_secret: bool, kind: str) -> None:
    """Warn on standard error that other machines can reach a server."""
    risk = f"no {kind} is required: set {variable}"
    if has_secret:
        risk = f"the {kind} is sent unencrypted"
    line = printable(f"other machines can reach {host}, and {risk}")
    print(f"warning: {line}", file=sys.stderr, flush=True)


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
    show: OutputOptions = OutputOptions(),
) -> int:
    """Serve Crafter worlds over HTTP until Ctrl-C.

    Clients create worlds with POST /env/CrafterClassic/initialize and send actions to
    /step; /openapi.json describes every route. Worlds are kept in memory until the
    service stops.

    For example:

        assay serve --port 8901 --max-instances 64

    Args:
        host: Address to listen on; addresses other than loopback are reachable from other
            machines.
        port: Port to listen on; 0 picks a free port.
        max_instances: Maximum number of open worlds.
        idle_timeout: Seconds without a request after which a world is closed.
        token_env: Environment variable with the token that clients must send. If it is not
            set, no token is required.
        allow_host: Additional host name that clients may use for this service. May be
            repeated.
        seed: Seed for worlds created without one.
        show: Output options.
    """
    token = read_secret(token_env, default=_TOKEN_VARIABLE, option="--token-env", kind="token")
    from assay.crafter.service.app import RunningService, ServiceSettings, run

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
        with show_compilation(show):
            from assay.crafter.world import warmup

            warmup()

    def announce(service: RunningService) -> None:
        if not settings.is_local:
            warn_about_exposure(host, token_env, has_secret=token is not None, kind="token")
        _announce_worlds(service, show, token_env)

    run(settings, announce, prepare)
    if not (show.quiet or show.json):
        print_line("stopped")
    return 0


def _announce_worlds(service: "RunningService", show: OutputOptions, variable: str) -> None:
    settings = service.settings
    if show.json:
        print_json(
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
        print_line(service.address)
    else:
        header = f' -H "Authorization: Bearer ${variable}"' if settings.token else ""
        print_line(f"serving CrafterClassic on {service.address} (press Ctrl-C to stop)")
        print_line(f"routes: {service.address}/openapi.json")
        print_line(f"worlds created without a seed get one from --seed {settings.seed}")
        print_line(
            f"try: curl{header} {service.address}/env/CrafterClassic/initialize"
            """ -d '{"config": {"seed": 7}}'"""
        )


_MODELS_KEY_VARIABLE: Final = "ASSAY_SERVE_MODELS_KEY"
_FAULTS: Final = Group("Faults", sort_key=7)
_PER_MINUTE: Final = re.compile(r"([1-9][0-9]{0,7})(?:/min)?")
_Seconds = Annotated[float, Parameter(validator=Number(gte=0, lte=3600))]
_Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
_Count = Annotated[Whole | None, Parameter(validator=Number(gte=1, lte=10_000_000))]


@Parameter(name="*", group=_FAULTS)
@dataclass(frozen=True, kw_only=True)
class FaultOptions:
    """Faults that the server injects."""

    latency: _Seconds = 0.0
    """Latency of every reply in seconds."""
    jitter: _Seconds = 0.0
    """Maximum additional latency in seconds, drawn at random for each call."""
    rate_limit: str | None = None
    """Calls per minute, such as 300 or 300/min; further calls get 429 with Retry-After."""
    rate_burst: Annotated[_Count, Parameter(show_default="the calls of one second")] = None
    """Size of a burst of calls after a pause."""
    max_concurrency: _Count = None
    """Maximum number of open calls; further calls get 429."""
    error_rate: _Share = 0.0
    """Share of calls answered with 500, 502 or 503."""
    busy_rate: _Share = 0.0
    """Share of calls answered with 429, regardless of the limits."""
    cut_rate: _Share = 0.0
    """Share of calls whose connection breaks, usually in the middle of the reply."""
    malformed_rate: _Share = 0.0
    """Share of calls answered with 200 but without a valid completion."""
    late_rate: _Share = 0.0
    """Share of calls with a delayed reply."""
    late_seconds: _Seconds = 30.0
    """Additional delay of such a reply in seconds."""
    seed: Annotated[Whole, Parameter(validator=Number(gte=0))] = 0
    """Seed of the faults: with the same seed, a request always gets the same fault."""


_NO_FAULTS: Final = FaultOptions()


def serve_models(
    *,
    host: str = "127.0.0.1",
    port: Annotated[Whole, Parameter(validator=Number(gte=0, lte=65535))] = 8903,
    alias: Annotated[list[str] | None, Parameter(negative="")] = None,
    script: Path | None = None,
    api_key_env: str = _MODELS_KEY_VARIABLE,
    allow_host: Annotated[list[str] | None, Parameter(negative="")] = None,
    faults: FaultOptions = _NO_FAULTS,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Serve the built-in models over OpenAI's chat API until Ctrl-C.

    A mock model server with fault injection; it needs no key and no network. Use it for trials
    and load tests, and to test how a client handles slow, refused, broken or malformed
    replies. GET /stats returns request counts.

    For example:

        assay serve-models --latency 0.5 --rate-limit 300 --error-rate 0.05

    Args:
        host: Address to listen on; addresses other than loopback are reachable from other
            machines.
        port: Port to listen on; 0 picks a free port.
        alias: Additional name for a model, as NAME=builtin/noop. May be repeated.
        script: TOML file with shell commands that an additional model runs in order, for
            testing coding agents: solve.toml is served as scripted/solve.
        api_key_env: Environment variable with the key that clients must send. If it is not
            set, no key is required.
        allow_host: Additional host name that clients may use for this server. May be repeated.
        faults: Faults to inject.
        show: Output options.
    """
    key = read_secret(
        api_key_env, default=_MODELS_KEY_VARIABLE, option="--api-key-env", kind="API key"
    )
    from assay.agents.builtin import make_builtin_models
    from assay.models.serving.app import ModelServerSettings, RunningModels, run

    settings = ModelServerSettings(
        host=host,
        port=port,
        aliases=_parse_aliases(alias or []),
        script=script,
        faults=_build_faults(faults),
        limits=_parse_limits(faults),
        api_key=key,
        allowed_hosts=tuple(allow_host or ()),
    )

    def announce(service: RunningModels) -> None:
        if not settings.is_local:
            warn_about_exposure(host, api_key_env, has_secret=key is not None, kind="API key")
        _announce_models(service, show, api_key_env)

    run(settings, announce, make_builtin_models())
    if not (show.quiet or show.json):
        print_line("stopped")
    return 0


def _parse_aliases(texts: list[str]) -> dict[str, str]:
    aliases: dict[str, str] = {}
    for text in texts:
        name, equals, model = text.rpartition("=")
        if not equals or not name:
            raise UsageError(f"--alias {text!r} is not allowed; give NAME=builtin/noop")
        if aliases.setdefault(name, model) != model:
            raise UsageError(f"--alias {name!r} is given twice, for different models")
    return aliases


def _build_faults(options: FaultOptions) -> "Faults":
    from assay.models.serving.faults import Faults

    limits = ("rate_limit", "rate_burst", "max_concurrency")
    rates = {name: value for name, value in asdict(options).items() if name not in limits}
    return Faults(**rates)


def _parse_limits(options: FaultOptions) -> "ServingLimits":
    from assay.models.serving.faults import ServingLimits

    per_minute = None
    if options.rate_limit is not None:
        match = _PER_MINUTE.fullmatch(options.rate_limit)
        if match is None:
            raise UsageError(
                f"--rate-limit {options.rate_limit!r} is not allowed; "
                "give calls per minute, for example 300 or 300/min"
            )
        per_minute = int(match[1])
    elif options.rate_burst is not None:
        raise UsageError("--rate-burst needs --rate-limit; give both")
    return ServingLimits(
        per_minute=per_minute, burst=options.rate_burst, at_once=options.max_concurrency
    )


def _announce_models(service: "RunningModels", show: OutputOptions, variable: str) -> None:
    settings = service.settings
    if show.json:
        print_json(
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
        print_line(service.base_url)
    else:
        header = f' -H "Authorization: Bearer ${variable}"' if settings.api_key else ""
        print_line(f"serving models on {service.base_url} (press Ctrl-C to stop)")
        print_line(f"models: {', '.join(service.names)}")
        print_line(f"counts: {service.address}/stats")
        key = f"${variable}" if settings.api_key else "none"
        print_line(f"clients: OPENAI_BASE_URL={service.base_url} OPENAI_API_KEY={key}")
        print_line(
            f"try: curl{header} {service.base_url}/chat/completions -d '"
            '{"model": "builtin/noop", "messages": [{"role": "user", "content": "hi"}]}'
            "'"
        )


_FINETUNE_KEY_VARIABLE: Final = "ASSAY_SERVE_FINETUNE_KEY"
_GIGABYTE: Final = 1_000_000_000


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class _TrainingOptions:
    """Folder of the models, and settings for training and inference."""

    folder: Annotated[Path | None, Parameter(show_default="~/.local/share/assay/finetune")] = (
        None
    )
    """Folder for files, jobs and models."""
    quota_gb: Annotated[float, Parameter(validator=Number(gt=0))] = 10.0
    """Maximum size of that folder in gigabytes."""
    threads: Annotated[Whole, Parameter(validator=Number(gte=1, lte=1024))] = 1
    """Number of CPU threads for training and inference; with one, the same data and seed give
    the same weights."""
    free_calls: Flag = False
    """Do not constrain tool calls of models to the schemas of the tools."""


def serve_finetune(
    *,
    host: str = "127.0.0.1",
    port: Annotated[Whole, Parameter(validator=Number(gte=0, lte=65535))] = 8904,
    training: _TrainingOptions = _TrainingOptions(),
    api_key_env: str = _FINETUNE_KEY_VARIABLE,
    allow_host: Annotated[list[str] | None, Parameter(negative="")] = None,
    end_with_stdin: Annotated[bool, Parameter(negative="", show=False)] = False,
    show: OutputOptions = OutputOptions(),
) -> int:
    """Serve fine-tuning and inference of local models until Ctrl-C.

    Implements OpenAI's API for files, fine-tuning jobs and chats. The models are local/tiny,
    which is trained from scratch, and local/smollm2-135m. Jobs run one after another.
    Unfinished jobs are resumed when the service is restarted.

    Requires the extra 'local': pip install '.[local]' in a clone of assay

    For example:

        assay serve-finetune --port 8904

    Args:
        host: Address to listen on; addresses other than loopback are reachable from other
            machines.
        port: Port to listen on; 0 picks a free port.
        training: Folder of the models, and settings for training and inference.
        api_key_env: Environment variable with the key that clients must send. If it is not
            set, no key is required.
        allow_host: Additional host name that clients may use for this server. May be repeated.
        end_with_stdin: Stop when standard input is closed, for commands that start the server.
        show: Output options.
    """
    key = read_secret(
        api_key_env, default=_FINETUNE_KEY_VARIABLE, option="--api-key-env", kind="API key"
    )
    from assay.finetune.service.server import FinetuneServerSettings, RunningFinetune, run
    from assay.models.local_service import default_folder, require_local

    require_local()
    settings = FinetuneServerSettings(
        host=host,
        port=port,
        folder=training.folder or default_folder(),
        quota=int(training.quota_gb * _GIGABYTE),
        constrained=not training.free_calls,
        threads=training.threads,
        ends_with=sys.stdin.buffer if end_with_stdin else None,
        api_key=key,
        allowed_hosts=tuple(allow_host or ()),
    )

    def announce(service: RunningFinetune) -> None:
        if not settings.is_local:
            warn_about_exposure(host, api_key_env, has_secret=key is not None, kind="API key")
        _announce_finetune(service, show, api_key_env)

    run(settings, announce)
    if not (show.quiet or show.json):
        print_line("stopped")
    return 0


def _announce_finetune(service: "RunningFinetune", show: OutputOptions, variable: str) -> None:
    settings = service.settings
    if show.json:
        print_json(
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
        print_line(service.base_url)
    else:
        key = f"${variable}" if settings.api_key else "none"
        print_line(f"fine-tuning on {service.base_url} (press Ctrl-C to stop)")
        print_line(f"models: {', '.join(service.names)}")
        print_line(f"folder: {settings.folder}")
        print_line(f"clients: OPENAI_BASE_URL={service.base_url} OPENAI_API_KEY={key}")
        print_line("try: assay finetune start data.jsonl --backend local --model local/tiny")

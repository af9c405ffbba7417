"""`assay finetune start`, `test`, `check-model` and `health`: fine-tune on episode data."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number

from assay.cli.finetune_jobs import (
    INTERRUPTED,
    as_json,
    cancel,
    events,
    exit_code,
    follow,
    list_,
    short_time,
    status,
    usage,
    wait,
)
from assay.cli.options import (
    Database,
    Flag,
    Given,
    Text,
    add_commands,
    open_store,
    option_groups,
)
from assay.cli.output import Show, command_line, counting, note, say, say_json, warn
from assay.cli.tables import say_table
from assay.core.text import counted, cut
from assay.errors import AssayError
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.finetune.follow import SmokeTest
    from assay.finetune.start import FinetunePlan

_LONGEST = 300


def test(
    job: str = "latest",
    /,
    *,
    data: Annotated[Path | None, Parameter(show_default=False)] = None,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Test a fine-tuned model with one request.

    The request is the first row of its training data, or a short question if that file is
    missing. The exit code is 1 if the request offers tools and the model calls none, or calls
    one incorrectly.

    For example:

        assay finetune test ftjob-abc123

    Args:
        job: Job id, the start of one, the model it produced, or latest.
        data: Take the request from this file instead of the training data.
        database: Database with the jobs.
        show: Output options.
    """
    from assay.finetune.follow import finetune_test

    found = finetune_test(job, data=data, database=open_store(database, show), notice=note)
    if show.json:
        say_json(
            {
                "model": found.model,
                "address": found.address,
                "from_data": found.from_data,
                "reply": dict(found.reply.message.value),
                "finish_reason": found.reply.finish_reason,
                "problem": found.problem,
            }
        )
    elif show.quiet:
        say(found.problem or "ok")
    else:
        say_test(found)
    return 1 if found.problem else 0


def say_test(found: "SmokeTest") -> None:
    """Print the reply of a new model."""
    what = "the first row of its data" if found.from_data else "a short question"
    say(f"{found.model} answers {what} ({found.reply.latency_s:.1f} s):")
    if found.reply.message.text:
        say(f"  {cut(found.reply.message.text, _LONGEST)}")
    for call in found.reply.message.value.get("tool_calls") or ():
        function = call.get("function", {})
        words = f"{function.get('name')}({function.get('arguments')})"
        say(f"  calls {cut(words, _LONGEST)}")
    if found.problem is not None:
        warn(f"its answer cannot be played: {found.problem}")


@option_groups(service="assay.finetune.options:ServiceOptions")
def check_model(
    model: str,
    /,
    *,
    service: Given,
    data: Annotated[Path | None, Parameter(show_default=False)] = None,
    show: Show = Show(),
) -> int:
    """Check whether a model can be fine-tuned, and show its price.

    With --data, the data file is checked too. The service is queried if a key and an address
    are available. The exit code is 1 if the model cannot be fine-tuned.

    For example:

        assay finetune check-model Qwen/Qwen2.5-7B-Instruct

    Args:
        model: Model to fine-tune.
        service: Fine-tuning service.
        data: Data file to check for this model.
        show: Output options.
    """
    from assay.finetune.follow import finetune_check_model

    with counting(show, "checking rows") as progress:
        found = finetune_check_model(model, data=data, progress=progress, **service)
    if show.json:
        say_json({**found._asdict(), "ok": not found.problems})
    elif show.quiet:
        say("no" if found.problems else "yes")
    else:
        word = "cannot be" if found.problems else "can be"
        say(f"{found.model} {word} fine-tuned by {found.backend}")
        for problem in found.problems:
            say(f"  {problem}")
        price = "not known" if found.price is None else f"${found.price:g}"
        say(f"price     {price} for a million trained tokens")
        context = "not known" if found.context is None else f"{found.context:,} tokens"
        say(f"context   {context} of a row; tool calls are trained too")
        asked = {
            True: "lists it",
            False: "does not list it",
            None: "not asked, or lists none",
        }
        say(f"service   {found.address or 'no address'}: {asked[found.on_service]}")
        if found.rows is not None:
            say(f"data      {found.rows:,} rows, ~{found.tokens or 0:,} tokens")
        for warning in found.warnings:
            warn(warning)
    return 1 if found.problems else 0


def health(*, backend: str = "synth", base_url: Text = None, show: Show = Show()) -> int:
    """Check that a fine-tuning service responds and accepts the key.

    For example:

        assay finetune health --backend openai

    Args:
        backend: Fine-tuning service. [choices: openai, synth, local]
        base_url: URL of the service; overrides its environment variable.
        show: Output options.
    """
    from assay.finetune.follow import finetune_health

    found = finetune_health(backend, base_url=base_url)
    if show.json:
        say_json(found)
    else:
        more = ", ".join(f"{key} {value}" for key, value in found.items() if key not in _OWN)
        say(f"{found['backend']} answers on {found['address']}{f': {more}' if more else ''}")
    return 0


_OWN = ("backend", "address")

_HEADS = ("model", "rows", "epochs", "batch", "rate", "steps", "~tokens", "~cost", "~time")


@option_groups(
    {"tuning": Group("Training", sort_key=2)},
    tuning="assay.finetune.options:TuningOptions",
    service="assay.finetune.options:PaidServiceOptions",
)
def start(
    data: Path,
    /,
    *,
    tuning: Given,
    service: Given,
    poll_interval: Annotated[float, Parameter(validator=Number(gte=0, lte=3600))] = 30.0,
    wait: bool = True,
    dry_run: Flag = False,
    database: Database = DEFAULT_DATABASE,
    show: Show = Show(),
) -> int:
    """Fine-tune a model on a data file, and wait for the result.

    The data is checked first. The estimated cost and time and the destination of the data
    are printed before anything is uploaded. Several models, subsets, epochs, batch sizes or
    learning rates start one job each. Ctrl-C ends the command but not the training; use
    'assay finetune wait' to follow it again. Each new model is tested with one request.

    For example:

        assay finetune start data.jsonl --backend openai --model gpt-4o-mini --dry-run
        assay finetune start data.jsonl --model Qwen/Qwen2.5-7B-Instruct --subset 100 300 1000

    Args:
        data: Data file, as written by 'assay sft filter'.
        tuning: Model and hyperparameters.
        service: Fine-tuning service.
        poll_interval: Seconds between two status requests for a job.
        wait: Wait until the jobs have ended.
        dry_run: Check the data and print the plan; upload nothing, call no service.
        database: Database with the jobs.
        show: Output options.
    """
    from assay.finetune.start import finetune_plan, finetune_start

    store = open_store(database, show)
    with counting(show, "checking rows") as progress:
        plan = finetune_plan(data, database=store, progress=progress, **tuning, **service)
    if not show.quiet:
        for warning in plan.warnings:
            warn(warning)
    if dry_run:
        for reason in plan.missing:
            warn(reason)
        if show.json:
            say_json(_plan_json(plan))
        else:
            _say_plan(plan)
            say("nothing was uploaded (--dry-run)")
        return 0
    if not (show.quiet or show.json):
        _say_plan(plan)
    command = shlex.join(["assay", *command_line.get()])
    try:
        with _uploading(show) as on_upload:
            jobs = finetune_start(
                plan,
                database=store,
                command=command,
                on_upload=on_upload,
                on_trouble=lambda words: (
                    None if show.quiet or show.json else note(f"trying again: {words}")
                ),
            )
    except KeyboardInterrupt:
        note("left; 'assay finetune list' shows jobs that were started")
        raise
    for job in () if show.json else jobs:
        say(job.id if show.quiet else f"started {job.id} ({job.model})")
    left = False
    if wait:
        jobs, left = follow(jobs, database, poll_interval, show)
    tests = {} if left or not wait else _tested(jobs, database, show)
    if show.json:
        say_json({"jobs": [{**as_json(job), "test": tests.get(job.id)} for job in jobs]})
    if left:
        return INTERRUPTED
    return exit_code(jobs) if wait else 0


def _tested(jobs: Any, database: Path, show: Show) -> dict[str, Any]:
    """Send one request to each new model, and print how to use it."""
    from assay.finetune.follow import finetune_test

    found: dict[str, Any] = {}
    for job in jobs:
        if not job.succeeded:
            continue
        try:
            test = finetune_test(job.id, database=database, notice=note)
        except AssayError as error:
            # The model exists and is paid for, so a failed first request is only a warning.
            warn(f"{job.result_model} was made, and did not answer: {error}")
            found[job.id] = {"error": str(error)}
        else:
            found[job.id] = {"problem": test.problem, "finish": test.reply.finish_reason}
            if not (show.quiet or show.json):
                say("")
                say_test(test)
        if not (show.quiet or show.json):
            for line in usage(job, database):
                say(line)
    return found


def _uploading(show: Show) -> Any:
    from contextlib import ExitStack, contextmanager

    @contextmanager
    def bars() -> Any:
        with ExitStack() as stack:

            def begin(name: str) -> Any:
                if not (show.quiet or show.json):
                    note(f"uploading {name}")
                return stack.enter_context(counting(show, f"uploading {name}"))

            yield begin

    return bars()


def _say_plan(plan: "FinetunePlan") -> None:
    lengths = plan.report.lengths
    say(
        f"{plan.data}: {counted(plan.report.rows, 'row')}, no errors,"
        f" ~{lengths.total if lengths else 0:,} tokens, the longest row"
        f" ~{lengths.longest if lengths else 0:,}"
    )
    if plan.validation is not None:
        say(f"validation: {plan.validation}, which is not trained on")
    say(f"the data goes to {plan.address or 'an address that is not known yet'}")
    rows = []
    for job in plan.jobs:
        cost, seconds = job.estimate_cost(plan.price), plan.seconds(job)
        rate = job.learning_rate or (f"x{job.multiplier:g}" if job.multiplier else "auto")
        rows.append(
            (
                job.model.name,
                f"{job.rows:,}",
                str(job.epochs),
                str(job.batch_size),
                rate if isinstance(rate, str) else f"{rate:g}",
                f"{job.steps:,}",
                f"{job.trained_tokens:,}",
                "not known" if cost is None else f"${cost:,.2f}",
                "not known" if seconds is None else short_time(seconds),
            )
        )
    say_table(_HEADS, rows, ("model",))
    if plan.cost is None:
        say("cost: no price is known; --price gives it, in dollars a million trained tokens")
    elif plan.price is None and any(job.model.priced for job in plan.jobs):
        seen = next(job.model.priced for job in plan.jobs if job.model.priced)
        say(f"cost: about ${plan.cost:,.2f} in all, at prices of {seen}; --price gives others")
    if any(plan.seconds(job) is None for job in plan.jobs):
        say("time: not known before the first job of a model is done; later ones go by it")


def _plan_json(plan: "FinetunePlan") -> dict[str, Any]:
    lengths = plan.report.lengths
    return {
        "data": str(plan.data),
        "rows": plan.report.rows,
        "tokens": None if lengths is None else lengths.total,
        "longest_row": None if lengths is None else lengths.longest,
        "validation": None if plan.validation is None else str(plan.validation),
        "backend": plan.backend.name,
        "address": plan.address,
        "missing": list(plan.missing),
        "warnings": list(plan.warnings),
        "cost_usd": plan.cost,
        "jobs": [
            {
                "model": job.model.name,
                "rows": job.rows,
                "subset": job.subset,
                "suffix": job.suffix,
                "seed": job.seed,
                "steps": job.steps,
                "trained_tokens": job.trained_tokens,
                "cost_usd": job.estimate_cost(plan.price),
                "seconds": plan.seconds(job),
                "hyperparameters": job.hyperparameters,
            }
            for job in plan.jobs
        ],
    }


finetune = App(
    name="finetune",
    help="""Fine-tune a model with OpenAI, a Synth service or on this machine.

For example:

    assay finetune start data.jsonl --backend openai --model gpt-4o-mini
    assay finetune wait latest
""",
    help_format="plaintext",
)
add_commands(finetune, start, status, wait, list_, events, cancel, test, check_model, health)

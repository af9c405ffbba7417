"""`assay finetune start`, `test`, `check-model` and `health`: fine-tune on episode data."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number

from assay.cli.finetune_jobs import (
    INTERRUPTED,
    cancel,
    compute_exit_code,
    events,
    follow_jobs,
    format_hours,
    job_to_json,
    list_,
    status,
    suggest_commands,
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
from assay.cli.output import (
    OutputOptions,
    command_line,
    print_json,
    print_line,
    print_note,
    print_warning,
    show_progress_bar,
)
from assay.cli.tables import print_table
from assay.core.text import counted, cut
from assay.errors import AssayError
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.finetune.follow import SmokeTest
    from assay.finetune.start import FinetunePlan

_MAX_REPLY = 300


def test(
    job: str = "latest",
    /,
    *,
    data: Annotated[Path | None, Parameter(show_default=False)] = None,
    database: Database = DEFAULT_DATABASE,
    show: OutputOptions = OutputOptions(),
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

    result = finetune_test(
        job, data=data, database=open_store(database, show), notice=print_note
    )
    if show.json:
        print_json(
            {
                "model": result.model,
                "address": result.address,
                "from_data": result.from_data,
                "reply": dict(result.reply.message.value),
                "finish_reason": result.reply.finish_reason,
                "problem": result.problem,
            }
        )
    elif show.quiet:
        print_line(result.problem or "ok")
    else:
        print_test(result)
    return 1 if result.problem else 0


def print_test(result: "SmokeTest") -> None:
    """Print the reply of a new model."""
    what = "the first row of its data" if result.from_data else "a short question"
    print_line(f"reply of {result.model} to {what} ({result.reply.latency_s:.1f} s):")
    if result.reply.message.text:
        print_line(f"  {cut(result.reply.message.text, _MAX_REPLY)}")
    for call in result.reply.message.value.get("tool_calls") or ():
        function = call.get("function", {})
        words = f"{function.get('name')}({function.get('arguments')})"
        print_line(f"  calls {cut(words, _MAX_REPLY)}")
    if result.problem is not None:
        print_warning(f"the reply cannot be used: {result.problem}")


@option_groups(service="assay.finetune.options:ServiceOptions")
def check_model(
    model: str,
    /,
    *,
    service: Given,
    data: Annotated[Path | None, Parameter(show_default=False)] = None,
    show: OutputOptions = OutputOptions(),
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

    with show_progress_bar(show, "checking rows") as progress:
        result = finetune_check_model(model, data=data, progress=progress, **service)
    if show.json:
        print_json({**result._asdict(), "ok": not result.problems})
    elif show.quiet:
        print_line("no" if result.problems else "yes")
    else:
        word = "cannot be" if result.problems else "can be"
        print_line(f"{result.model} {word} fine-tuned with {result.backend}")
        for problem in result.problems:
            print_line(f"  {problem}")
        price = "unknown" if result.price is None else f"${result.price:g}"
        print_line(f"price     {price} per million trained tokens")
        context = "unknown" if result.context is None else f"{result.context:,} tokens"
        print_line(f"context   {context} of a row; tool calls are trained too")
        service_answers = {
            True: "lists it",
            False: "does not list it",
            None: "not queried, or lists no models",
        }
        print_line(
            f"service   {result.address or 'no address'}: {service_answers[result.on_service]}"
        )
        if result.rows is not None:
            print_line(f"data      {result.rows:,} rows, ~{result.tokens or 0:,} tokens")
        for warning in result.warnings:
            print_warning(warning)
    return 1 if result.problems else 0


def health(
    *, backend: str = "synth", base_url: Text = None, show: OutputOptions = OutputOptions()
) -> int:
    """Check that a fine-tuning service responds and accepts the key.

    For example:

        assay finetune health --backend openai

    Args:
        backend: Fine-tuning service. [choices: openai, synth, local]
        base_url: URL of the service; overrides its environment variable.
        show: Output options.
    """
    from assay.finetune.follow import finetune_health

    result = finetune_health(backend, base_url=base_url)
    if show.json:
        print_json(result)
    else:
        more = ", ".join(
            f"{key} {value}" for key, value in result.items() if key not in _HEALTH_KEYS
        )
        print_line(
            f"{result['backend']} responds at {result['address']}{f': {more}' if more else ''}"
        )
    return 0


_HEALTH_KEYS = ("backend", "address")

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
    show: OutputOptions = OutputOptions(),
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
    with show_progress_bar(show, "checking rows") as progress:
        plan = finetune_plan(data, database=store, progress=progress, **tuning, **service)
    if not show.quiet:
        for warning in plan.warnings:
            print_warning(warning)
    if dry_run:
        for reason in plan.missing:
            print_warning(reason)
        if show.json:
            print_json(_plan_to_json(plan))
        else:
            _print_plan(plan)
            print_line("nothing was uploaded (--dry-run)")
        return 0
    if not (show.quiet or show.json):
        _print_plan(plan)
    command = shlex.join(["assay", *command_line.get()])
    try:
        with _show_uploads(show) as on_upload:
            jobs = finetune_start(
                plan,
                database=store,
                command=command,
                on_upload=on_upload,
                on_trouble=lambda words: (
                    None if show.quiet or show.json else print_note(f"retrying: {words}")
                ),
            )
    except KeyboardInterrupt:
        print_note("interrupted; 'assay finetune list' shows the jobs that were started")
        raise
    for job in () if show.json else jobs:
        print_line(job.id if show.quiet else f"started {job.id} ({job.model})")
    interrupted = False
    if wait:
        jobs, interrupted = follow_jobs(jobs, database, poll_interval, show)
    tests = {} if interrupted or not wait else _test_models(jobs, database, show)
    if show.json:
        print_json({"jobs": [{**job_to_json(job), "test": tests.get(job.id)} for job in jobs]})
    if interrupted:
        return INTERRUPTED
    return compute_exit_code(jobs) if wait else 0


def _test_models(jobs: Any, database: Path, show: OutputOptions) -> dict[str, Any]:
    """Send one request to each new model, and print how to use it."""
    from assay.finetune.follow import finetune_test

    result: dict[str, Any] = {}
    for job in jobs:
        if not job.succeeded:
            continue
        try:
            test = finetune_test(job.id, database=database, notice=print_note)
        except AssayError as error:
            # The model exists and is paid for, so a failed first request is only a warning.
            print_warning(
                f"{job.result_model} was created, but its test request failed: {error}"
            )
            result[job.id] = {"error": str(error)}
        else:
            result[job.id] = {"problem": test.problem, "finish": test.reply.finish_reason}
            if not (show.quiet or show.json):
                print_line("")
                print_test(test)
        if not (show.quiet or show.json):
            for line in suggest_commands(job, database):
                print_line(line)
    return result


def _show_uploads(show: OutputOptions) -> Any:
    from contextlib import ExitStack, contextmanager

    @contextmanager
    def show_bars() -> Any:
        with ExitStack() as stack:

            def start_bar(name: str) -> Any:
                if not (show.quiet or show.json):
                    print_note(f"uploading {name}")
                return stack.enter_context(show_progress_bar(show, f"uploading {name}"))

            yield start_bar

    return show_bars()


def _print_plan(plan: "FinetunePlan") -> None:
    lengths = plan.report.lengths
    print_line(
        f"{plan.data}: {counted(plan.report.rows, 'row')}, no errors,"
        f" ~{lengths.total if lengths else 0:,} tokens, the longest row"
        f" ~{lengths.longest if lengths else 0:,}"
    )
    if plan.validation is not None:
        print_line(f"validation: {plan.validation}, not used for training")
    print_line(f"destination of the data: {plan.address or 'unknown'}")
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
                "unknown" if cost is None else f"${cost:,.2f}",
                "unknown" if seconds is None else format_hours(seconds),
            )
        )
    print_table(_HEADS, rows, ("model",))
    if plan.cost is None:
        print_line("cost: unknown; give --price in dollars per million trained tokens")
    elif plan.price is None and any(job.model.priced for job in plan.jobs):
        seen = next(job.model.priced for job in plan.jobs if job.model.priced)
        print_line(
            f"cost: about ${plan.cost:,.2f}, at prices of {seen}; --price overrides them"
        )
    if any(plan.seconds(job) is None for job in plan.jobs):
        print_line(
            "time: unknown until a first job of the model has ended; later estimates use it"
        )


def _plan_to_json(plan: "FinetunePlan") -> dict[str, Any]:
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

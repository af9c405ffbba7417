"""`assay finetune`: train models further on recorded episodes."""

from cyclopts import App

from assay.cli.finetune.checks import check_model, health, test
from assay.cli.finetune.jobs import cancel, events, list_, status, wait
from assay.cli.finetune.start import start

__all__ = [
    "cancel",
    "check_model",
    "events",
    "finetune",
    "health",
    "list_",
    "start",
    "status",
    "test",
    "wait",
]

finetune = App(
    name="finetune",
    help="""Train a model further, at OpenAI, at a Synth service or on this machine.

For example:

    assay finetune start data.jsonl --backend openai --model gpt-4o-mini
    assay finetune wait latest
""",
    help_format="plaintext",
    group="Improve",
)
finetune.command(start)
finetune.command(status)
finetune.command(wait)
finetune.command(list_, name="list")
finetune.command(events)
finetune.command(cancel)
finetune.command(test)
finetune.command(check_model, name="check-model")
finetune.command(health)

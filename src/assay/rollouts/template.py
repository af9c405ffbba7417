"""The configuration file of a run in Crafter that `assay init` writes."""

from dataclasses import asdict
from typing import Final

from assay.crafter.difficulty import DIFFICULTIES
from assay.rollouts.config import RunConfig
from assay.runs.template import template

__all__ = ["run_template"]

_HEAD: Final = """\
# What 'assay run --config FILE' does. Every key is here with its default or an example:
# remove the '#' in front of a key to set it. The command line counts before this file.
# Paths are relative to the directory the command is started in.
# Other layouts of tables are read too: [eval] model_name, episodes, max_steps (turns),
# difficulty, seed; [service] base_url; [experiment] models."""
_NUMBERS: Final = """\
[difficulty]
# Instead of a named difficulty: numbers of your own. Those not given are those of classic,
# which are the ones here; docs/crafter.md says what they mean."""

_ARMS: Final = """\
# Who plays with settings of its own: a table for each, such as two prompts of one model.
# [[arms]]
# label = "careful"
# model = "builtin/expert"
# prompt = "careful.txt"
# temperature = 0.5"""


def run_template() -> str:
    """The text of the file."""
    numbers = [
        f"#{name} = {number}" for name, number in asdict(DIFFICULTIES["classic"]).items()
    ]
    return template(RunConfig, _HEAD, "\n".join([_NUMBERS, *numbers]) + f"\n\n{_ARMS}")

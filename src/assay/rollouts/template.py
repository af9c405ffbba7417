"""The configuration file that `assay init` writes: every key, commented out.

A line that begins with `#` and a key is a setting at its default, or an example where the
default is none; without the `#` it counts. As written, the file changes nothing.
"""

from dataclasses import fields
from typing import Final

from assay.crafter import DIFFICULTIES, Difficulty

__all__ = ["template"]


def template() -> str:
    """The text of the file."""
    classic = DIFFICULTIES["classic"]
    numbers = [f"#{one.name} = {getattr(classic, one.name)}" for one in fields(Difficulty)]
    return "\n".join([_HEAD, *numbers, ""])


_HEAD: Final = """\
# What 'assay run --config FILE' does. Every key is here with its default or an example:
# remove the '#' in front of a key to set it. The command line counts before this file.
# Paths are relative to the directory the command is started in.
# Other layouts of tables are read too: [eval] model_name, episodes, max_steps (turns),
# difficulty, seed; [service] base_url; [experiment] models.

[experiment]
# Episodes of each model: from 1 to 1000000.
#episodes = 10
# Play until an outcome, such as "achievements", tells each model from the first one, and at
# most so many episodes; false plays all of them. See docs/evaluate.md.
#until_decided = false
# The smallest difference in it that matters: models that differ by less are decided too.
# 0 means that any matters.
#min_effect = 0
# Model calls in an episode, at most: from 1 to 1000000.
#max_turns = 100
# The rules of the worlds: classic, easy, medium or hard; or see [difficulty].
#difficulty = "easy"
# The world of the first episode, from 0 to 2147483647. The next ones count up from it, and
# every model plays the same worlds.
#seed = 42

[run]
# Who plays: names of models, each once.
#models = ["builtin/noop", "builtin/random", "builtin/forager", "builtin/expert"]
# The series to follow over time. Without it each model is a series of its own.
#name = "my series"
# Whether builtin/noop and builtin/random play too, as rows of reference: true or false.
#baselines = true
# Python files with hooks of your own.
#hooks = []
# A Python file with metrics of your own; "" for none.
#metrics_from = ""
# Whether models play at the same time: true or false.
#concurrent_models = false
# How many models then play at once: from 1 to 1000.
#max_concurrent_models = 3
# How many episodes are open at once: from 1 to 100000.
#max_concurrent_episodes = 1000
# Dollars that the whole run may spend; 0 means no limit.
#budget = 0
# What models cost whose price is not known, IN/OUT in dollars per million tokens; "" for none.
#price = ""
# Calls open at once for each provider, at most; 0 means as many as the provider takes.
#max_connections = 0
# A file that keeps replies for reruns of the same requests; "" for none.
#cache = ""

[agent]
# How many of the last turns a model sees: from 1 to 100.
#history = 8
# From 0 to 2.
#temperature = 0.0
# The most tokens of a reply: from 1.
#max_tokens = 1024
# The most actions of a turn: from 1 to 50.
#actions_per_turn = 5
# What a model sees of its world: "full" or "short".
#view = "full"
# A text file that replaces the instructions; "" for ours.
#prompt = ""

[limits]
# An episode ends after so many environment steps, tokens or seconds; 0 means no limit.
#step_limit = 0
#token_limit = 0
#time_limit = 0

[services]
# Where the worlds are, such as "http://localhost:8901" ('assay serve' is a service there);
# "" for worlds in the process itself.
#crafter_service_url = ""
# The DuckDB file that traces go to. Without this key the variable ASSAY_DATABASE names it.
#database_path = "crafter_multi_model_traces.duckdb"

[service]
# Seconds that one request to the service may take: from 0.1 to 86400.
#timeout = 30.0

[output]
# The folder for the results file and the files of episodes.
#traces_dir = "traces_multi_model"
# Whether each episode is also written as a file: true or false.
#save_traces = true
# Whether the results file lists the episodes one by one: true or false.
#save_detailed_results = true

[openai]
# Where models of the OpenAI protocol are asked, such as "https://api.openai.com/v1";
# "" for where each of them is known to be.
#base_url = ""
# A key does not belong in a file: set the variable OPENAI_API_KEY. "" for none here.
#api_key = ""

[difficulty]
# Instead of a named difficulty: numbers of your own. Those not given are those of classic,
# which are the ones here; docs/crafter.md says what they mean.\
"""

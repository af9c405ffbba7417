"""The options of `assay run`. None means that it was not given; see `rollouts.config`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from assay.cli.numbers import Whole

__all__ = ["RunOptions"]

_WHO = Group("Who plays, and what", sort_key=1)
_HOW = Group("At once", sort_key=2)
_AGENT = Group("How models are asked", sort_key=3)
_LIMITS = Group("Limits of an episode", sort_key=4)
_SPEND = Group("Providers and money", sort_key=5)
_FILES = Group("Files and services", sort_key=6)


@Parameter(name="*", show_default=False)
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Every setting of a run, under the name it has in a configuration file."""

    models: Annotated[
        tuple[str, ...] | None,
        Parameter(name=["--models", "--model"], group=_WHO, consume_multiple=True, negative=""),
    ] = None
    """The models, by name; the four built-in ones unless given."""
    episodes: Annotated[Whole | None, Parameter(group=_WHO)] = None
    """Episodes of each model; 10 unless given."""
    until_decided: Annotated[
        tuple[str, ...] | None,
        Parameter(group=_WHO, consume_multiple=(0, 1), allow_repeating=False, negative=""),
    ] = None
    """Play until an outcome, achievements if none is named, tells each model from the first."""
    min_effect: Annotated[float | None, Parameter(group=_WHO)] = None
    """With --until-decided: the smallest difference that matters."""
    max_turns: Annotated[Whole | None, Parameter(group=_WHO)] = None
    """Model calls in an episode, at most; 100 unless given."""
    difficulty: Annotated[str | None, Parameter(group=_WHO)] = None
    """The rules of the worlds: easy unless given."""
    seed: Annotated[Whole | None, Parameter(group=_WHO)] = None
    """The first world, 42 unless given; the next ones count up. All models play the same."""
    baselines: Annotated[bool | None, Parameter(group=_WHO)] = None
    """Let noop and random play beside the models, for comparison; on unless turned off."""
    name: Annotated[str | None, Parameter(group=_WHO)] = None
    """The series the experiments belong to; each model's own name unless given."""

    concurrent_models: Annotated[bool | None, Parameter(group=_HOW, negative="")] = None
    """Let models play at the same time, not one after the other."""
    max_concurrent_models: Annotated[Whole | None, Parameter(group=_HOW)] = None
    """How many of them; 3 unless given."""
    max_concurrent_episodes: Annotated[Whole | None, Parameter(group=_HOW)] = None
    """Episodes open at the same time, at most; 1,000 unless given."""

    budget: Annotated[float | None, Parameter(group=_SPEND)] = None
    """Dollars that the whole run may spend; it stops there and can be resumed with more."""
    price: Annotated[str | None, Parameter(group=_SPEND)] = None
    """IN/OUT in dollars per million tokens, for models whose price is not known."""
    max_connections: Annotated[Whole | None, Parameter(group=_SPEND)] = None
    """Calls open at once for each provider, at most; it is found out unless given."""
    cache: Annotated[Path | None, Parameter(group=_SPEND)] = None
    """A file that keeps replies, for reruns of the same requests that cost nothing."""
    openai_base_url: Annotated[str | None, Parameter(group=_SPEND)] = None
    """Where models are asked that are OpenAI's or in no list, such as those of vLLM."""

    history: Annotated[Whole | None, Parameter(group=_AGENT)] = None
    """How many of its last turns a model sees; 8 unless given."""
    temperature: Annotated[float | None, Parameter(group=_AGENT)] = None
    """From 0 to 2; 0 unless given."""
    max_tokens: Annotated[Whole | None, Parameter(group=_AGENT)] = None
    """The most tokens of one reply; 1,024 unless given."""
    actions_per_turn: Annotated[Whole | None, Parameter(group=_AGENT)] = None
    """The most actions of one turn; 5 unless given."""
    view: Annotated[str | None, Parameter(group=_AGENT)] = None
    """How the world is told: full, or short for small models."""
    prompt: Annotated[Path | None, Parameter(group=_AGENT)] = None
    """A text file with instructions of your own; rules and tools are always told."""

    step_limit: Annotated[Whole | None, Parameter(group=_LIMITS)] = None
    """Environment steps, at most."""
    token_limit: Annotated[Whole | None, Parameter(group=_LIMITS)] = None
    """Tokens after which the episode ends."""
    time_limit: Annotated[float | None, Parameter(group=_LIMITS)] = None
    """Seconds after which the episode ends; waiting for its turn does not count."""

    database: Annotated[Path | None, Parameter(group=_FILES)] = None
    """Where traces go; $ASSAY_DATABASE, else crafter_multi_model_traces.duckdb."""
    service_url: Annotated[str | None, Parameter(group=_FILES)] = None
    """Where the worlds are, such as http://localhost:8901; in this process unless given."""
    service_timeout: Annotated[float | None, Parameter(group=_FILES)] = None
    """Seconds that a request to the service may take; 30 unless given."""
    hooks: Annotated[
        tuple[Path, ...] | None, Parameter(group=_FILES, consume_multiple=True, negative="")
    ] = None
    """Python files with hooks of your own."""
    metrics_from: Annotated[Path | None, Parameter(group=_FILES)] = None
    """A Python file with metrics of your own, stored as outcomes of every episode."""
    traces_dir: Annotated[Path | None, Parameter(group=_FILES)] = None
    """The folder for results and traces as files; traces_multi_model unless given."""
    save_traces: Annotated[bool | None, Parameter(group=_FILES)] = None
    """Write a file for each episode too; on unless turned off."""
    save_detailed_results: Annotated[bool | None, Parameter(group=_FILES)] = None
    """List every episode in the results file; on unless turned off."""

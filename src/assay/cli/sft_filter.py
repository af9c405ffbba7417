"""`assay sft`: training data from what was recorded.

`assay sft filter`: choose episodes and write them as training data.
"""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Group, Parameter
from cyclopts.validators import Number

from assay.cli.options import Database, open_store
from assay.cli.output import Show, command_line, counting, say, say_json
from assay.cli.sft_files import show_, stats, trace, validate
from assay.cli.tables import Whole, say_table
from assay.core.text import counted
from assay.store.location import DEFAULT_DATABASE

if TYPE_CHECKING:
    from assay.finetune.datasets.build import BuiltDataset

_CHOOSE = Group("Which episodes", sort_key=1)
_ROWS = Group("Which rows", sort_key=2)
_Text = Annotated[str | None, Parameter(show_default=False, group=_CHOOSE)]
_Names = Annotated[
    tuple[str, ...],
    Parameter(consume_multiple=True, negative="", show_default=False, group=_CHOOSE),
]
_Count = Annotated[
    Whole | None, Parameter(validator=Number(gte=0), show_default=False, group=_CHOOSE)
]
_Real = Annotated[float | None, Parameter(show_default=False, group=_CHOOSE)]
_Flag = Annotated[bool, Parameter(negative="", show_default=False, group=_ROWS)]


def filter_(
    *,
    output: Path = Path("sft_data.jsonl"),
    input_dir: Annotated[Path | None, Parameter(show_default=False)] = None,
    database: Database = DEFAULT_DATABASE,
    stats_only: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    min_achievements: _Count = None,
    min_reward: _Real = None,
    max_turns: _Count = None,
    require_termination: Annotated[
        bool, Parameter(negative="", show_default=False, group=_CHOOSE)
    ] = False,
    experiment: _Names = (),
    models: _Names = (),
    seeds: _Text = None,
    difficulty: _Names = (),
    require_achievement: _Names = (),
    max_invalid_rate: _Real = None,
    max_cost: _Real = None,
    hook: _Names = (),
    min_quality: _Real = None,
    sql: _Text = None,
    top: _Text = None,
    max_per_world: _Count = None,
    holdout_seeds: _Text = None,
    mode: Annotated[Literal["call", "window", "episode"], Parameter(group=_ROWS)] = "call",
    turns: Annotated[Whole, Parameter(validator=Number(gte=1), group=_ROWS)] = 8,
    form: Annotated[
        Literal[
            "openai", "messages", "trl", "sharegpt", "preference", "preference-trl", "prompts"
        ],
        Parameter(name="--format", group=_ROWS),
    ] = "openai",
    drop_waste: _Flag = False,
    mask_waste: _Flag = False,
    balance_actions: _Flag = False,
    dedupe: _Flag = False,
    drop_notes: _Flag = False,
    relabel: _Flag = False,
    train_history: _Flag = False,
    prompt_completion: _Flag = False,
    card: Annotated[bool, Parameter(negative="--no-card")] = True,
    show: Show = Show(),
) -> int:
    """Choose episodes and write what their models were sent and answered, as training data.

    Every filter is a step whose losses are printed. An episode for which the store
    does not say what a filter asks does not pass it. Beside the data stands a
    manifest that says where each row came from.

    For example:

        assay sft filter --min-achievements 3 --top 20% --output data.jsonl
        assay sft filter --sql "steps < 500 AND model LIKE 'gpt%'" --stats-only

    Args:
        output: The file to write.
        input_dir: Read the files of this folder, such as traces_v2_synth, and no store.
        database: The store to read.
        stats_only: Print what the filters leave, and write nothing.
        min_achievements: At least this many different achievements.
        min_reward: At least this reward.
        max_turns: At most this many turns.
        require_termination: Only episodes that ended by themselves: died, length or
            terminate, and not a limit of turns, steps, tokens or time.
        experiment: Only these experiments, or those of these runs, by id or name.
        models: Only episodes that these models played; if none is named, all but baselines.
        seeds: Only these worlds, such as 42,43,50-59.
        difficulty: Only these difficulties.
        require_achievement: Only episodes that unlocked all of these.
        max_invalid_rate: At most this share of actions that were unknown or had no effect.
        max_cost: At most this many dollars.
        hook: Only episodes in which all of these hooks noticed something.
        min_quality: At least this score of 'assay analyze quality', from 0 to 1.
        sql: A condition of your own over the columns of the view episodes.
        top: The best share of the episodes of each world, such as 20%.
        max_per_world: At most this many episodes of each world, the best ones.
        holdout_seeds: Worlds to write into a file of their own: seeds, or a share as 20%.
        mode: One row for each call, for some turns in a row, or for the whole episode.
        turns: How many turns a window has.
        form: What a row looks like.
        drop_waste: Leave out calls whose turn came to nothing.
        mask_waste: Keep their answers in a window or an episode, with weight 0.
        balance_actions: Let no first action have more rows than the median one.
        dedupe: Leave out rows that are the same as one before.
        relabel: Put in place of each answer what builtin/expert would have answered there.
        drop_notes: Take the notes out of all answers, in requests and replies, such as the
            memory of builtin/expert.
        train_history: Also train on earlier answers in the prompt, which else have weight 0.
        prompt_completion: For trl: prompt and completion in place of messages.
        card: Also write a data card in Markdown, with figures.
        show: What to print.
    """
    from assay import api

    with counting(show, "reading turns") as progress:
        built = api.sft_filter(
            None if stats_only else output,
            input_dir=input_dir,
            database=open_store(database, show),
            experiment=experiment,
            models=models,
            seeds=seeds or (),
            difficulty=difficulty,
            min_achievements=min_achievements,
            min_reward=min_reward,
            max_turns=max_turns,
            require_termination=require_termination,
            require_achievement=require_achievement,
            max_invalid_rate=max_invalid_rate,
            max_cost=max_cost,
            hook=hook,
            min_quality=min_quality,
            sql=sql,
            top=top,
            max_per_world=max_per_world,
            holdout_seeds=holdout_seeds,
            mode=mode,
            turns=turns,
            format=form,
            drop_waste=drop_waste,
            mask_waste=mask_waste,
            balance_actions=balance_actions,
            dedupe=dedupe,
            drop_notes=drop_notes,
            relabel=relabel,
            train_history=train_history,
            prompt_completion=prompt_completion,
            card=card,
            command=shlex.join(("assay", *command_line.get())),
            progress=progress,
        )
    if show.json:
        say_json(_as_json(built))
    elif show.quiet:
        say(str(built.path) if built.path else f"{built.left.episodes} episodes")
    else:
        _say(built)
    return 0


def _say(built: "BuiltDataset") -> None:
    if built.path is not None:
        say(f"{counted(built.rows, 'row')} of {_episodes(built)} in {built.path}")
        if built.holdout_path is not None:
            held = len(built.worlds.get("holdout", ()))
            say(
                f"{counted(built.holdout_rows, 'row')} of {counted(held, 'held-out world')} "
                f"in {built.holdout_path}"
            )
        if built.card is not None:
            say(f"what is in it: {built.card}")
        say(
            f"its worlds are noted in {built.noted_in}: 'run' and 'compare' tell of them"
            if built.noted_in
            else "its worlds could not be noted in a store; the manifest names them"
        )
        say(f"where each row came from: {built.manifest}; 'assay sft trace FILE ROW' shows it")
    else:
        say(f"{_episodes(built)} would be left")
    say("")
    say_table(*funnel_table(built), left=("step", ""))
    if built.path is not None:
        from assay import api

        rows = built.rows + built.holdout_rows
        speed = rows / max(built.seconds, 1e-9)
        say("")
        say(
            f"{speed:,.0f} rows a second, {built.seconds:.1f} s; "
            f"peak memory {api.peak_memory() / 2**20:,.0f} MiB"
        )


def _episodes(built: "BuiltDataset") -> str:
    worlds = sum(map(len, built.worlds.values()))
    return f"{counted(built.left.episodes, 'episode')} in {counted(worlds, 'world')}"


def funnel_table(built: "BuiltDataset") -> tuple[Sequence[str], list[Sequence[str]]]:
    """The funnel as heads and rows: what each step removed, and what was left after it."""
    heads = ("step", "removed", "turns", "tokens", "left", "turns", "tokens", "")
    left = [built.found.episodes, built.found.turns, built.found.tokens]
    rows: list[Sequence[str]] = [("in the store", "", "", "", *(f"{n:,}" for n in left), "")]
    for step in built.funnel:
        gone = (step.removed.episodes, step.removed.turns, step.removed.tokens)
        left = [before - less for before, less in zip(left, gone, strict=True)]
        unknown = f"{step.missing:,} for want of a value" if step.missing else ""
        rows.append(
            (
                step.name,
                *(f"-{n:,}" if n else "0" for n in gone),
                *(f"{n:,}" for n in left),
                unknown,
            )
        )
    return heads, rows


def _as_json(built: "BuiltDataset") -> dict[str, object]:
    values = asdict(built)
    for name in ("path", "holdout_path", "manifest", "card", "noted_in"):
        values[name] = None if values[name] is None else str(values[name])
    return values


sft = App(
    name="sft",
    help="""Make training data of recorded episodes, and check it.

For example:

    assay sft filter --min-achievements 3 --output data.jsonl
""",
    help_format="plaintext",
    group=Group("Improve", sort_key=3),
)
sft.command(filter_, name="filter")
sft.command(validate, name="validate")
sft.command(stats, name="stats")
sft.command(show_, name="show")
sft.command(trace, name="trace")

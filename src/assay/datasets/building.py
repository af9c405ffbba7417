"""Builds a data set: episodes chosen, rows made of them, files written, all of it counted.

Sessions are read a batch at a time, and every file takes its name when it is whole, so that
a million turns need no more memory than a few thousand.
"""

import hashlib
import json
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, Any, Final

import numpy as np

from assay._util.canonical import canonical_json
from assay._util.files import atomic_file
from assay._util.text import counted
from assay.errors import UsageError
from assay.exchange.parquet import ChatParquet
from assay.traces.conversations import (
    StoredConversation,
    batches,
    bound_memory,
    conversations,
    first_actions,
)
from assay.traces.load import load_sessions
from assay.traces.records import SessionRecord
from assay.traces.store import Store

from .examples import Example, Mode, examples_of
from .filters import ChosenEpisode, FunnelStep, Tally
from .formats import RowFormat, RowWriter
from .manifest import FORMAT, Lineage, manifest_path
from .preferences import SharedStates, pair_text, worlds_of
from .states import call_states, returns_of

__all__ = ["BuiltDataset", "DatasetPlan", "build_dataset", "episodes_only"]

_GROUP: Final = 500
"""Rows that are written together."""
_UNTRAINED: Final = b',"weight":0}'
TRAIN: Final = "train"
HOLDOUT: Final = "holdout"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlan:
    """How rows are made of the episodes that were chosen."""

    form: RowFormat = RowFormat.OPENAI
    mode: Mode = Mode.CALL
    turns: int = 8
    """Turns of a window."""
    drop_waste: bool = False
    mask_waste: bool = False
    balance_actions: bool = False
    dedupe: bool = False
    train_history: bool = False
    prompt_completion: bool = False

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        weighted = self.form is RowFormat.OPENAI
        if self.drop_waste and self.mode is not Mode.CALL:
            raise UsageError(
                f"--drop-waste would tear a hole into a row of --mode {self.mode}; use "
                "--mask-waste there, or --mode call"
            )
        if self.mask_waste and (self.mode is Mode.CALL or not weighted):
            raise UsageError(
                "--mask-waste gives a wasted answer among others the weight 0, so it needs "
                "--mode window or episode, and --format openai; use --drop-waste with "
                "--mode call"
            )
        if self.balance_actions and self.mode is not Mode.CALL:
            raise UsageError(
                f"--balance-actions counts calls, and --mode {self.mode} has several in a row; "
                "use --mode call"
            )
        if self.train_history and not weighted:
            raise UsageError(
                f"--train-history is about weights, which --format {self.form} has none of; "
                "use --format openai"
            )
        if self.prompt_completion and self.form is not RowFormat.TRL:
            raise UsageError(
                f"--prompt-completion is a shape of --format trl, not of {self.form}"
            )
        if self.form is RowFormat.PROMPTS and self.mode is not Mode.CALL:
            raise UsageError(
                f"--format prompts has a row per call; leave out --mode {self.mode}"
            )
        if self.turns < 1:
            raise UsageError(f"--turns {self.turns} is not allowed; give 1 or more")

    @property
    def is_preference(self) -> bool:
        """Whether a row is a pair of answers."""
        return self.form in (RowFormat.PREFERENCE, RowFormat.PREFERENCE_TRL)

    @property
    def has_states(self) -> bool:
        """Whether worlds are played again for it."""
        return self.is_preference or self.form is RowFormat.PROMPTS

    def columns(self, output: Path) -> Sequence[str] | None:
        """The columns of a Parquet file; None for JSON Lines.

        Raises:
            UsageError: The format has no such columns.
        """
        if output.suffix != ".parquet":
            return None
        if self.form is not RowFormat.TRL:
            raise UsageError(
                f"{str(output)!r} would be Parquet, which --format trl alone can be; "
                "name a file that ends in .jsonl"
            )
        return ("prompt", "completion") if self.prompt_completion else ("messages",)

    def given(self) -> dict[str, Any]:
        """The plan as JSON has it."""
        return {name: value for name, value in asdict(self).items() if value is not False}


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltDataset:
    """What was built, and of what."""

    path: Path | None
    """None where nothing was to be written."""
    holdout_path: Path | None
    manifest: Path | None
    found: Tally
    funnel: Sequence[FunnelStep]
    left: Tally
    rows: int
    holdout_rows: int
    seconds: float
    worlds: Mapping[str, Sequence[tuple[str, int | None]]]
    """The worlds of each split: task and seed."""
    actions: Mapping[str, int] = field(default_factory=dict)
    """Rows by the first action they ask for."""
    dataset: str = ""
    """What the store knows the data by: the start of the SHA-256 of the training file."""
    card: Path | None = None
    """Its card in Markdown, if there is one."""
    noted_in: Path | None = None
    """The store that knows now which worlds were trained on."""


def episodes_only(
    found: Tally, steps: Sequence[FunnelStep], chosen: Sequence[ChosenEpisode], seconds: float
) -> BuiltDataset:
    """What the filters leave, where no rows are made."""
    left = Tally()
    for episode in chosen:
        left.add(episode.turns, episode.tokens)
    return BuiltDataset(
        path=None,
        holdout_path=None,
        manifest=None,
        found=found,
        funnel=steps,
        left=left,
        rows=0,
        holdout_rows=0,
        seconds=seconds,
        worlds={TRAIN: sorted_worlds(chosen)},
    )


def sorted_worlds(chosen: Sequence[ChosenEpisode]) -> list[tuple[str, int | None]]:
    """The worlds of episodes, each once."""
    worlds = {(episode.task, episode.seed) for episode in chosen}
    return sorted(worlds, key=lambda world: (world[0], world[1] is None, world[1] or 0))


def build_dataset(
    store: Store,
    chosen: Sequence[ChosenEpisode],
    plan: DatasetPlan,
    *,
    found: Tally,
    steps: Sequence[FunnelStep],
    output: Path,
    holdout: Callable[[ChosenEpisode], bool] | None = None,
    about: Mapping[str, Any] = {},
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> BuiltDataset:
    """Write the rows of episodes, and their manifest.

    Args:
        store: Where the episodes are.
        chosen: Which ones.
        plan: How rows are made of them.
        found: What there was before the filters.
        steps: What the filters took away.
        output: The file to write, JSON Lines or Parquet.
        holdout: Says of an episode whether it is held out, into a file of its own.
        about: What else the manifest says.
        progress: Told how many turns are done, and of how many.

    Raises:
        UsageError: Nothing is left to write.
    """
    started = time.perf_counter()
    work = _Work(plan)
    if plan.balance_actions:
        work.limits = _limits(store, chosen)
    held = {each.session_id for each in chosen if holdout is not None and holdout(each)}
    holdout_path = output.with_name(f"{output.stem}.holdout{output.suffix}")
    total = sum(episode.turns for episode in chosen)
    with ExitStack() as stack:
        lineage = stack.enter_context(Lineage.begun())
        columns = plan.columns(output)
        sinks = {TRAIN: _Sink(stack.enter_context(atomic_file(output)), columns)}
        if held:
            sinks[HOLDOUT] = _Sink(stack.enter_context(atomic_file(holdout_path)), columns)
        done = 0
        sizes = [(each.session_id, each.turns) for each in chosen]
        for group in worlds_of(chosen) if plan.is_preference else batches(sizes):
            with store.reading() as connection:
                bound_memory(connection)
                sessions = conversations(connection, group)
                records = list(load_sessions(connection, group)) if plan.has_states else []
            if plan.is_preference:
                split = HOLDOUT if group[0] in held else TRAIN
                lineage.add(work.pairs_of(sessions, records, split, sinks[split]))
            else:
                work.starts = {
                    each.header.session_id: starting_points(each) for each in records
                }
                for session in sessions:
                    split = HOLDOUT if session.session_id in held else TRAIN
                    lineage.add(work.rows_of(session, split, sinks[split]))
            done += sum(len(session.calls) for session in sessions)
            progress(done, total)
        if not work.left.turns:
            raise nothing_left([*steps, *work.steps])
        files = {
            split: {
                "file": path.name,
                "rows": sinks[split].rows,
                "sha256": sinks[split].close(),
            }
            for split, path in ((TRAIN, output), (HOLDOUT, holdout_path))
            if split in sinks
        }
        worlds = {
            split: sorted_worlds(
                [each for each in chosen if (each.session_id in held) == (split == HOLDOUT)]
            )
            for split in sinks
        }
        manifest = manifest_path(output)
        funnel = [*steps, *work.steps]
        lineage.write(
            manifest,
            {
                "format": FORMAT,
                **about,
                "plan": plan.given(),
                "files": files,
                "found": asdict(found),
                "funnel": [asdict(step) for step in funnel],
                "left": asdict(work.left),
                "worlds": worlds,
                "actions": dict(work.actions.most_common()),
            },
        )
    return BuiltDataset(
        path=output,
        holdout_path=holdout_path if held else None,
        manifest=manifest,
        found=found,
        funnel=funnel,
        left=work.left,
        rows=sinks[TRAIN].rows,
        holdout_rows=sinks[HOLDOUT].rows if held else 0,
        seconds=time.perf_counter() - started,
        worlds=worlds,
        actions=dict(work.actions.most_common()),
        dataset=str(files[TRAIN]["sha256"])[:20],
    )


def nothing_left(steps: Sequence[FunnelStep]) -> UsageError:
    """The error of filters that leave nothing: which of them took the last."""
    last = next((step for step in reversed(steps) if step.removed.episodes), None)
    if last is None:
        return UsageError(
            "there is nothing to make rows of: the store has no episodes; play some with "
            "'assay run', or name another store with --database"
        )
    missing = ""
    if last.missing:
        missing = f", {last.missing:,} of them because the store does not say"
    return UsageError(
        f"nothing is left to write: {last.name!r} removed the last "
        f"{counted(last.removed.episodes, 'episode')}{missing}; ask for less, and see the "
        "whole funnel with --stats-only"
    )


class _Sink:
    """One file of rows, JSON Lines or Parquet, written and hashed by a thread of its own."""

    def __init__(self, stream: IO[bytes], columns: Sequence[str] | None) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self._table = None if columns is None else ChatParquet(stream, columns)
        self._waiting: list[bytes] = []
        self._thread = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None
        self.rows = 0

    def write(self, lines: list[bytes]) -> None:
        """Add rows; waits for those before, so that no more than two groups are in memory."""
        self.rows += len(lines)
        self._waiting += lines
        if len(self._waiting) >= _GROUP:
            self._flush()

    def _flush(self) -> None:
        self._settle()
        self._last = self._thread.submit(self._put, self._waiting)
        self._waiting = []

    def _settle(self) -> None:
        if self._last is not None:
            self._last.result()

    def _put(self, lines: list[bytes]) -> None:
        if self._table is not None:
            self._table.write(lines)
            return
        for line in lines:
            self._stream.write(line)
            self._hash.update(line)

    def close(self) -> str:
        """Write what is left; returns the hash of the whole file."""
        try:
            if self._waiting:
                self._flush()
            self._settle()
        finally:
            self._thread.shutdown()
        if self._table is None:
            return self._hash.hexdigest()
        self._table.close()
        self._stream.flush()
        return hashlib.sha256(Path(self._stream.name).read_bytes()).hexdigest()


class _Work:
    """Rows of one session after the other, and what was left out on the way."""

    def __init__(self, plan: DatasetPlan) -> None:
        self.plan = plan
        self.writer = RowWriter(plan.form, plan.train_history, plan.prompt_completion)
        self.limits: Mapping[str, int] | None = None
        self.left = Tally()
        self.actions: Counter[str] = Counter()
        self._seen = _SeenRows()
        self._copied = FunnelStep("not copied from a forked episode")
        self._incomplete = FunnelStep("messages are stored")
        self._waste = FunnelStep("--drop-waste")
        self._untrained = FunnelStep("something to train")
        self._balance = FunnelStep("--balance-actions")
        self._stateless = FunnelStep("can be played again")
        self._dedupe = FunnelStep("--dedupe")
        self._alone = FunnelStep("another answer in the same state")
        self._unclear = FunnelStep("the order is clear")
        self.starts: Mapping[str, Mapping[int, bytes]] = {}

    @property
    def steps(self) -> list[FunnelStep]:
        """What rows went through, in order; what nobody asked for only if it took something."""
        plan = self.plan
        asked = (
            (self._copied, False),
            (self._incomplete, False),
            (self._waste, plan.drop_waste),
            (self._untrained, plan.mask_waste),
            (self._balance, plan.balance_actions),
            (self._stateless, plan.has_states),
            (self._alone, plan.is_preference),
            (self._unclear, plan.is_preference),
            (self._dedupe, plan.dedupe),
        )
        return [step for step, wanted in asked if wanted or step.removed.turns]

    def rows_of(self, session: StoredConversation, split: str, sink: _Sink) -> list[str]:
        """Write the rows of a session; returns their origins, as JSON text."""
        plan, written = self.plan, _Fragments(session, self.writer)
        lines: list[bytes] = []
        origins: list[str] = []
        kept: list[Example] = []
        last: FunnelStep | None = self._copied if self._without_copied(session) else None
        name = json.dumps(session.session_id)
        for example in examples_of(session, plan.mode, plan.turns, mask_waste=plan.mask_waste):
            step, line = self._tried(session, example, written)
            if step is not None:
                step.removed.add(example.calls, example.tokens, episodes=0)
                last = step
                continue
            lines.append(line)
            kept.append(example)
            origins.append(
                f"[{name},{example.first_turn},{example.last_turn},"
                f'{round(example.reward, 6)!r},"{split}"]'
            )
        sink.write(lines)
        if kept:
            self.left.add(sum(each.calls for each in kept), sum(each.tokens for each in kept))
            self.actions.update(each.action for each in kept)
        elif last is not None:
            last.removed.episodes += 1
        return origins

    def _without_copied(self, session: StoredConversation, *, but_last: bool = False) -> bool:
        """Leave calls out that a fork has in common with another episode; whether it had any.

        What comes after the last of them is the fork's own, so that it is one more future of
        that answer; of those before it is not, because all forks share the answers between.
        """
        copied = [call.turn for call in session.calls if call.copied]
        if not copied:
            return False
        first = copied[-1] + (not but_last)
        own = [call for call in session.calls if call.turn >= first]
        left_out = session.calls[: len(session.calls) - len(own)]
        tokens = sum(call.tokens for call in left_out)
        self._copied.removed.add(len(left_out), tokens, episodes=0)
        session.calls = own
        return True

    def pairs_of(
        self,
        sessions: Sequence[StoredConversation],
        records: Sequence[SessionRecord],
        split: str,
        sink: _Sink,
    ) -> list[str]:
        """Write the pairs of one world; returns their origins, as JSON text."""
        states = SharedStates()
        replayed: set[str] = set()
        for session, record in zip(sessions, records, strict=True):
            self._without_copied(session, but_last=True)
            if states.add(session, record):
                replayed.add(session.session_id)
            else:
                tokens = sum(call.tokens for call in session.calls)
                self._stateless.removed.add(len(session.calls), tokens)
        lines, origins, used = [], [], set[str]()
        trl = self.plan.form is RowFormat.PREFERENCE_TRL
        for pair in states.pairs(self._alone, self._unclear):
            lines.append(pair_text(pair, trl=trl).encode() + b"\n")
            origins.append(
                f"[{json.dumps(pair.session_id)},{pair.turn},{pair.turn},"
                f'{pair.margin!r},"{split}",{json.dumps(pair.other_session_id)}]'
            )
            self.left.add(pair.calls, pair.tokens, episodes=0)
            used |= pair.sessions
        self.left.episodes += len(used)
        self._alone.removed.episodes += len(replayed - used)
        sink.write(lines)
        return origins

    def _tried(
        self, session: StoredConversation, example: Example, written: "_Fragments"
    ) -> tuple[FunnelStep | None, bytes]:
        """The row of an example, or the step that leaves it out."""
        plan = self.plan
        if not written.has(example):
            return self._incomplete, b""
        if plan.drop_waste and example.wasted:
            return self._waste, b""
        if not example.trained:
            return self._untrained, b""
        if self.limits is not None:
            mixed = _mixed(session.session_id, example.first_turn)
            if mixed > self.limits.get(example.action, 0):
                return self._balance, b""
        if plan.form is RowFormat.PROMPTS:
            about = self.starts.get(session.session_id, {}).get(example.first_turn)
            if about is None:
                return self._stateless, b""
            line = written.prompt(example, about)
        else:
            line = written.row(example)
        if plan.dedupe and not self._seen.add(line):
            return self._dedupe, b""
        return None, line


class _Fragments:
    """The messages of a session as a format writes them, each written once."""

    def __init__(self, session: StoredConversation, writer: RowWriter) -> None:
        self._session = session
        self._writer = writer
        self._answers: dict[int, bytes] | list[bytes] = {}
        if writer.form is RowFormat.OPENAI and not writer.train_history:
            # What nearly everybody asks for, without a call for each message.
            raw = [body.encode() for body in session.bodies]
            self._answers = raw
            self._context = [
                body[:-1] + _UNTRAINED if role == "assistant" else body
                for body, role in zip(raw, session.roles, strict=True)
            ]
        else:
            self._context = [self._written(place) for place in range(len(session.bodies))]
        self._first: dict[int, bytes] = {}
        self._tail = writer.tail(session.tools) + b"\n"
        self._whole = all(session.bodies)

    def has(self, example: Example) -> bool:
        """Whether every message of an example is stored."""
        bodies, size = self._session.bodies, len(self._session.bodies)
        positions = (*example.prompt, *example.rest)
        if self._whole:
            return max(positions) < size
        return all(position < size and bodies[position] for position in positions)

    def row(self, example: Example) -> bytes:
        """One row."""
        context, trained = self._context, example.trained
        prompt = [context[position] for position in example.prompt]
        if prompt:
            prompt[0] = self._begun(example.prompt[0])
        rest = [
            self._answer(position) if position in trained else context[position]
            for position in example.rest
        ]
        if not prompt:
            rest[0] = self._writer.head + rest[0]
        rest[-1] += self._tail
        return self._writer.row(prompt, rest)

    def prompt(self, example: Example, about: bytes) -> bytes:
        """One row without an answer, with what is known of its state."""
        pieces = [self._context[position] for position in example.prompt]
        tail = self._tail.removesuffix(b"}\n")
        return b"%b%b%b,%b}\n" % (self._writer.head, b",".join(pieces), tail, about)

    def _written(
        self, position: int, *, trained: bool = False, tools: str | None = None
    ) -> bytes:
        body, role = self._session.bodies[position], self._session.roles[position]
        if not body:
            return b""
        return self._writer.fragment(body, role, trained=trained, tools=tools).encode()

    def _answer(self, position: int) -> bytes:
        if isinstance(self._answers, list):
            return self._answers[position]
        text = self._answers.get(position)
        if text is None:
            text = self._answers[position] = self._written(position, trained=True)
        return text

    def _begun(self, position: int) -> bytes:
        """The first message of a row, with what stands before it."""
        text = self._first.get(position)
        if text is None:
            message = self._written(position, tools=self._session.tools)
            text = self._first[position] = self._writer.head + message
        return text


def starting_points(session: SessionRecord) -> dict[int, bytes]:
    """For each turn what a row of `prompts` says of it, as the inside of a JSON object."""
    returns, header = returns_of(session), session.header
    about = {}
    for turn, state in call_states(session).items():
        values = {
            "difficulty": header.metadata.get("difficulty", header.difficulty),
            "digest": state.digest,
            "reward": returns[turn],
            "seed": header.seed,
            "snapshot": state.snapshot,
            "step": state.step,
            "task": header.task,
        }
        about[turn] = canonical_json(values)[1:-1]
    return about


class _SeenRows:
    """Which rows were there before, by 64 bits of a hash, in 8 bytes each."""

    def __init__(self) -> None:
        self._old = np.empty(0, np.uint64)
        self._new: set[int] = set()

    def add(self, line: bytes) -> bool:
        """Whether a row is new; it is not from now on."""
        digest = hashlib.blake2b(line, digest_size=8).digest()
        key = int.from_bytes(digest, "big")
        if key in self._new:
            return False
        place = int(np.searchsorted(self._old, np.uint64(key)))
        if place < len(self._old) and int(self._old[place]) == key:
            return False
        self._new.add(key)
        if len(self._new) >= 50_000:
            fresh = np.fromiter(self._new, np.uint64, len(self._new))
            self._old = np.sort(np.concatenate((self._old, fresh)))
            self._new.clear()
        return True


def _mixed(session_id: str, turn: int) -> int:
    """A number that is the same every time, and has nothing to do with what was played."""
    digest = hashlib.blake2b(f"{session_id} {turn}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _limits(store: Store, chosen: Sequence[ChosenEpisode]) -> dict[str, int]:
    """For each first action, the largest mixed number that stays.

    No action has more rows than the median action.
    """
    by_action: dict[str, array[int]] = {}
    for group in batches([(each.session_id, each.turns) for each in chosen]):
        with store.reading() as connection:
            bound_memory(connection)
            for session_id, turn, action in first_actions(connection, group):
                mixed = by_action.setdefault(action, array("Q"))
                mixed.append(_mixed(session_id, turn))
    most = int(median(len(mixed) for mixed in by_action.values())) if by_action else 0
    return {
        action: sorted(mixed)[min(most, len(mixed)) - 1] for action, mixed in by_action.items()
    }

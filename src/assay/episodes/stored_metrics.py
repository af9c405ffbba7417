"""Metrics over the sessions of a store, their numbers stored as outcomes.

Only sessions that completed are asked about. The store is closed while a metric runs,
however long that takes. An experiment's numbers are stored together; what a metric could not
say is missing, and reported.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assay.core.user_code import UserThread, contained
from assay.crafter.rules import TASK
from assay.episodes.metrics import (
    SHIPPED,
    Call,
    Measured,
    Metric,
    MetricInput,
    MetricSet,
    Problem,
    check_names,
    measure,
    measure_all,
)
from assay.episodes.recorded_episode import Episode
from assay.judge.outcomes import OUTCOMES
from assay.runs.events import SILENT
from assay.store.load import load_session, load_sessions
from assay.store.metric_outcomes import (
    ExperimentOutcomes,
    MadeBy,
    MetricOutcome,
    ResultSession,
    experiment_outcomes,
    result_sessions,
    store_metric_outcomes,
)
from assay.store.records import MessageRecord, SessionRecord
from assay.store.schema import ASSAY_SOURCE
from assay.store.store import Store

_BATCH = 64
"""Sessions in memory with all their messages, at most."""
_LIMIT_S = 600.0
_TOLD = 3
"""Different problems of one line that are told."""

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """What metrics came to."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """By name of the outcome, how many numbers were stored."""
    problems: tuple[Problem, ...] = ()
    """Why some are missing."""

    def __add__(self, other: "Applied") -> "Applied":
        """Both together."""
        counts = Counter(self.counts) + Counter(other.counts)
        return Applied(dict(counts), (*self.problems, *other.problems))


def apply_metrics(
    store: Store,
    experiment_ids: Sequence[str],
    metrics: MetricSet,
    notice: Notice = SILENT.on_message,
    *,
    limit_s: float | None = None,
) -> Applied:
    """Ask metrics about all results of experiments, and store what they say.

    What the same metrics had said before is replaced. Each runs in a thread of its own.

    Args:
        store: Where the sessions are.
        experiment_ids: Each counts once.
        metrics: What to ask.
        notice: Told of the first problem of each line, then how many there were in all.
        limit_s: Seconds that a metric may take for one call, if a run says so.

    Raises:
        UsageError: There is no such experiment, or names of metrics clash.
    """
    check_names(metrics.metrics)
    hint = "make it quicker" if limit_s is None else "--decision-limit allows more"
    threads = {
        each.name: UserThread(f"metric {each.name!r}", limit_s or _LIMIT_S, hint=hint)
        for each in metrics.metrics
    }

    def call(metric: Metric, function: Callable[[], object]) -> object:
        return threads[metric.name].wait(function, slow=notice)

    told = _Told(notice)
    owners = {each.name: each.name for each in metrics.metrics}
    done = Applied()
    with store.reading() as connection:
        known = [
            experiment_outcomes(connection, name) for name in dict.fromkeys(experiment_ids)
        ]
    with contained(notice):
        for each in known:
            done += _Work(store, each, metrics, owners, told, call).done()
    for thread in threads.values():
        thread.leave()
    told.sum_up()
    return done


def ensure_metrics(
    store: Store,
    experiment_ids: Sequence[str],
    names: Collection[str],
    *,
    extra: MetricSet | None = None,
    notice: Notice = SILENT.on_message,
) -> Applied:
    """See to it that results have the metrics that somebody asks for.

    Shipped ones are computed where they are missing; names of other outcomes are passed over.

    Args:
        store: Where the sessions are; written to only if something is missing.
        experiment_ids: Each counts once.
        names: What is asked for.
        extra: Metrics of a user, all of which are applied.
        notice: Told of problems.

    Raises:
        UsageError: There is no such experiment, or names of metrics clash.
    """
    wanted = [SHIPPED[name] for name in dict.fromkeys(names) if name in SHIPPED]
    done = Applied()
    for experiment_id in dict.fromkeys(experiment_ids if wanted else ()):
        done += _complete(store, experiment_id, wanted, notice)
    return done if extra is None else done + apply_metrics(store, experiment_ids, extra, notice)


def _complete(
    store: Store, experiment_id: str, wanted: Sequence[Metric], notice: Notice
) -> Applied:
    """Compute shipped metrics for the sessions of an experiment that lack them."""
    names = {each.name for each in wanted}
    with store.reading() as connection:
        lacking = [
            each
            for each in result_sessions(connection, experiment_id)
            if not names <= each.metrics
        ]
    own = [
        each for each in lacking if each.source == ASSAY_SOURCE and each.task.startswith(TASK)
    ]
    if len(own) < len(lacking):
        notice(
            f"{len(lacking) - len(own)} episodes of experiment {experiment_id} were not played "
            f"by assay in Crafter, so that they have no {', '.join(sorted(names))}"
        )
    found: list[MetricOutcome] = []
    for one, session in _read(store, own):
        episode = Episode.of(session)
        for each in wanted:
            if each.name not in one.metrics:
                value = float(each.function(episode))
                found.append(MetricOutcome(episode.id, each.name, value))
    if found:
        with store.writing() as connection:
            store_metric_outcomes(connection, experiment_id, found)
    return Applied(dict(Counter(each.metric for each in found)))


def _read(
    store: Store, sessions: Sequence[ResultSession]
) -> Iterator[tuple[ResultSession, SessionRecord]]:
    """Sessions a batch at a time; the store is closed while they are looked at."""
    for start in range(0, len(sessions), _BATCH):
        batch = sessions[start : start + _BATCH]
        with store.reading() as connection:
            records = list(load_sessions(connection, [each.session_id for each in batch]))
        yield from zip(batch, records, strict=True)


class _Work:
    """Metrics on one experiment."""

    def __init__(
        self,
        store: Store,
        known: ExperimentOutcomes,
        metrics: MetricSet,
        owners: dict[str, str],
        told: "_Told",
        call: Call,
    ) -> None:
        self._store, self._call = store, call
        self._known = known
        self._id = known.id
        self._set = metrics
        self._owners = owners
        """For each outcome the metric that makes it, over all experiments."""
        self._told = told
        self._found: list[MetricOutcome] = []
        self._made: dict[str, MadeBy] = {}
        self._problems: list[Problem] = []

    def done(self) -> Applied:
        """Ask, store, and tell."""
        kept: list[Episode] = []
        whole = [each for each in self._set.metrics if each.takes is MetricInput.EPISODES]
        for one, session in _read(self._store, self._known.sessions):
            episode = Episode.of(session, source=one.source)
            for each in self._set.metrics:
                if each.takes is MetricInput.EPISODE:
                    self._keep(each, measure(each, episode, self._call), (episode,))
            if whole:
                kept.append(self._without_messages(session, one))
        for each in whole if kept else ():
            self._keep(each, measure_all(each, kept, self._id, self._call), kept)
        self._write()
        return Applied(dict(Counter(e.metric for e in self._found)), tuple(self._problems))

    def _without_messages(self, session: SessionRecord, one: ResultSession) -> Episode:
        """An episode that leaves its messages in the store until they are asked for."""
        name = one.session_id

        def read() -> Sequence[MessageRecord]:
            with self._store.reading() as connection:
                return load_session(connection, name).messages

        return Episode.of(session, source=one.source, read_messages=read)

    def _keep(self, metric: Metric, given: Measured, episodes: Sequence[Episode]) -> None:
        for problem in given.problems:
            self._report(problem)
        for episode in episodes:
            for name, value in given.trials.get(episode.id, {}).items():
                # A dictionary may repeat a number that the episode has, not change it.
                if episode.outcomes.get(name) == value and name in OUTCOMES:
                    continue
                self._add(metric, episode.id, name, value, f"episode {episode.id}")
        for name, value in given.whole.items():
            self._add(metric, self._id, name, value, f"experiment {self._id!r}")

    def _add(self, metric: Metric, trial_id: str, name: str, value: float, about: str) -> None:
        clash = self._clash(metric, name)
        if clash is not None:
            self._report(Problem(metric.name, about, metric.where, clash))
            return
        self._found.append(MetricOutcome(trial_id, name, value))
        self._made[name] = MadeBy(metric.name, self._set.sha, metric.higher_is_better)

    def _clash(self, metric: Metric, name: str) -> str | None:
        advice = "give it another name"
        if name in OUTCOMES:
            return f"{name!r} is an outcome of every episode, with another value; {advice}"
        if name in self._known.recorded:
            return f"{name!r} was recorded with these episodes, by no metric; {advice}"
        owner = self._owners.setdefault(name, metric.name)
        if owner != metric.name:
            return f"{name!r} is given by metric {owner!r} too; {advice}"
        return None

    def _report(self, problem: Problem) -> None:
        self._problems.append(problem)
        self._told.of(problem)

    def _write(self) -> None:
        replaced = {
            name for name, made in self._known.made.items() if made.metric in self._set.names
        }
        replaced |= set(self._made)
        if self._found or replaced:
            with self._store.writing() as connection:
                store_metric_outcomes(
                    connection,
                    self._id,
                    self._found,
                    replaced=sorted(replaced),
                    made=self._made,
                )


class _Told:
    """Tells of the first problems of each line, because the rest is likely to be alike."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._seen: Counter[tuple[str, str]] = Counter()
        self._texts: dict[tuple[str, str], set[str]] = {}

    def of(self, problem: Problem) -> None:
        """Tell of a problem, unless its line had one like it, or several."""
        key = (problem.metric, problem.where)
        self._seen[key] += 1
        texts = self._texts.setdefault(key, set())
        if len(texts) < _TOLD and problem.what not in texts:
            texts.add(problem.what)
            self._notice(str(problem))

    def sum_up(self) -> None:
        """Tell how many there were at lines that had more."""
        for (name, where), count in self._seen.items():
            if count > len(self._texts[name, where]):
                self._notice(f"{where}: metric {name!r} has {count} such problems in all")

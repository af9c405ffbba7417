"""Application of metrics to stored sessions; their results are stored as outcomes.

Metrics are applied to completed sessions only. The database is closed while a metric runs. All
results of an experiment are stored together. If a metric fails for an episode, its outcome is
missing and the problem is reported.
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
"""Maximum number of sessions in memory with all their messages."""
_LIMIT_S = 600.0
_TOLD = 3
"""Maximum number of different problems reported per line."""

Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Applied:
    """Results of applying metrics."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of stored values, by outcome name."""
    problems: tuple[Problem, ...] = ()
    """Reasons for missing values."""

    def __add__(self, other: "Applied") -> "Applied":
        """Return the sum of both."""
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
    """Apply metrics to all completed sessions of experiments, and store the results.

    Earlier results of the same metrics are replaced. Each metric runs in its own thread.

    Args:
        store: Database with the sessions.
        experiment_ids: Experiments; duplicates are ignored.
        metrics: Metrics to apply.
        notice: Receives the first problems of each line, then their number.
        limit_s: Maximum seconds per call of a metric, if a run sets it.

    Raises:
        UsageError: An experiment does not exist, or names of metrics clash.
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
    """Make sure that completed sessions have the requested metrics.

    Missing built-in metrics are computed; names of other outcomes are ignored.

    Args:
        store: Database with the sessions; written to only if something is missing.
        experiment_ids: Experiments; duplicates are ignored.
        names: Requested metrics.
        extra: User-defined metrics, all of which are applied.
        notice: Receives problems.

    Raises:
        UsageError: An experiment does not exist, or names of metrics clash.
    """
    wanted = [SHIPPED[name] for name in dict.fromkeys(names) if name in SHIPPED]
    done = Applied()
    for experiment_id in dict.fromkeys(experiment_ids if wanted else ()):
        done += _complete(store, experiment_id, wanted, notice)
    return done if extra is None else done + apply_metrics(store, experiment_ids, extra, notice)


def _complete(
    store: Store, experiment_id: str, wanted: Sequence[Metric], notice: Notice
) -> Applied:
    """Compute built-in metrics for the sessions of an experiment that lack them."""
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
    """Yield sessions in batches; the database is closed while they are processed."""
    for start in range(0, len(sessions), _BATCH):
        batch = sessions[start : start + _BATCH]
        with store.reading() as connection:
            records = list(load_sessions(connection, [each.session_id for each in batch]))
        yield from zip(batch, records, strict=True)


class _Work:
    """Application of metrics to one experiment."""

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
        """Metric that produces each outcome, over all experiments."""
        self._told = told
        self._found: list[MetricOutcome] = []
        self._made: dict[str, MadeBy] = {}
        self._problems: list[Problem] = []

    def done(self) -> Applied:
        """Apply the metrics, store the results, and report problems."""
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
        """Return an episode that reads its messages from the database on access."""
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
                # A dictionary may repeat a built-in outcome with its value, but not change it.
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
    """Reports the first problems of each line, because the others are probably similar."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._seen: Counter[tuple[str, str]] = Counter()
        self._texts: dict[tuple[str, str], set[str]] = {}

    def of(self, problem: Problem) -> None:
        """Report a problem, unless its line had an equal one or too many."""
        key = (problem.metric, problem.where)
        self._seen[key] += 1
        texts = self._texts.setdefault(key, set())
        if len(texts) < _TOLD and problem.what not in texts:
            texts.add(problem.what)
            self._notice(str(problem))

    def sum_up(self) -> None:
        """Report the number of problems for lines with unreported ones."""
        for (name, where), count in self._seen.items():
            if count > len(self._texts[name, where]):
                self._notice(f"{where}: metric {name!r} has {count} such problems in all")

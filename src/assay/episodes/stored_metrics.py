"""Application of metrics to stored sessions; their results are stored as outcomes.

Metrics are applied to completed sessions only. The database is closed while a metric runs. All
results of an experiment are stored together. If a metric fails for an episode, its outcome is
missing and the problem is reported.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assay.core.user_code import UserThread, contain_user_code
from assay.crafter.rules import TASK
from assay.episodes.metrics import (
    SHIPPED,
    CallMetric,
    Metric,
    MetricInput,
    MetricResult,
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
_MAX_REPORTED = 3
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
    hint = "make it faster" if limit_s is None else "--decision-limit allows more"
    threads = {
        metric.name: UserThread(f"metric {metric.name!r}", limit_s or _LIMIT_S, hint=hint)
        for metric in metrics.metrics
    }

    def call(metric: Metric, function: Callable[[], object]) -> object:
        return threads[metric.name].wait(function, slow=notice)

    reporter = _ProblemReporter(notice)
    owners = {metric.name: metric.name for metric in metrics.metrics}
    total = Applied()
    with store.reading() as connection:
        experiments = [
            experiment_outcomes(connection, name) for name in dict.fromkeys(experiment_ids)
        ]
    with contain_user_code(notice):
        for metric in experiments:
            total += _ExperimentMetrics(store, metric, metrics, owners, reporter, call).apply()
    for thread in threads.values():
        thread.close()
    reporter.summarise()
    return total


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
    requested = [SHIPPED[name] for name in dict.fromkeys(names) if name in SHIPPED]
    total = Applied()
    for experiment_id in dict.fromkeys(experiment_ids if requested else ()):
        total += _compute_missing(store, experiment_id, requested, notice)
    return (
        total if extra is None else total + apply_metrics(store, experiment_ids, extra, notice)
    )


def _compute_missing(
    store: Store, experiment_id: str, requested: Sequence[Metric], notice: Notice
) -> Applied:
    """Compute built-in metrics for the sessions of an experiment that lack them."""
    names = {item.name for item in requested}
    with store.reading() as connection:
        incomplete = [
            item
            for item in result_sessions(connection, experiment_id)
            if not names <= item.metrics
        ]
    crafter_sessions = [
        item
        for item in incomplete
        if item.source == ASSAY_SOURCE and item.task.startswith(TASK)
    ]
    if len(crafter_sessions) < len(incomplete):
        notice(
            f"{len(incomplete) - len(crafter_sessions)} episodes of experiment {experiment_id} "
            "were not played by assay in Crafter, so they have no "
            f"{', '.join(sorted(names))}"
        )
    outcomes: list[MetricOutcome] = []
    for stored, session in _read_sessions(store, crafter_sessions):
        episode = Episode.of(session)
        for item in requested:
            if item.name not in stored.metrics:
                value = float(item.function(episode))
                outcomes.append(MetricOutcome(episode.id, item.name, value))
    if outcomes:
        with store.writing() as connection:
            store_metric_outcomes(connection, experiment_id, outcomes)
    return Applied(dict(Counter(item.metric for item in outcomes)))


def _read_sessions(
    store: Store, sessions: Sequence[ResultSession]
) -> Iterator[tuple[ResultSession, SessionRecord]]:
    """Yield sessions in batches; the database is closed while they are processed."""
    for start in range(0, len(sessions), _BATCH):
        batch = sessions[start : start + _BATCH]
        with store.reading() as connection:
            records = list(load_sessions(connection, [session.session_id for session in batch]))
        yield from zip(batch, records, strict=True)


class _ExperimentMetrics:
    """Application of metrics to one experiment."""

    def __init__(
        self,
        store: Store,
        experiment: ExperimentOutcomes,
        metrics: MetricSet,
        owners: dict[str, str],
        reporter: "_ProblemReporter",
        call: CallMetric,
    ) -> None:
        self._store, self._call = store, call
        self._experiment = experiment
        self._id = experiment.id
        self._metric_set = metrics
        self._owners = owners
        """Metric that produces each outcome, over all experiments."""
        self._reporter = reporter
        self._outcomes: list[MetricOutcome] = []
        self._origins: dict[str, MadeBy] = {}
        self._problems: list[Problem] = []

    def apply(self) -> Applied:
        """Apply the metrics, store the results, and report problems."""
        episodes: list[Episode] = []
        list_metrics = [
            metric
            for metric in self._metric_set.metrics
            if metric.takes is MetricInput.EPISODES
        ]
        for stored, session in _read_sessions(self._store, self._experiment.sessions):
            episode = Episode.of(session, source=stored.source)
            for metric in self._metric_set.metrics:
                if metric.takes is MetricInput.EPISODE:
                    self._collect(metric, measure(metric, episode, self._call), (episode,))
            if list_metrics:
                episodes.append(self._make_lazy_episode(session, stored))
        for metric in list_metrics if episodes else ():
            self._collect(metric, measure_all(metric, episodes, self._id, self._call), episodes)
        self._store_outcomes()
        return Applied(dict(Counter(e.metric for e in self._outcomes)), tuple(self._problems))

    def _make_lazy_episode(self, session: SessionRecord, stored: ResultSession) -> Episode:
        """Return an episode that reads its messages from the database on access."""
        name = stored.session_id

        def read() -> Sequence[MessageRecord]:
            with self._store.reading() as connection:
                return load_session(connection, name).messages

        return Episode.of(session, source=stored.source, read_messages=read)

    def _collect(
        self, metric: Metric, measured: MetricResult, episodes: Sequence[Episode]
    ) -> None:
        for problem in measured.problems:
            self._report(problem)
        for episode in episodes:
            for name, value in measured.trials.get(episode.id, {}).items():
                # A dictionary may repeat a built-in outcome with its value, but not change it.
                if episode.outcomes.get(name) == value and name in OUTCOMES:
                    continue
                self._add(metric, episode.id, name, value, f"episode {episode.id}")
        for name, value in measured.whole.items():
            self._add(metric, self._id, name, value, f"experiment {self._id!r}")

    def _add(self, metric: Metric, trial_id: str, name: str, value: float, about: str) -> None:
        clash = self._find_clash(metric, name)
        if clash is not None:
            self._report(Problem(metric.name, about, metric.where, clash))
            return
        self._outcomes.append(MetricOutcome(trial_id, name, value))
        self._origins[name] = MadeBy(
            metric.name, self._metric_set.sha, metric.higher_is_better, metric.declared
        )

    def _find_clash(self, metric: Metric, name: str) -> str | None:
        advice = "give it another name"
        if name in OUTCOMES:
            return f"{name!r} is an outcome of every episode, with another value; {advice}"
        if name in self._experiment.recorded:
            return (
                f"{name!r} was recorded with these episodes and is not from a metric; {advice}"
            )
        owner = self._owners.setdefault(name, metric.name)
        if owner != metric.name:
            return f"{name!r} is also a result of metric {owner!r}; {advice}"
        return None

    def _report(self, problem: Problem) -> None:
        self._problems.append(problem)
        self._reporter.report(problem)

    def _store_outcomes(self) -> None:
        replaced = {
            name
            for name, origin in self._experiment.made.items()
            if origin.metric in self._metric_set.names
        }
        replaced |= set(self._origins)
        if self._outcomes or replaced:
            with self._store.writing() as connection:
                store_metric_outcomes(
                    connection,
                    self._id,
                    self._outcomes,
                    replaced=sorted(replaced),
                    made=self._origins,
                )


class _ProblemReporter:
    """Reports the first problems of each line, because the others are probably similar."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._seen: Counter[tuple[str, str]] = Counter()
        self._texts: dict[tuple[str, str], set[str]] = {}

    def report(self, problem: Problem) -> None:
        """Report a problem, unless its line had an equal one or too many."""
        key = (problem.metric, problem.where)
        self._seen[key] += 1
        texts = self._texts.setdefault(key, set())
        if len(texts) < _MAX_REPORTED and problem.what not in texts:
            texts.add(problem.what)
            self._notice(str(problem))

    def summarise(self) -> None:
        """Report the number of problems for lines with unreported ones."""
        for (name, location), count in self._seen.items():
            if count > len(self._texts[name, location]):
                self._notice(f"{location}: metric {name!r} has {count} such problems in total")

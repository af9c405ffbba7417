"""The tables of a store, declared once: DDL, Arrow schemas and pages follow from it.

A table or a column says since which version of the schema it is there, and migrations add
just those; nothing here is ever renamed or removed. Only small tables have keys that DuckDB
checks: the rows below a session are replaced as a whole, which keeps them unique. All times
are UTC. Nothing here opens a file.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import pyarrow as pa

CATALOG = "traces"
"""The catalog that an attached file has in DuckDB."""
VERSION = 6
"""The version of the schema that this program writes."""

ASSAY_SOURCE = "assay"
"""The `source` of a session that assay recorded itself."""

ASLEEP = "asleep"
"""The `no_effect` of an action that a sleeping player did not carry out."""


class Type(StrEnum):
    """The types of columns, as DuckDB spells them."""

    TEXT = "VARCHAR"
    TEXTS = "VARCHAR[]"
    JSON = "JSON"
    INTEGER = "INTEGER"
    INTEGERS = "INTEGER[]"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    BOOLEAN = "BOOLEAN"
    TIME = "TIMESTAMP"
    HASH = "UUID"
    """128 bits of BLAKE2b. Finding one among millions is far cheaper than as text."""

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that holds such values on their way into DuckDB."""
        return _ARROW[self]


_ARROW = {
    Type.TEXT: pa.string(),
    Type.TEXTS: pa.list_(pa.string()),
    Type.JSON: pa.string(),
    Type.INTEGER: pa.int32(),
    Type.INTEGERS: pa.list_(pa.int32()),
    Type.BIGINT: pa.int64(),
    Type.DOUBLE: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.TIME: pa.timestamp("us"),
    Type.HASH: pa.string(),
}


COPIED = "copied"
"""The parameter of a call that a fork has from the session it was forked from."""


class RunStatus(StrEnum):
    """How far a run has come."""

    RUNNING = "running"
    """It goes on, or its process died and it waits to be resumed."""
    FINISHED = "finished"
    """Every session completed or failed."""
    INCOMPLETE = "incomplete"
    """It came to its end with infrastructure errors, or was given up."""


class StoredKind(StrEnum):
    """The kinds of trials that assay itself writes; a run of another kind has its own name."""

    EPISODE = "episode"
    """A session that `assay run` played."""
    TRACED = "traced"
    """A session of a SessionTracer."""
    IMPORTED = "imported"
    """A session of another program's log."""
    CODING = "coding"
    """A coding task that `assay bench` ran."""
    TRAINING = "training"
    """A training run; it has no session, but a row in `training_runs`."""


class EventType(StrEnum):
    """What an event tells of."""

    CALL = "cais"
    """One call of a model."""
    TURN = "runtime"
    """What one answer asked for."""
    STEP = "environment"
    """One step of the environment."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column and what it means."""

    name: str
    type: Type
    doc: str
    required: bool = False
    since: int = 1

    @property
    def ddl(self) -> str:
        """The column as CREATE TABLE wants it."""
        return f'"{self.name}" {self.type}{" NOT NULL" if self.required else ""}'


@dataclass(frozen=True, slots=True)
class Table:
    """A table and what a row of it is."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """The columns that tell rows apart."""
    checked: bool = False
    """Whether DuckDB keeps an index of the key."""
    unique: tuple[str, ...] = ()
    """Further columns of which each has no value twice."""
    since: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return tuple(column.name for column in self.columns)

    def ddl(self, version: int = VERSION) -> str:
        """CREATE TABLE, as it was in a version."""
        parts = [column.ddl for column in self.columns if column.since <= version]
        if self.checked:
            parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
        parts += [f"UNIQUE ({name})" for name in self.unique]
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"


def _id(what: str) -> Column:
    return Column("id", Type.BIGINT, f"follows from the session and the place of the {what}")


_SESSION = Column("session_id", Type.TEXT, "the session", required=True)
_TURN = Column("turn", Type.INTEGER, "the turn, counted from 1")

RUNS = Table(
    "runs",
    "One command that played sessions.",
    (
        Column("id", Type.TEXT, "the run", required=True),
        Column("command", Type.TEXT, "as it was typed"),
        Column("configuration", Type.JSON, "all that was asked for, resolved"),
        Column("provenance", Type.JSON, "versions and commit of the program"),
        Column("status", Type.TEXT, "running, finished or incomplete", required=True),
        Column("created_at", Type.TIME, "when it was first started", required=True),
        Column("finished_at", Type.TIME, "when its last session was stored"),
    ),
    key=("id",),
    checked=True,
)

EXPERIMENTS = Table(
    "experiments",
    "One subject in one run.",
    (
        Column("id", Type.TEXT, "the experiment", required=True),
        Column("name", Type.TEXT, "series, version and a counter; no other has it"),
        Column("series", Type.TEXT, "what one follows over time"),
        Column("version", Type.TEXT, "v1.0, v1.1, …: a new one when the fingerprint changes"),
        Column("run_id", Type.TEXT, "its run"),
        Column("position", Type.INTEGER, "its place in the run, counted from 0"),
        Column("model", Type.TEXT, "the subject"),
        Column("fingerprint", Type.TEXT, "a hash of all that makes a version"),
        Column("description", Type.TEXT, "in the words of the user"),
        Column("created_at", Type.TIME, "when its run was first started", required=True),
        Column("updated_at", Type.TIME, "when this row last changed", required=True),
        Column("tags", Type.JSON, "an object; baseline: true for those played to compare"),
        Column("note", Type.TEXT, "what the user said of this version", since=2),
    ),
    key=("id",),
    checked=True,
    unique=("name",),
)

TRIALS = Table(
    "trials",
    "One trial of any kind: a subject on a task with a seed, and how it ended.",
    (
        Column("id", Type.TEXT, "the session, or the training run", required=True),
        Column("run_id", Type.TEXT, "its run; NULL for training runs"),
        Column("experiment_id", Type.TEXT, "its experiment; NULL if it has none"),
        Column("kind", Type.TEXT, "episode, traced, imported, training, …", required=True),
        Column("subject", Type.TEXT, "who was tried: a model, an agent, an architecture"),
        Column("task", Type.TEXT, "on what"),
        Column("seed", Type.BIGINT, "with which seed; NULL if there is none"),
        Column("replicate", Type.INTEGER, "0 unless a world is played again"),
        Column("state", Type.TEXT, "result, failure or infrastructure; NULL while it runs"),
        Column(
            "reason", Type.TEXT, "why it ended: died: zombie, length, … or the kind of error"
        ),
        Column("error", Type.TEXT, "its type and what it said; NULL if nothing went wrong"),
        Column("parent", Type.TEXT, "the trial it was forked from; NULL for most"),
        Column("forked_at", Type.INTEGER, "steps it has in common with its parent"),
        Column("started_at", Type.TIME, "when it began"),
        Column("ended_at", Type.TIME, "when it ended"),
    ),
    key=("id",),
    since=3,
)

SESSION_TRACES = Table(
    "session_traces",
    "One session: a subject on a task with a seed.",
    (
        _SESSION,
        Column("created_at", Type.TIME, "when it began"),
        Column("num_timesteps", Type.INTEGER, "steps of the environment"),
        Column("num_events", Type.INTEGER, "rows in events"),
        Column("num_messages", Type.INTEGER, "rows in messages"),
        Column("metadata", Type.JSON, "all else that is needed to play it again"),
        Column("experiment_id", Type.TEXT, "its experiment"),
        Column("run_id", Type.TEXT, "its run"),
        Column("subject", Type.TEXT, "who played: a model, an agent, a policy"),
        Column("task", Type.TEXT, "for episodes crafter/<difficulty>"),
        Column("seed", Type.BIGINT, "of the world"),
        Column("difficulty", Type.TEXT, "its name"),
        Column("episode", Type.INTEGER, "counted from 0 within the experiment"),
        Column("replicate", Type.INTEGER, "0 unless a world is played again"),
        Column("num_turns", Type.INTEGER, "decisions, each with no, one or several calls"),
        Column("state", Type.TEXT, "result, failure or infrastructure", required=True),
        Column(
            "stop_reason",
            Type.TEXT,
            "died: zombie, length, max_turns, step_limit, … or the kind of error",
        ),
        Column("total_reward", Type.DOUBLE, "the sum over all steps"),
        Column("num_achievements", Type.INTEGER, "different ones"),
        Column("actions_asked", Type.INTEGER, "actions the answers asked for"),
        Column("unknown_actions", Type.INTEGER, "those among them that do not exist"),
        Column("no_effect_actions", Type.INTEGER, "played without effect, while awake"),
        Column("asleep_actions", Type.INTEGER, "ignored while asleep"),
        Column("malformed_replies", Type.INTEGER, "answers that could not be read"),
        Column("skipped_actions", Type.INTEGER, "not played, because the episode had ended"),
        Column("prompt_tokens", Type.BIGINT, "sent, over all calls"),
        Column("completion_tokens", Type.BIGINT, "received, over all calls"),
        Column("cached_tokens", Type.BIGINT, "part of prompt_tokens"),
        Column("reasoning_tokens", Type.BIGINT, "part of completion_tokens"),
        Column("cost_usd", Type.DOUBLE, "NULL if the price of a call is not known"),
        Column("duration_s", Type.DOUBLE, "time played, over all attempts"),
        Column("ended_at", Type.TIME, "when it ended"),
        Column("attempts", Type.INTEGER, "how often it was started"),
        Column("error_type", Type.TEXT, "NULL if nothing went wrong"),
        Column("error_message", Type.TEXT, "what the error said"),
        Column("error_traceback", Type.TEXT, "where it was raised"),
        Column("tools_hash", Type.HASH, "the tools offered, in message_bodies"),
        Column("verifiable", Type.BOOLEAN, "whether every step has a digest"),
        Column("source", Type.TEXT, "assay, or the format it was imported from"),
    ),
    key=("session_id",),
    checked=True,
)

SESSION_TIMESTEPS = Table(
    "session_timesteps",
    "One step of the environment.",
    (
        _id("step"),
        _SESSION,
        Column("step_id", Type.TEXT, "step-1, step-2, …"),
        Column("step_index", Type.INTEGER, "counted from 1", required=True),
        Column("timestamp", Type.TIME, "when its turn had been played"),
        Column("num_events", Type.INTEGER, "rows in events"),
        Column("num_messages", Type.INTEGER, "rows in messages"),
        Column("step_metadata", Type.JSON, "unused by assay"),
        _TURN,
        Column("action", Type.TEXT, "what was played"),
        Column("no_effect", Type.TEXT, "why it changed nothing, if it did not"),
        Column("unlocked", Type.TEXTS, "achievements reached for the first time"),
        Column("digest", Type.TEXT, "of the state after the step"),
    ),
    key=("session_id", "step_index"),
)

EVENTS = Table(
    "events",
    "A call of a model (cais), what its answer asked for (runtime), a step (environment).",
    (
        _id("event"),
        _SESSION,
        Column("timestep_id", Type.BIGINT, "its step; of a turn the first"),
        Column("event_type", Type.TEXT, "cais, runtime or environment", required=True),
        Column("system_instance_id", Type.TEXT, "the model, the subject or the task"),
        Column("event_time", Type.TIME, "when it was over"),
        Column("message_time", Type.INTEGER, "the turn"),
        Column("span_id", Type.TEXT, "unused by assay"),
        Column("trace_id", Type.TEXT, "unused by assay"),
        Column("model_name", Type.TEXT, "cais: who was asked"),
        Column("provider", Type.TEXT, "cais: who answered"),
        Column("prompt_tokens", Type.INTEGER, "cais"),
        Column("completion_tokens", Type.INTEGER, "cais"),
        Column("total_tokens", Type.INTEGER, "cais"),
        Column("cost", Type.DOUBLE, "cais: in dollars; NULL if not known"),
        Column("latency_ms", Type.DOUBLE, "cais: of the attempt that succeeded"),
        Column("reward", Type.DOUBLE, "environment"),
        Column("terminated", Type.BOOLEAN, "environment: the player died"),
        Column("truncated", Type.BOOLEAN, "environment: the episode is long enough"),
        Column("system_state_before", Type.JSON, "unused: states are replayed"),
        Column("system_state_after", Type.JSON, "unused: states are replayed"),
        Column("metadata", Type.JSON, "cais: temperature and other parameters"),
        Column("event_metadata", Type.JSON, "unused: see hook_results"),
        _TURN,
        Column("cached_tokens", Type.INTEGER, "cais"),
        Column("reasoning_tokens", Type.INTEGER, "cais"),
        Column("finish_reason", Type.TEXT, "cais: stop, length, tool_calls, …"),
        Column("waited_ms", Type.DOUBLE, "cais: for a turn, and between attempts"),
        Column("retries", Type.INTEGER, "cais"),
        Column("request", Type.INTEGERS, "cais: positions of the messages sent"),
        Column("reply", Type.INTEGER, "cais: position of the answer"),
        Column("asked", Type.TEXTS, "runtime: actions asked for"),
        Column("unknown", Type.TEXTS, "runtime: those that do not exist"),
        Column("malformed", Type.TEXT, "runtime: what was wrong with the answer"),
        Column("skipped", Type.INTEGER, "runtime: actions not played"),
    ),
    key=("id",),
)

MESSAGE_ROWS = Table(
    "message_rows",
    "A message at its position in a session; read it through the view messages.",
    (
        _id("message"),
        _SESSION,
        Column("timestep_id", Type.BIGINT, "the step before it; of an answer the one after"),
        Column("position", Type.INTEGER, "in the session", required=True),
        _TURN,
        Column("role", Type.TEXT, "system, user, assistant or tool"),
        Column("message_type", Type.TEXT, "system, observation, tool_call, feedback, …"),
        Column("hash", Type.HASH, "its body", required=True),
        Column("timestamp", Type.TIME, "when it was made"),
        Column("event_time", Type.TIME, "the same"),
        Column("message_time", Type.INTEGER, "the turn"),
    ),
    key=("session_id", "position"),
)

MESSAGE_BODIES = Table(
    "message_bodies",
    "What a message says, once for all that say the same.",
    (
        Column("hash", Type.HASH, "of the body", required=True),
        Column("body", Type.TEXT, "canonical JSON", required=True),
    ),
    key=("hash",),
)

HOOK_RESULTS = Table(
    "hook_results",
    "Something a hook noticed.",
    (
        _id("result"),
        _SESSION,
        Column("timestep_id", Type.BIGINT, "its step; of a turn the first"),
        _TURN,
        Column("step", Type.INTEGER, "the index of the step; NULL for the whole turn"),
        Column("hook_name", Type.TEXT, "which hook", required=True),
        Column("code", Type.TEXT, "one letter for displays"),
        Column("priority", Type.INTEGER, "higher is more important"),
        Column("description", Type.TEXT, "in words"),
        Column("data", Type.JSON, "what else it said"),
    ),
    key=("id",),
)

OUTCOMES = Table(
    "outcomes",
    "A number that a trial earned.",
    (
        Column("trial_id", Type.TEXT, "for episodes the session", required=True),
        Column("experiment_id", Type.TEXT, "its experiment"),
        Column("subject", Type.TEXT, "who earned it"),
        Column("task", Type.TEXT, "on what"),
        Column("seed", Type.BIGINT, "with which seed"),
        Column("replicate", Type.INTEGER, "0 unless a world is played again"),
        Column("metric", Type.TEXT, "the name of the number", required=True),
        Column("value", Type.DOUBLE, "the number"),
    ),
    key=("trial_id", "metric"),
)

PROVIDER_LIMITS = Table(
    "provider_limits",
    "How many calls a provider was given at once, and why that changed.",
    (
        Column("run_id", Type.TEXT, "the run", required=True),
        Column("provider", Type.TEXT, "whom it was about", required=True),
        Column("changed_at", Type.TIME, "when", required=True),
        Column("connections", Type.INTEGER, "calls that could be open from then on"),
        Column("per_second", Type.DOUBLE, "calls that could start; NULL for no limit"),
        Column("pause_s", Type.DOUBLE, "seconds in which none started"),
        Column("reason", Type.TEXT, "start, growth, rate_limit, overload, headers, …"),
    ),
    key=("run_id", "provider", "changed_at"),
)

LOOKS = Table(
    "looks",
    "One look at a run that goes on until it is decided: a candidate beside the baseline.",
    (
        Column("run_id", Type.TEXT, "the run", required=True),
        Column("experiment_id", Type.TEXT, "the candidate", required=True),
        Column("baseline_id", Type.TEXT, "the experiment it is compared with", required=True),
        Column("metric", Type.TEXT, "what is compared", required=True),
        Column("look", Type.INTEGER, "counted from 1", required=True),
        Column("pairs", Type.INTEGER, "pairs of trials seen", required=True),
        Column("estimate", Type.DOUBLE, "mean of candidate minus baseline"),
        Column("low", Type.DOUBLE, "of the interval that holds at every look"),
        Column("high", Type.DOUBLE, "of the interval that holds at every look"),
        Column("decision", Type.TEXT, "better, worse, no_difference, undecided or NULL"),
        Column("design", Type.JSON, "boundary, alpha, largest number of pairs, min_effect"),
        Column("looked_at", Type.TIME, "when"),
    ),
    key=("run_id", "experiment_id", "metric", "look"),
    since=2,
)

TRAINING_RUNS = Table(
    "training_runs",
    "One training run: a subject with a seed.",
    (
        Column("id", Type.TEXT, "the training run", required=True),
        Column("series", Type.TEXT, "what it belongs to, if anything"),
        Column("subject", Type.TEXT, "what was trained"),
        Column("task", Type.TEXT, "on what"),
        Column("seed", Type.BIGINT, "with which seed; NULL if not known"),
        Column("status", Type.TEXT, "finished, running or crashed", required=True),
        Column("configuration", Type.JSON, "all that was asked for"),
        Column("provenance", Type.JSON, "versions and commit"),
        Column("created_at", Type.TIME, "when it began, or was imported", required=True),
        Column("finished_at", Type.TIME, "when it ended"),
        Column("source", Type.TEXT, "assay, or the file it was imported from"),
    ),
    key=("id",),
    checked=True,
    since=2,
)

METRIC_POINTS = Table(
    "metric_points",
    "The value of a metric at a step of a training run.",
    (
        # The name is older than the rule that run_id is of runs, and stays.
        Column("run_id", Type.TEXT, "the id in training_runs, not in runs", required=True),
        Column("step", Type.BIGINT, "steps of the environment so far", required=True),
        Column("metric", Type.TEXT, "the name of the number", required=True),
        Column("value", Type.DOUBLE, "the number"),
    ),
    key=("run_id", "step", "metric"),
    since=2,
)

ANALYSIS_PLANS = Table(
    "analysis_plans",
    "What somebody said they would test, before they saw the data.",
    (
        Column("hash", Type.TEXT, "of the plan", required=True),
        Column("plan", Type.JSON, "metric, summary, test, alpha, runs", required=True),
        Column("created_at", Type.TIME, "when it was stored first", required=True),
        Column("seen", Type.JSON, "training runs that were in the store already"),
    ),
    key=("hash",),
    checked=True,
    since=2,
)

ANALYSIS_LOOKS = Table(
    "analysis_looks",
    "One look of `assay analysis` at the difference of two sets of training runs.",
    (
        Column("id", Type.TEXT, "a hash of what was looked at", required=True),
        Column("metric", Type.TEXT, "whose curves", required=True),
        Column("summary", Type.JSON, "what was taken of a curve", required=True),
        Column("control", Type.TEXTS, "ids in training_runs, sorted", required=True),
        Column("candidate", Type.TEXTS, "ids in training_runs, sorted", required=True),
        Column("look", Type.INTEGER, "counted from 1", required=True),
        Column("alpha", Type.DOUBLE, "two-sided, of its interval by itself", required=True),
        Column("estimate", Type.DOUBLE, "mean of candidate minus control"),
        Column("low", Type.DOUBLE, "of its interval; NULL for none"),
        Column("high", Type.DOUBLE, "of its interval; NULL for none"),
        Column("verdict", Type.TEXT, "higher, lower, undecided or unknown"),
        Column("plan", Type.TEXT, "the hash of the plan that had it, or NULL"),
        Column("looked_at", Type.TIME, "when", required=True),
    ),
    key=("id",),
    checked=True,
    since=6,
)

DATASET_WORLDS = Table(
    "dataset_worlds",
    "A world that training data was made of, or that was held out of it.",
    (
        Column("dataset", Type.TEXT, "the start of the SHA-256 of the data", required=True),
        Column("name", Type.TEXT, "what the data file is called"),
        Column("task", Type.TEXT, "for episodes crafter/<difficulty>", required=True),
        Column("seed", Type.BIGINT, "of the world", required=True),
        Column("split", Type.TEXT, "train or holdout", required=True),
        Column("created_at", Type.TIME, "when the data was made", required=True),
    ),
    key=("dataset", "task", "seed"),
    since=4,
)

FINETUNE_FILES = Table(
    "finetune_files",
    "A data file that was uploaded to a fine-tuning service.",
    (
        Column("address", Type.TEXT, "the service", required=True),
        Column("sha256", Type.TEXT, "of the file", required=True),
        Column("file_id", Type.TEXT, "what the service calls it", required=True),
        Column("name", Type.TEXT, "what it was called here"),
        Column("bytes", Type.BIGINT, "its size"),
        Column("uploaded_at", Type.TIME, "when", required=True),
    ),
    key=("address", "sha256"),
    since=5,
)

FINETUNE_JOBS = Table(
    "finetune_jobs",
    "One fine-tuning job: a model trained further on a data file.",
    (
        Column("id", Type.TEXT, "what the service calls it", required=True),
        Column("address", Type.TEXT, "the service", required=True),
        Column("backend", Type.TEXT, "openai, synth or local", required=True),
        Column("model", Type.TEXT, "the model that is trained further", required=True),
        Column("suffix", Type.TEXT, "the part of the result's name that the user chose"),
        Column("status", Type.TEXT, "as the service says it: running, succeeded, …"),
        Column("result_model", Type.TEXT, "the new model; NULL until it succeeded"),
        Column("error", Type.TEXT, "why it failed"),
        Column("data", Type.TEXT, "the data file"),
        Column("data_sha256", Type.TEXT, "of what was trained on"),
        Column("rows", Type.INTEGER, "trained on"),
        Column("subset_of", Type.INTEGER, "rows of the file they were taken from, or NULL"),
        Column("tokens", Type.BIGINT, "of one epoch, estimated"),
        Column("validation", Type.TEXT, "the validation file; NULL if there is none"),
        Column("validation_sha256", Type.TEXT, "of that file"),
        Column("hyperparameters", Type.JSON, "as they were sent"),
        Column("seed", Type.BIGINT, "of the subset, and for the service"),
        Column("lineage", Type.JSON, "what the manifest of the data says of all rows"),
        Column("provenance", Type.JSON, "versions and commit of the program"),
        Column("command", Type.TEXT, "as it was typed"),
        Column("history", Type.JSON, "each status, and when it was first seen"),
        Column("trained_tokens", Type.BIGINT, "that the service counted"),
        Column("created_at", Type.TIME, "when it was asked for, by its clock", required=True),
        Column("finished_at", Type.TIME, "when it ended, by the service's clock"),
    ),
    key=("address", "id"),
    since=5,
)

FINETUNE_EVENTS = Table(
    "finetune_events",
    "Something that happened to a fine-tuning job, such as a step with its loss.",
    (
        Column("address", Type.TEXT, "the service", required=True),
        Column("job_id", Type.TEXT, "the job", required=True),
        Column("id", Type.TEXT, "what the service calls it", required=True),
        Column("position", Type.INTEGER, "its place among those of the job, from 0"),
        Column("created_at", Type.TIME, "when, by the service's clock"),
        Column("level", Type.TEXT, "info, warn or error"),
        Column("message", Type.TEXT, "in words"),
        Column("step", Type.INTEGER, "the training step, if it is about one"),
        Column("total_steps", Type.INTEGER, "how many there will be"),
        Column("metrics", Type.JSON, "numbers of the step: train_loss, valid_loss, …"),
    ),
    key=("address", "job_id", "id"),
    since=5,
)

SESSION_TABLES = (SESSION_TIMESTEPS, EVENTS, MESSAGE_ROWS, HOOK_RESULTS)
"""The tables whose rows belong to one session and carry its `session_id`."""

TABLES = (
    RUNS,
    EXPERIMENTS,
    TRIALS,
    SESSION_TRACES,
    *SESSION_TABLES,
    MESSAGE_BODIES,
    OUTCOMES,
    PROVIDER_LIMITS,
    LOOKS,
    TRAINING_RUNS,
    METRIC_POINTS,
    ANALYSIS_PLANS,
    ANALYSIS_LOOKS,
    DATASET_WORLDS,
    FINETUNE_FILES,
    FINETUNE_JOBS,
    FINETUNE_EVENTS,
)
"""All tables, each after those it refers to."""


@cache
def table(name: str) -> Table:
    """Return the table of this name."""
    return next(each for each in TABLES if each.name == name)


@cache
def arrow_schema(name: str) -> pa.Schema:
    """The Arrow schema of the rows of a table."""
    return pa.schema([(column.name, column.type.arrow) for column in table(name).columns])

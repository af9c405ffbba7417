"""The tables of a database, declared once: DDL, Arrow schemas and docs are derived from them.

A table or a column has the schema version that added it, and migrations add exactly those;
nothing is ever renamed or removed. DuckDB checks keys only in small tables: the rows of a
session are replaced together, which keeps them unique. All times are UTC. Nothing here opens a
file.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

import pyarrow as pa

CATALOG = "traces"
"""Catalog name of an attached file in DuckDB."""
VERSION = 7
"""Schema version that this program writes."""

ASSAY_SOURCE = "assay"
"""The `source` of a session that assay recorded itself."""

ASLEEP = "asleep"
"""The `no_effect` of an action that was ignored while asleep."""


class Type(StrEnum):
    """Column types, as DuckDB names."""

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
        """Arrow type of such values when they are inserted into DuckDB."""
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
"""Parameter of a call that a fork copied from its parent session."""


class RunStatus(StrEnum):
    """Status of a run."""

    RUNNING = "running"
    """It is in progress, or was interrupted and can be resumed."""
    FINISHED = "finished"
    """Every session completed or failed."""
    INCOMPLETE = "incomplete"
    """It ended with infrastructure errors, or was abandoned."""


class StoredKind(StrEnum):
    """Built-in kinds of trials; user-defined kinds have other names."""

    EPISODE = "episode"
    """A session that `assay run` played."""
    TRACED = "traced"
    """A session of a SessionTracer."""
    IMPORTED = "imported"
    """A session imported from a log of another program."""
    CODING = "coding"
    """A coding task that `assay bench` ran."""
    TRAINING = "training"
    """A training run, which has a row in `training_runs` instead of a session."""


class EventType(StrEnum):
    """Type of an event."""

    CALL = "cais"
    """One model call."""
    TURN = "runtime"
    """The actions of one turn."""
    STEP = "environment"
    """One step of the environment."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column and its description."""

    name: str
    type: Type
    doc: str
    required: bool = False
    since: int = 1

    @property
    def ddl(self) -> str:
        """Definition of the column for CREATE TABLE."""
        return f'"{self.name}" {self.type}{" NOT NULL" if self.required else ""}'


@dataclass(frozen=True, slots=True)
class Table:
    """A table and the description of a row."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """Columns that identify a row."""
    checked: bool = False
    """Whether the key is a PRIMARY KEY, which DuckDB checks."""
    unique: tuple[str, ...] = ()
    """Further columns whose values are unique."""
    since: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def ddl(self, version: int = VERSION) -> str:
        """Return CREATE TABLE for a schema version."""
        parts = [column.ddl for column in self.columns if column.since <= version]
        if self.checked:
            parts.append(f"PRIMARY KEY ({', '.join(self.key)})")
        parts += [f"UNIQUE ({name})" for name in self.unique]
        return f"CREATE TABLE {self.name} ({', '.join(parts)})"


def _id_column(what: str) -> Column:
    return Column("id", Type.BIGINT, f"computed from the session and the {what}'s position")


_SESSION = Column("session_id", Type.TEXT, "the session", required=True)
_TURN = Column("turn", Type.INTEGER, "the turn, counted from 1")

RUNS = Table(
    "runs",
    "One run: a command that executed trials.",
    (
        Column("id", Type.TEXT, "the run", required=True),
        Column("command", Type.TEXT, "the command line"),
        Column("configuration", Type.JSON, "all settings, with defaults"),
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
    "One entry in one run.",
    (
        Column("id", Type.TEXT, "the experiment", required=True),
        Column("name", Type.TEXT, "series, version and a counter; unique"),
        Column("series", Type.TEXT, "name common to all versions of the experiment"),
        Column("version", Type.TEXT, "v1.0, v1.1, …: a new one when the fingerprint changes"),
        Column("run_id", Type.TEXT, "its run"),
        Column("position", Type.INTEGER, "its index in the run, from 0"),
        Column("model", Type.TEXT, "the model or agent"),
        Column("fingerprint", Type.TEXT, "hash of everything that determines a version"),
        Column("description", Type.TEXT, "the user's description"),
        Column("created_at", Type.TIME, "when its run was first started", required=True),
        Column("updated_at", Type.TIME, "when this row last changed", required=True),
        Column("tags", Type.JSON, "an object; baseline: true for added baselines"),
        Column("note", Type.TEXT, "the user's note on this version", since=2),
    ),
    key=("id",),
    checked=True,
    unique=("name",),
)

TRIALS = Table(
    "trials",
    "One trial of any kind: an entry on a task with a seed, and how it ended.",
    (
        Column("id", Type.TEXT, "the session, or the training run", required=True),
        Column("run_id", Type.TEXT, "its run; NULL for training runs"),
        Column("experiment_id", Type.TEXT, "its experiment; NULL if it has none"),
        Column("kind", Type.TEXT, "episode, traced, imported, training, …", required=True),
        Column("subject", Type.TEXT, "the model, agent or architecture"),
        Column("task", Type.TEXT, "the task"),
        Column("seed", Type.BIGINT, "the seed; NULL if there is none"),
        Column("replicate", Type.INTEGER, "number of the repetition in the same world, from 0"),
        Column("state", Type.TEXT, "result, failure or infrastructure; NULL while it runs"),
        Column(
            "reason", Type.TEXT, "why it ended: died: zombie, length, … or the kind of error"
        ),
        Column("error", Type.TEXT, "type and message of the error; NULL without one"),
        Column("parent", Type.TEXT, "the trial it was forked from; NULL for most"),
        Column("forked_at", Type.INTEGER, "number of steps shared with the parent"),
        Column("started_at", Type.TIME, "when it started"),
        Column("ended_at", Type.TIME, "when it ended"),
    ),
    key=("id",),
    since=3,
)

SESSION_TRACES = Table(
    "session_traces",
    "One session: an entry on a task with a seed.",
    (
        _SESSION,
        Column("created_at", Type.TIME, "when it started"),
        Column("num_timesteps", Type.INTEGER, "steps of the environment"),
        Column("num_events", Type.INTEGER, "rows in events"),
        Column("num_messages", Type.INTEGER, "rows in messages"),
        Column("metadata", Type.JSON, "other facts needed for a replay"),
        Column("experiment_id", Type.TEXT, "its experiment"),
        Column("run_id", Type.TEXT, "its run"),
        Column("subject", Type.TEXT, "the model, agent or policy"),
        Column("task", Type.TEXT, "crafter/<difficulty> for Crafter episodes"),
        Column("seed", Type.BIGINT, "seed of the world"),
        Column("difficulty", Type.TEXT, "name of the difficulty"),
        Column("episode", Type.INTEGER, "counted from 0 within the experiment"),
        Column("replicate", Type.INTEGER, "number of the repetition in the same world, from 0"),
        Column("num_turns", Type.INTEGER, "decisions, each with no, one or several calls"),
        Column("state", Type.TEXT, "result, failure or infrastructure", required=True),
        Column(
            "stop_reason",
            Type.TEXT,
            "died: zombie, length, max_turns, step_limit, … or the kind of error",
        ),
        Column("total_reward", Type.DOUBLE, "sum over all steps"),
        Column("num_achievements", Type.INTEGER, "number of different achievements"),
        Column("actions_asked", Type.INTEGER, "actions in the replies"),
        Column("unknown_actions", Type.INTEGER, "actions in the replies that do not exist"),
        Column("no_effect_actions", Type.INTEGER, "actions without effect, while awake"),
        Column("asleep_actions", Type.INTEGER, "actions ignored while asleep"),
        Column("malformed_replies", Type.INTEGER, "replies that could not be parsed"),
        Column("skipped_actions", Type.INTEGER, "not played because the episode had ended"),
        Column("prompt_tokens", Type.BIGINT, "tokens sent, over all calls"),
        Column("completion_tokens", Type.BIGINT, "tokens received, over all calls"),
        Column("cached_tokens", Type.BIGINT, "part of prompt_tokens"),
        Column("reasoning_tokens", Type.BIGINT, "part of completion_tokens"),
        Column("cost_usd", Type.DOUBLE, "NULL if the price of a call is unknown"),
        Column("duration_s", Type.DOUBLE, "time played, over all attempts"),
        Column("ended_at", Type.TIME, "when it ended"),
        Column("attempts", Type.INTEGER, "number of attempts"),
        Column("error_type", Type.TEXT, "class of the error; NULL without one"),
        Column("error_message", Type.TEXT, "message of the error"),
        Column("error_traceback", Type.TEXT, "traceback of the error"),
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
        _id_column("step"),
        _SESSION,
        Column("step_id", Type.TEXT, "step-1, step-2, …"),
        Column("step_index", Type.INTEGER, "counted from 1", required=True),
        Column("timestamp", Type.TIME, "when its turn had been played"),
        Column("num_events", Type.INTEGER, "rows in events"),
        Column("num_messages", Type.INTEGER, "rows in messages"),
        Column("step_metadata", Type.JSON, "unused by assay"),
        _TURN,
        Column("action", Type.TEXT, "the action"),
        Column("no_effect", Type.TEXT, "why it had no effect; NULL if it had one"),
        Column("unlocked", Type.TEXTS, "achievements unlocked for the first time"),
        Column("digest", Type.TEXT, "digest of the state after the step"),
    ),
    key=("session_id", "step_index"),
)

EVENTS = Table(
    "events",
    "A model call (cais), the actions of a turn (runtime), or a step (environment).",
    (
        _id_column("event"),
        _SESSION,
        Column("timestep_id", Type.BIGINT, "its step; for a turn, the first one"),
        Column("event_type", Type.TEXT, "cais, runtime or environment", required=True),
        Column("system_instance_id", Type.TEXT, "the model, the subject or the task"),
        Column("event_time", Type.TIME, "when it ended"),
        Column("message_time", Type.INTEGER, "the turn"),
        Column("span_id", Type.TEXT, "unused by assay"),
        Column("trace_id", Type.TEXT, "unused by assay"),
        Column("model_name", Type.TEXT, "cais: the model"),
        Column("provider", Type.TEXT, "cais: the provider"),
        Column("prompt_tokens", Type.INTEGER, "cais"),
        Column("completion_tokens", Type.INTEGER, "cais"),
        Column("total_tokens", Type.INTEGER, "cais"),
        Column("cost", Type.DOUBLE, "cais: in dollars; NULL if unknown"),
        Column("latency_ms", Type.DOUBLE, "cais: of the attempt that succeeded"),
        Column("reward", Type.DOUBLE, "environment"),
        Column("terminated", Type.BOOLEAN, "environment: the player died"),
        Column("truncated", Type.BOOLEAN, "environment: the episode reached its length"),
        Column("system_state_before", Type.JSON, "unused: states are replayed"),
        Column("system_state_after", Type.JSON, "unused: states are replayed"),
        Column("metadata", Type.JSON, "cais: temperature and other parameters"),
        Column("event_metadata", Type.JSON, "unused: see hook_results"),
        _TURN,
        Column("cached_tokens", Type.INTEGER, "cais"),
        Column("reasoning_tokens", Type.INTEGER, "cais"),
        Column("finish_reason", Type.TEXT, "cais: stop, length, tool_calls, …"),
        Column("waited_ms", Type.DOUBLE, "cais: in the queue and between attempts"),
        Column("retries", Type.INTEGER, "cais"),
        Column("request", Type.INTEGERS, "cais: positions of the messages sent"),
        Column("reply", Type.INTEGER, "cais: position of the reply"),
        Column("asked", Type.TEXTS, "runtime: actions in the reply"),
        Column("unknown", Type.TEXTS, "runtime: actions that do not exist"),
        Column("malformed", Type.TEXT, "runtime: why the reply could not be parsed"),
        Column("skipped", Type.INTEGER, "runtime: actions not played"),
    ),
    key=("id",),
)

MESSAGE_ROWS = Table(
    "message_rows",
    "A message at its position in a session; read it through the view messages.",
    (
        _id_column("message"),
        _SESSION,
        Column("timestep_id", Type.BIGINT, "the step before it; for a reply, the step after"),
        Column("position", Type.INTEGER, "its position in the session", required=True),
        _TURN,
        Column("role", Type.TEXT, "system, user, assistant or tool"),
        Column("message_type", Type.TEXT, "system, observation, tool_call, feedback, …"),
        Column("hash", Type.HASH, "hash of its body", required=True),
        Column("timestamp", Type.TIME, "when it was created"),
        Column("event_time", Type.TIME, "equals timestamp"),
        Column("message_time", Type.INTEGER, "the turn"),
    ),
    key=("session_id", "position"),
)

MESSAGE_BODIES = Table(
    "message_bodies",
    "The content of messages; equal messages share one row.",
    (
        Column("hash", Type.HASH, "hash of the body", required=True),
        Column("body", Type.TEXT, "canonical JSON", required=True),
    ),
    key=("hash",),
)

HOOK_RESULTS = Table(
    "hook_results",
    "One result of a hook.",
    (
        _id_column("result"),
        _SESSION,
        Column("timestep_id", Type.BIGINT, "its step; for a turn, the first one"),
        _TURN,
        Column("step", Type.INTEGER, "the index of the step; NULL for the whole turn"),
        Column("hook_name", Type.TEXT, "the hook", required=True),
        Column("code", Type.TEXT, "one letter for displays"),
        Column("priority", Type.INTEGER, "higher is more important"),
        Column("description", Type.TEXT, "description for people"),
        Column("data", Type.JSON, "further data of the hook"),
    ),
    key=("id",),
)

OUTCOMES = Table(
    "outcomes",
    "The value of one metric for one trial.",
    (
        Column("trial_id", Type.TEXT, "the trial; for episodes, the session", required=True),
        Column("experiment_id", Type.TEXT, "its experiment"),
        Column("subject", Type.TEXT, "the model or agent"),
        Column("task", Type.TEXT, "the task"),
        Column("seed", Type.BIGINT, "the seed"),
        Column("replicate", Type.INTEGER, "number of the repetition in the same world, from 0"),
        Column("metric", Type.TEXT, "name of the metric", required=True),
        Column("value", Type.DOUBLE, "the value"),
    ),
    key=("trial_id", "metric"),
)

PROVIDER_LIMITS = Table(
    "provider_limits",
    "A change of the limit of concurrent calls to a provider.",
    (
        Column("run_id", Type.TEXT, "the run", required=True),
        Column("provider", Type.TEXT, "the provider", required=True),
        Column("changed_at", Type.TIME, "when it changed", required=True),
        Column("connections", Type.INTEGER, "concurrent calls allowed from then on"),
        Column("per_second", Type.DOUBLE, "calls that may start per second; NULL for no limit"),
        Column("pause_s", Type.DOUBLE, "seconds in which no call may start"),
        Column("reason", Type.TEXT, "start, growth, rate_limit, overload, headers, …"),
    ),
    key=("run_id", "provider", "changed_at"),
)

LOOKS = Table(
    "looks",
    "One interim analysis of an --until-decided run: a candidate and the baseline.",
    (
        Column("run_id", Type.TEXT, "the run", required=True),
        Column("experiment_id", Type.TEXT, "the candidate", required=True),
        Column("baseline_id", Type.TEXT, "the experiment it is compared with", required=True),
        Column("metric", Type.TEXT, "the metric", required=True),
        Column("look", Type.INTEGER, "counted from 1", required=True),
        Column("pairs", Type.INTEGER, "pairs of trials so far", required=True),
        Column("estimate", Type.DOUBLE, "mean of candidate minus baseline"),
        Column("low", Type.DOUBLE, "lower bound of the interval, valid at every look"),
        Column("high", Type.DOUBLE, "upper bound of the interval, valid at every look"),
        Column("decision", Type.TEXT, "better, worse, no_difference, undecided or NULL"),
        Column("design", Type.JSON, "boundary, alpha, largest number of pairs, min_effect"),
        Column("looked_at", Type.TIME, "time of the analysis"),
    ),
    key=("run_id", "experiment_id", "metric", "look"),
    since=2,
)

TRAINING_RUNS = Table(
    "training_runs",
    "One training run with one seed.",
    (
        Column("id", Type.TEXT, "the training run", required=True),
        Column("series", Type.TEXT, "its series, if any"),
        Column("subject", Type.TEXT, "the architecture or agent that was trained"),
        Column("task", Type.TEXT, "the task"),
        Column("seed", Type.BIGINT, "the seed; NULL if unknown"),
        Column("status", Type.TEXT, "finished, running or crashed", required=True),
        Column("configuration", Type.JSON, "its settings"),
        Column("provenance", Type.JSON, "versions and commit"),
        Column("created_at", Type.TIME, "when it started, or was imported", required=True),
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
        # An old name: everywhere else, run_id refers to the table runs.
        Column("run_id", Type.TEXT, "the id in training_runs, not in runs", required=True),
        Column("step", Type.BIGINT, "steps of the environment so far", required=True),
        Column("metric", Type.TEXT, "name of the metric", required=True),
        Column("value", Type.DOUBLE, "the value"),
    ),
    key=("run_id", "step", "metric"),
    since=2,
)

ANALYSIS_PLANS = Table(
    "analysis_plans",
    "A pre-registered plan of an analysis.",
    (
        Column("hash", Type.TEXT, "hash of the plan", required=True),
        Column("plan", Type.JSON, "metric, summary, test, alpha, runs", required=True),
        Column("created_at", Type.TIME, "when it was first stored", required=True),
        Column("seen", Type.JSON, "runs or experiments that already had data"),
    ),
    key=("hash",),
    checked=True,
    since=2,
)

ANALYSIS_LOOKS = Table(
    "analysis_looks",
    "One interim analysis (`assay analysis`) of the difference of two sets of training runs.",
    (
        Column("id", Type.TEXT, "hash of metric, summary and runs", required=True),
        Column("metric", Type.TEXT, "the metric", required=True),
        Column("summary", Type.JSON, "how a curve was reduced to a number", required=True),
        Column("control", Type.TEXTS, "ids in training_runs, sorted", required=True),
        Column("candidate", Type.TEXTS, "ids in training_runs, sorted", required=True),
        Column("look", Type.INTEGER, "counted from 1", required=True),
        Column("alpha", Type.DOUBLE, "of this interval alone, two-sided", required=True),
        Column("estimate", Type.DOUBLE, "mean of candidate minus control"),
        Column("low", Type.DOUBLE, "lower bound of its interval, or NULL"),
        Column("high", Type.DOUBLE, "upper bound of its interval, or NULL"),
        Column("verdict", Type.TEXT, "higher, lower, undecided or unknown"),
        Column("plan", Type.TEXT, "hash of the plan that includes it, or NULL"),
        Column("looked_at", Type.TIME, "time of the analysis", required=True),
    ),
    key=("id",),
    checked=True,
    since=6,
)

DATASET_WORLDS = Table(
    "dataset_worlds",
    "A world of a training data set, used for training or held out.",
    (
        Column("dataset", Type.TEXT, "start of the SHA-256 of the data", required=True),
        Column("name", Type.TEXT, "name of the data file"),
        Column("task", Type.TEXT, "crafter/<difficulty> for Crafter episodes", required=True),
        Column("seed", Type.BIGINT, "seed of the world", required=True),
        Column("split", Type.TEXT, "train or holdout", required=True),
        Column("created_at", Type.TIME, "when the data was created", required=True),
    ),
    key=("dataset", "task", "seed"),
    since=4,
)

FINETUNE_FILES = Table(
    "finetune_files",
    "A data file that was uploaded to a fine-tuning service.",
    (
        Column("address", Type.TEXT, "the service", required=True),
        Column("sha256", Type.TEXT, "SHA-256 of the file", required=True),
        Column("file_id", Type.TEXT, "its id at the service", required=True),
        Column("name", Type.TEXT, "its local name"),
        Column("bytes", Type.BIGINT, "its size"),
        Column("uploaded_at", Type.TIME, "time of the upload", required=True),
    ),
    key=("address", "sha256"),
    since=5,
)

FINETUNE_JOBS = Table(
    "finetune_jobs",
    "One fine-tuning job: a model and a data file.",
    (
        Column("id", Type.TEXT, "its id at the service", required=True),
        Column("address", Type.TEXT, "the service", required=True),
        Column("backend", Type.TEXT, "openai, synth or local", required=True),
        Column("model", Type.TEXT, "the model that is fine-tuned", required=True),
        Column("suffix", Type.TEXT, "the part of the result's name that the user chose"),
        Column("status", Type.TEXT, "as the service reports it: running, succeeded, …"),
        Column("result_model", Type.TEXT, "the new model; NULL until it succeeded"),
        Column("error", Type.TEXT, "why it failed"),
        Column("data", Type.TEXT, "the data file"),
        Column("data_sha256", Type.TEXT, "SHA-256 of the rows used"),
        Column("rows", Type.INTEGER, "number of rows used"),
        Column("subset_of", Type.INTEGER, "rows of the whole file; NULL if all are used"),
        Column("tokens", Type.BIGINT, "estimated tokens per epoch"),
        Column("validation", Type.TEXT, "the validation file; NULL if there is none"),
        Column("validation_sha256", Type.TEXT, "SHA-256 of the validation file"),
        Column("hyperparameters", Type.JSON, "as sent to the service"),
        Column("seed", Type.BIGINT, "seed of the subset, also sent to the service"),
        Column("lineage", Type.JSON, "facts about all rows from the data manifest"),
        Column("provenance", Type.JSON, "versions and commit of the program"),
        Column("command", Type.TEXT, "the command line"),
        Column("history", Type.JSON, "each status, and when it was first observed"),
        Column("trained_tokens", Type.BIGINT, "tokens counted by the service"),
        Column(
            "created_at", Type.TIME, "when it started, by the service's clock", required=True
        ),
        Column("finished_at", Type.TIME, "when it ended, by the service's clock"),
    ),
    key=("address", "id"),
    since=5,
)

FINETUNE_EVENTS = Table(
    "finetune_events",
    "An event of a fine-tuning job, such as a step with its loss.",
    (
        Column("address", Type.TEXT, "the service", required=True),
        Column("job_id", Type.TEXT, "the job", required=True),
        Column("id", Type.TEXT, "its id at the service", required=True),
        Column("position", Type.INTEGER, "its index in the job, from 0"),
        Column("created_at", Type.TIME, "time by the service's clock"),
        Column("level", Type.TEXT, "info, warn or error"),
        Column("message", Type.TEXT, "text of the event"),
        Column("step", Type.INTEGER, "the training step, if any"),
        Column("total_steps", Type.INTEGER, "total number of steps"),
        Column("metrics", Type.JSON, "values at the step: train_loss, valid_loss, …"),
    ),
    key=("address", "job_id", "id"),
    since=5,
)

SESSION_NOTES = Table(
    "session_notes",
    "A person's note on a session.",
    (
        Column("id", Type.TEXT, "the note", required=True),
        _SESSION,
        Column("step", Type.INTEGER, "the step it is about; NULL for the whole session"),
        Column("text", Type.TEXT, "the note's text", required=True),
        Column("created_at", Type.TIME, "when it was written", required=True),
    ),
    key=("id",),
    since=7,
)

SESSION_LABELS = Table(
    "session_labels",
    "A person's label of a session: keep, drop, or another word.",
    (
        _SESSION,
        Column("label", Type.TEXT, "the label", required=True),
        Column("created_at", Type.TIME, "when it was set", required=True),
    ),
    key=("session_id", "label"),
    since=7,
)

SESSION_TABLES = (SESSION_TIMESTEPS, EVENTS, MESSAGE_ROWS, HOOK_RESULTS)
"""Tables whose rows belong to one session, by `session_id`."""

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
    SESSION_NOTES,
    SESSION_LABELS,
)
"""All tables, each after the tables it refers to."""


@cache
def table(name: str) -> Table:
    """Return the table with this name."""
    return next(table for table in TABLES if table.name == name)


@cache
def arrow_schema(name: str) -> pa.Schema:
    """Return the Arrow schema of a table."""
    return pa.schema([(column.name, column.type.arrow) for column in table(name).columns])

"""The views of a database: the stable interface for queries by users.

Views are recreated whenever a file is migrated, so their SQL may change with the tables.
"""

from dataclasses import dataclass

from assay.store.schema import COPIED

COPIED_CALL = f"coalesce(contains(metadata::VARCHAR, '\"{COPIED}\":'), false)"
"""SQL condition for a row of `events` that is a call made, and paid for, in another session.

It searches the text, because parsing the JSON of every call would dominate the query time.
"""


@dataclass(frozen=True, slots=True)
class StoreView:
    """A view with descriptions of its rows and columns."""

    name: str
    doc: str
    columns: tuple[tuple[str, str], ...]
    """Name and description of each column, in order."""
    sql: str

    def ddl(self, schema: str = "main") -> str:
        """Return CREATE VIEW; DuckDB checks the number of columns."""
        names = ", ".join(f'"{name}"' for name, _ in self.columns)
        return f"CREATE OR REPLACE VIEW {schema}.{self.name} ({names}) AS {self.sql}"


MESSAGES = StoreView(
    "messages",
    "One message of a session.",
    (
        ("id", "computed from the session and the position"),
        ("session_id", "the session"),
        ("timestep_id", "the step before it; for a reply, the step after"),
        ("message_type", "system, observation, tool_call, feedback, …"),
        ("content", "the whole message as JSON text, with tool calls"),
        ("timestamp", "when it was created"),
        ("event_time", "equals timestamp"),
        ("message_time", "equals turn"),
        ("position", "its position in the session"),
        ("turn", "the turn"),
        ("role", "system, user, assistant or tool"),
        ("hash", "hash of the content"),
        ("text", "its text, without tool calls"),
    ),
    """
    SELECT r.id, r.session_id, r.timestep_id, r.message_type, b.body, r.timestamp,
           r.event_time, r.message_time, r.position, r.turn, r.role, r.hash,
           json_extract_string(b.body, '$.content')
    FROM message_rows r LEFT JOIN message_bodies b ON b.hash = r.hash
    """,
)

EPISODES = StoreView(
    "episodes",
    "One session, with its experiment.",
    (
        ("session_id", "the session"),
        ("experiment_id", "its experiment"),
        ("experiment_name", "series, version and counter"),
        ("series", "name common to all versions of the experiment"),
        ("version", "version of the experiment in its series"),
        ("run_id", "its run"),
        ("model", "the model or agent"),
        ("task", "crafter/<difficulty> for Crafter episodes"),
        ("difficulty", "name of the difficulty"),
        ("seed", "seed of the world"),
        ("episode", "counted from 0 within the experiment"),
        ("replicate", "number of the repetition in the same world, from 0"),
        ("state", "result, failure or infrastructure"),
        ("stop_reason", "died: zombie, length, max_turns, step_limit, … or the kind of error"),
        ("reward", "sum over all steps"),
        ("num_achievements", "number of different achievements"),
        ("steps", "steps of the environment"),
        ("turns", "decisions, each with no, one or several model calls"),
        ("duration_s", "time played"),
        ("actions_asked", "actions in the replies"),
        ("unknown_actions", "actions in the replies that do not exist"),
        ("no_effect_actions", "actions without effect, while awake"),
        ("asleep_actions", "actions ignored while asleep"),
        ("malformed_replies", "replies that could not be parsed"),
        ("skipped_actions", "actions not played because the episode had ended"),
        ("invalid_rate", "share of actions_asked that are unknown or have no effect"),
        ("prompt_tokens", "tokens sent"),
        ("completion_tokens", "tokens received"),
        ("cached_tokens", "part of prompt_tokens"),
        ("reasoning_tokens", "part of completion_tokens"),
        ("cost_usd", "NULL if the price of a call is unknown"),
        ("created_at", "when it started"),
        ("ended_at", "when it ended"),
        ("attempts", "number of attempts"),
        ("error_type", "class of the error; NULL without one"),
        ("error_message", "message of the error"),
        ("verifiable", "whether every step has a digest"),
        ("source", "assay, or the format it was imported from"),
        ("baseline", "whether it is a baseline that was added automatically"),
    ),
    """
    SELECT s.session_id, s.experiment_id, e.name, e.series, e.version, s.run_id, s.subject,
           s.task, s.difficulty, s.seed, s.episode, s.replicate, s.state, s.stop_reason,
           s.total_reward, s.num_achievements, s.num_timesteps, s.num_turns, s.duration_s,
           s.actions_asked, s.unknown_actions, s.no_effect_actions, s.asleep_actions,
           s.malformed_replies, s.skipped_actions,
           (s.unknown_actions + s.no_effect_actions) / nullif(s.actions_asked, 0)::DOUBLE,
           s.prompt_tokens, s.completion_tokens, s.cached_tokens, s.reasoning_tokens,
           s.cost_usd, s.created_at, s.ended_at, s.attempts, s.error_type, s.error_message,
           s.verifiable, s.source,
           coalesce(json_extract_string(e.tags, '$.baseline') = 'true', false)
    FROM session_traces s LEFT JOIN experiments e ON e.id = s.experiment_id
    """,
)

MODEL_USAGE = StoreView(
    "model_usage",
    "All calls of one model in one experiment, without those a fork copied from its parent.",
    (
        ("experiment_id", "the experiment"),
        ("experiment_name", "series, version and counter"),
        ("model_name", "the model"),
        ("provider", "the provider"),
        ("calls", "number of calls"),
        ("prompt_tokens", "tokens sent"),
        ("completion_tokens", "tokens received"),
        ("total_tokens", "tokens sent and received"),
        ("cached_tokens", "part of prompt_tokens"),
        ("reasoning_tokens", "part of completion_tokens"),
        ("cost_usd", "cost of the calls whose price is known"),
        ("unpriced_calls", "calls whose price is unknown"),
        ("latency_ms_mean", "mean latency of the attempts that succeeded"),
        ("latency_ms_p50", "median latency"),
        ("latency_ms_p95", "95th percentile of the latency"),
        ("waited_ms", "time in the queue and between attempts"),
        ("retries", "attempts that failed"),
    ),
    """
    SELECT s.experiment_id, any_value(e.name), v.model_name, v.provider, count(*),
           sum(v.prompt_tokens)::BIGINT, sum(v.completion_tokens)::BIGINT,
           sum(v.total_tokens)::BIGINT, sum(v.cached_tokens)::BIGINT,
           sum(v.reasoning_tokens)::BIGINT, sum(v.cost), count(*) - count(v.cost),
           avg(v.latency_ms), quantile_cont(v.latency_ms, 0.5),
           quantile_cont(v.latency_ms, 0.95), sum(v.waited_ms), sum(v.retries)::BIGINT
    FROM events v JOIN session_traces s USING (session_id)
    LEFT JOIN experiments e ON e.id = s.experiment_id
    WHERE v.event_type = 'cais' AND NOT {copied}
    GROUP BY s.experiment_id, v.model_name, v.provider
    """.format(copied=COPIED_CALL.replace("metadata", "v.metadata")),
)

ACHIEVEMENTS = StoreView(
    "achievements",
    "An achievement unlocked in a session.",
    (
        ("session_id", "the session"),
        ("experiment_id", "its experiment"),
        ("model", "the model or agent"),
        ("seed", "seed of the world"),
        ("achievement", "its name"),
        ("step", "the step in which it was unlocked"),
        ("turn", "the turn in which it was unlocked"),
    ),
    """
    SELECT s.session_id, s.experiment_id, s.subject, s.seed, u.achievement, u.step, u.turn
    FROM (
        SELECT session_id, unnest(unlocked) AS achievement, step_index AS step, turn
        FROM session_timesteps WHERE len(unlocked) > 0
    ) u JOIN session_traces s USING (session_id)
    """,
)

TURNS = StoreView(
    "turns",
    "One turn: the request, the reply and the result.",
    (
        ("session_id", "the session"),
        ("turn", "counted from 1"),
        ("experiment_id", "its experiment"),
        ("model", "the model or agent"),
        ("seed", "seed of the world"),
        ("asked", "actions in the reply"),
        ("unknown", "actions in the reply that do not exist"),
        ("malformed", "why the reply could not be parsed; NULL if it could"),
        ("skipped", "actions not played because the episode had ended"),
        ("steps", "number of steps"),
        ("reward", "sum over these steps"),
        ("prompt_tokens", "tokens sent, over the calls of the turn; NULL if it has none"),
        ("completion_tokens", "tokens received"),
        ("cost_usd", "NULL if the price of a call is unknown"),
        ("latency_ms", "latency of the attempts that succeeded"),
        ("waited_ms", "time in the queue and between attempts"),
        ("retries", "attempts that failed"),
        ("finish_reason", "of its last call: stop, length, tool_calls, …"),
        ("reply_text", "text of the reply in its last call"),
        ("reply_arguments", "arguments of the first tool call in that reply, as JSON text"),
        ("ended", "whether the episode ended in this turn"),
        ("event_time", "when the turn ended"),
        ("calls", "number of model calls"),
    ),
    """
    SELECT t.session_id, t.turn, s.experiment_id, s.subject, s.seed, t.asked, t.unknown,
           t.malformed, t.skipped, t.steps, t.reward, t.prompt_tokens, t.completion_tokens,
           t.cost, t.latency_ms, t.waited_ms, t.retries, t.finish_reason,
           json_extract_string(b.body, '$.content'),
           json_extract_string(b.body, '$.tool_calls[0].function.arguments'),
           t.ended, t.event_time, t.calls
    FROM (
        SELECT session_id, turn,
               any_value(asked) AS asked, any_value("unknown") AS "unknown",
               any_value(malformed) AS malformed, any_value(skipped) AS skipped,
               count(*) FILTER (event_type = 'environment') AS steps,
               coalesce(sum(reward), 0) AS reward,
               count(*) FILTER (event_type = 'cais') AS calls,
               sum(prompt_tokens)::BIGINT AS prompt_tokens,
               sum(completion_tokens)::BIGINT AS completion_tokens,
               if(count(cost) = calls, sum(cost), NULL) AS cost,
               sum(latency_ms) AS latency_ms, sum(waited_ms) AS waited_ms,
               sum(retries)::BIGINT AS retries, arg_max(finish_reason, id) AS finish_reason,
               max(reply) AS reply,
               coalesce(bool_or(terminated OR truncated), false) AS ended,
               max(event_time) AS event_time
        FROM events GROUP BY session_id, turn
    ) t
    JOIN session_traces s USING (session_id)
    LEFT JOIN message_rows r ON r.session_id = t.session_id AND r.position = t.reply
    LEFT JOIN message_bodies b ON b.hash = r.hash
    """,
)

THROTTLING = StoreView(
    "throttling",
    "A session whose calls waited 10 ms or more on average, and how the provider was limited.",
    (
        ("session_id", "the session"),
        ("experiment_id", "its experiment"),
        ("model", "the model or agent"),
        ("provider", "the provider"),
        ("calls", "calls of the session"),
        ("waited_s", "seconds in the queue and between attempts"),
        ("retries", "attempts that failed"),
        ("rejections", "times the limit was lowered during the session (rate limit, overload)"),
        ("fewest_connections", "lowest limit during the session; NULL if it did not change"),
    ),
    """
    SELECT c.session_id, s.experiment_id, s.subject, c.provider, c.calls, c.waited_s,
           c.retries, count(l.changed_at) FILTER (l.reason IN ('rate_limit', 'overload')),
           min(l.connections)
    FROM (
        SELECT session_id, provider, count(*) AS calls, sum(waited_ms) / 1000 AS waited_s,
               sum(retries)::BIGINT AS retries
        FROM events WHERE event_type = 'cais' GROUP BY session_id, provider
        HAVING avg(waited_ms) >= 10
    ) c
    JOIN session_traces s USING (session_id)
    LEFT JOIN provider_limits l ON l.run_id = s.run_id AND l.provider = c.provider
         AND l.changed_at BETWEEN s.created_at AND s.ended_at
    GROUP BY ALL
    """,
)

VIEWS = (MESSAGES, EPISODES, MODEL_USAGE, ACHIEVEMENTS, TURNS, THROTTLING)
"""All views."""

"""The views of a store: what people query, and what stays when tables change.

Views are made anew whenever a file is brought to a newer version, so that they may change.
"""

from dataclasses import dataclass

from assay.store.schema import COPIED

COPIED_CALL = f"coalesce(contains(metadata::VARCHAR, '\"{COPIED}\":'), false)"
"""Whether a row of `events` is a call that was made, and paid, in another session.

A search in the text: to parse the JSON of every call takes longer than all else.
"""


@dataclass(frozen=True, slots=True)
class StoreView:
    """A view, what a row of it is, and what its columns mean."""

    name: str
    doc: str
    columns: tuple[tuple[str, str], ...]
    """The name and the meaning of each column, in their order."""
    sql: str

    def ddl(self, schema: str = "main") -> str:
        """CREATE VIEW, with the names of the columns checked by DuckDB."""
        names = ", ".join(f'"{name}"' for name, _ in self.columns)
        return f"CREATE OR REPLACE VIEW {schema}.{self.name} ({names}) AS {self.sql}"


MESSAGES = StoreView(
    "messages",
    "One message of a session.",
    (
        ("id", "follows from the session and the position"),
        ("session_id", "the session"),
        ("timestep_id", "the step before it; of an answer the one after"),
        ("message_type", "system, observation, tool_call, feedback, …"),
        ("content", "the whole message as JSON text, tool calls included"),
        ("timestamp", "when it was made"),
        ("event_time", "the same"),
        ("message_time", "the turn"),
        ("position", "in the session"),
        ("turn", "the turn"),
        ("role", "system, user, assistant or tool"),
        ("hash", "of the content"),
        ("text", "what it says, without tool calls"),
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
        ("series", "what one follows over time"),
        ("version", "of the series"),
        ("run_id", "its run"),
        ("model", "who played"),
        ("task", "for episodes crafter/<difficulty>"),
        ("difficulty", "its name"),
        ("seed", "of the world"),
        ("episode", "counted from 0 within the experiment"),
        ("replicate", "0 unless a world is played again"),
        ("state", "result, failure or infrastructure"),
        ("stop_reason", "died: zombie, length, max_turns, step_limit, … or the kind of error"),
        ("reward", "the sum over all steps"),
        ("num_achievements", "different ones"),
        ("steps", "of the environment"),
        ("turns", "calls of the model"),
        ("duration_s", "time played"),
        ("actions_asked", "actions the answers asked for"),
        ("unknown_actions", "those among them that do not exist"),
        ("no_effect_actions", "played without effect, while awake"),
        ("asleep_actions", "ignored while asleep"),
        ("malformed_replies", "answers that could not be read"),
        ("skipped_actions", "not played, because the episode had ended"),
        ("invalid_rate", "unknown and without effect, as a share of those asked for"),
        ("prompt_tokens", "sent"),
        ("completion_tokens", "received"),
        ("cached_tokens", "part of prompt_tokens"),
        ("reasoning_tokens", "part of completion_tokens"),
        ("cost_usd", "NULL if the price of a call is not known"),
        ("created_at", "when it began"),
        ("ended_at", "when it ended"),
        ("attempts", "how often it was started"),
        ("error_type", "NULL if nothing went wrong"),
        ("error_message", "what the error said"),
        ("verifiable", "whether every step has a digest"),
        ("source", "assay, or the format it was imported from"),
        ("baseline", "whether it was played only to compare with"),
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
    "All calls of one model in one experiment; those that forks have in common are not in it.",
    (
        ("experiment_id", "the experiment"),
        ("experiment_name", "series, version and counter"),
        ("model_name", "who was asked"),
        ("provider", "who answered"),
        ("calls", "how often"),
        ("prompt_tokens", "sent"),
        ("completion_tokens", "received"),
        ("total_tokens", "both"),
        ("cached_tokens", "part of prompt_tokens"),
        ("reasoning_tokens", "part of completion_tokens"),
        ("cost_usd", "of the calls whose price is known"),
        ("unpriced_calls", "calls whose price is not known"),
        ("latency_ms_mean", "of the attempts that succeeded"),
        ("latency_ms_p50", "half were faster"),
        ("latency_ms_p95", "95 of 100 were faster"),
        ("waited_ms", "for turns, and between attempts"),
        ("retries", "attempts that did not succeed"),
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
    "An achievement that a session reached for the first time.",
    (
        ("session_id", "the session"),
        ("experiment_id", "its experiment"),
        ("model", "who reached it"),
        ("seed", "of the world"),
        ("achievement", "its name"),
        ("step", "in which step"),
        ("turn", "in which turn"),
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
    "One turn: what the model was asked and answered, and what came of it.",
    (
        ("session_id", "the session"),
        ("turn", "counted from 1"),
        ("experiment_id", "its experiment"),
        ("model", "who played"),
        ("seed", "of the world"),
        ("asked", "actions the answer asked for"),
        ("unknown", "those that do not exist"),
        ("malformed", "what was wrong with the answer; NULL if nothing"),
        ("skipped", "actions not played, because the episode had ended"),
        ("steps", "steps made"),
        ("reward", "the sum over these steps"),
        ("prompt_tokens", "sent, over the calls of the turn; NULL if it has none"),
        ("completion_tokens", "received"),
        ("cost_usd", "NULL if the price of a call is not known"),
        ("latency_ms", "of the attempts that succeeded"),
        ("waited_ms", "for a turn, and between attempts"),
        ("retries", "attempts that did not succeed"),
        ("finish_reason", "of its last call: stop, length, tool_calls, …"),
        ("reply_text", "what the model said in its last call"),
        ("reply_arguments", "the arguments of the first tool call in it, as JSON text"),
        ("ended", "whether the world came to its end in this turn"),
        ("event_time", "when the turn was over"),
        ("calls", "calls of the model, 0 if it was not asked"),
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
    "A session whose calls waited 10 ms or more on average, and what the provider did.",
    (
        ("session_id", "the session"),
        ("experiment_id", "its experiment"),
        ("model", "who played"),
        ("provider", "who answered"),
        ("calls", "calls of the session"),
        ("waited_s", "seconds of waiting for turns and between attempts"),
        ("retries", "attempts that did not succeed"),
        ("rejections", "times the provider was given less while the session was played"),
        ("fewest_connections", "the least it was given then; NULL if nothing changed"),
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

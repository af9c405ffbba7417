/** Lists of runs and of episodes, with filters; every state of a list is in its address. */
import {episodeLink, formatCost, formatNumber, formatPercent, formatSeconds, formatTime, h, pageLink, queryString, replace, select, stateBadge, table} from "./parts.js";
import {source} from "./source.js";

const PAGE_ROWS = 50;
const RUN_FILTERS = ["status", "model", "text"];
const EPISODE_FILTERS = ["run", "experiment", "model", "task", "difficulty", "seed", "state", "ended", "reached", "missed", "label", "text", "parent",
  "min_reward", "max_reward", "min_steps", "max_steps", "min_cost", "max_cost", "min_waste", "max_waste", "min_retries", "min_unusable", "since", "until", "baselines"];
const NUMBER_FILTERS = [["min_reward", "Reward at least"], ["max_reward", "Reward at most"], ["min_steps", "Steps at least"], ["max_steps", "Steps at most"],
  ["min_cost", "Dollars at least"], ["max_cost", "Dollars at most"], ["min_waste", "Waste at least (0–1)"], ["max_waste", "Waste at most (0–1)"],
  ["min_retries", "Retries at least"], ["min_unusable", "Unusable replies at least"]];
/** @type {[string, string][]} */
const COLUMNS = [["created_at", "Recorded"], ["model", "Model"], ["seed", "World"], ["achievements", "Achievements"], ["reward", "Reward"],
  ["steps", "Steps"], ["turns", "Turns"], ["waste", "Waste"], ["cost_usd", "Cost"], ["retries", "Retries"], ["unusable", "Unusable"], ["duration_s", "Time"]];

/**
 * @param {HTMLElement} el
 * @param {URLSearchParams} query
 */
export async function runsPage(el, query) {
  const offset = Number(query.get("offset") || 0);
  const filters = Object.fromEntries(RUN_FILTERS.map((name) => [name, query.get(name) || ""]));
  const answer = await source.json(`/api/runs?${queryString({offset, limit: PAGE_ROWS, ...filters})}`);
  const go = (/** @type {Record<string, any>} */ changes) => { location.hash = pageLink("runs", {...filters, ...changes}); };
  replace(el, h("h1", {}, "Runs"),
    h("form", {class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault()},
      select("Status", [["", "any"], "running", "finished", "incomplete", "interrupted"], filters.status, (status) => go({status})),
      textField("Model", filters.model, (model) => go({model})), textField("Command contains", filters.text, (text) => go({text}))),
    table(`${formatNumber(answer.total)} runs, the newest first`, ["Run", "Status", "Started", "Results", "Failures", "Infrastructure errors", "Running", "Cost", "Models"],
      answer.rows.map((/** @type {any} */ run) => [h("a", {href: pageLink("", {run: run.id})}, run.id), run.status, formatTime(run.created_at),
        run.result, run.failure, run.infrastructure, run.running, formatCost(run.cost_usd), modelList(run)])),
    pager("runs", filters, offset, answer.total));
}

/** @param {any} run */
function modelList(run) {
  return h("ul", {class: "plain"}, run.models.map((/** @type {any} */ model) => h("li", {class: model.baseline && "dim"},
    h("a", {href: pageLink("episodes", {run: run.id, experiment: model.experiment})}, model.model),
    ` ${formatNumber(model.mean)}`, model.low !== null && h("span", {class: "soft"}, ` [${formatNumber(model.low)}, ${formatNumber(model.high)}]`),
    h("span", {class: "soft"}, ` ${model.metric ?? ""}, ${model.result}${model.planned ? ` of ${model.planned}` : ""}`))));
}

/**
 * @param {HTMLElement} el
 * @param {URLSearchParams} query
 */
export async function episodesPage(el, query) {
  const offset = Number(query.get("offset") || 0);
  const sort = query.get("sort") || "-created_at";
  const filters = Object.fromEntries(EPISODE_FILTERS.map((name) => [name, query.get(name) || ""]));
  const [answer, session] = await Promise.all([
    source.json(`/api/episodes?${queryString({...filters, sort, offset: String(offset), limit: PAGE_ROWS})}`), source.json("/api/session")]);
  const go = (/** @type {Record<string, any>} */ changes) => { location.hash = pageLink("episodes", {...filters, sort, ...changes}); };
  const choice = (/** @type {string} */ name, /** @type {string} */ label, /** @type {any[]} */ values) =>
    select(label, [["", "any"], ...values.map((value) => /** @type {[string, string]} */ ([String(value), String(value)]))], filters[name], (value) => go({[name]: value}));
  const {counts, facets} = answer;
  replace(el, h("h1", {}, "Episodes"),
    h("form", {class: "filters", onsubmit: (/** @type {Event} */ event) => event.preventDefault()},
      choice("model", "Model", facets.model), choice("task", "Task", facets.task), choice("seed", "Seed", facets.seed),
      choice("state", "State", ["result", "failure", "infrastructure", "running"]), choice("ended", "Ended by", facets.ended),
      choice("reached", "Reached", session.easiest_first), choice("missed", "Missed", session.easiest_first), choice("label", "Label", facets.label ?? []),
      h("details", {open: NUMBER_FILTERS.some(([name]) => filters[name])}, h("summary", {}, "More filters"),
        NUMBER_FILTERS.map(([name, label]) => textField(label, filters[name], (value) => go({[name]: value}), "number")),
        textField("Note contains", filters.text, (text) => go({text})), textField("Run", filters.run, (run) => go({run})))),
    h("p", {class: "soft"}, `${counts.result} results, ${counts.failure} failures, ${counts.infrastructure} infrastructure errors, ${counts.running} running. `,
      h("a", {href: pageLink("episodes")}, "Clear all filters")),
    table(`${formatNumber(answer.total)} episodes`, [...COLUMNS.map(([name, label]) => sortLink(name, label, sort, go)), "State", "Ended by", "Labels"],
      answer.rows.map((/** @type {any} */ row) => [h("a", {href: episodeLink(row.id)}, formatTime(row.created_at)), row.model, `${row.task}\u00a0${row.seed}`,
        formatNumber(row.achievements), formatNumber(row.reward, 1), formatNumber(row.steps), formatNumber(row.turns), formatPercent(row.waste),
        formatCost(row.cost_usd), formatNumber(row.retries), formatNumber(row.unusable), formatSeconds(row.duration_s), stateBadge(row.state), row.stop_reason ?? "-", (row.labels ?? []).join(", ")])),
    pager("episodes", {...filters, sort}, offset, answer.total));
}

/**
 * @param {string} name
 * @param {string} label
 * @param {string} sort
 * @param {(changes: Record<string, any>) => void} go
 */
function sortLink(name, label, sort, go) {
  const mark = sort === name ? " ▲" : sort === `-${name}` ? " ▼" : "";
  return h("button", {type: "button", class: "link", onclick: () => go({sort: sort === `-${name}` ? name : `-${name}`})}, `${label}${mark}`);
}

/**
 * @param {string} label
 * @param {string} value
 * @param {(value: string) => void} onChange
 */
export function textField(label, value, onChange, type = "text") {
  return h("label", {class: "field"}, label, " ", h("input", {type, value, step: "any", onchange: (/** @type {any} */ event) => onChange(event.target.value)}));
}

/**
 * @param {string} page
 * @param {Record<string, any>} query
 * @param {number} offset
 * @param {number} total
 */
export function pager(page, query, offset, total, rows = PAGE_ROWS) {
  if (total <= rows) return null;
  return h("nav", {class: "links", "aria-label": "Pages"},
    offset > 0 && h("a", {href: pageLink(page, {...query, offset: Math.max(0, offset - rows) || ""})}, "Previous"),
    h("span", {class: "soft"}, `${offset + 1} to ${Math.min(total, offset + rows)} of ${formatNumber(total)}`),
    offset + rows < total && h("a", {href: pageLink(page, {...query, offset: offset + rows})}, "Next"));
}

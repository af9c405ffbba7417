/** One episode: the player, then everything that is known about it. */
import {LocalModel} from "./model.js";
import {commandLine, copyButton, episodeLink, formatCost, formatNumber, formatPercent, formatSeconds, h, pageLink, replace, stateBadge, table} from "./parts.js";
import {player} from "./player.js";
import {shareAddress, source} from "./source.js";
import {roundSteps} from "./wall.js";

const MESSAGE_PAGE = 200;
const SPEED = 5;

/**
 * Load what the player needs of an episode.
 *
 * @param {any} episode
 * @param {number} step
 */
export async function loadEpisodeModel(episode, step) {
  const path = `/api/episodes/${encodeURIComponent(episode.id)}`;
  const none = new ArrayBuffer(0);
  const [film, sprites, lights, messages] = await Promise.all([
    episode.film.frames ? source.bytes(`${path}/film`).catch(() => none) : none,
    source.bytes("/api/sprites?unit=16").catch(() => none),
    source.bytes(`/api/lights?steps=${roundSteps(episode.steps)}`).catch(() => none),
    loadMessages(path, messageStart(episode, step))]);
  const model = new LocalModel({episode, messages, film, sprites, lights, map: null, step, playing: false, speed: SPEED, unit: 16, theme: "auto"});
  model.on("change:wanted", async () => {
    const more = await loadMessages(path, Math.max(0, model.get("wanted") - MESSAGE_PAGE / 2));
    const known = new Map(model.get("messages").map((/** @type {any} */ message) => [message.position, message]));
    for (const message of more) known.set(message.position, message);
    model.set("messages", [...known.values()].sort((one, other) => one.position - other.position));
  });
  model.on("change:wantsMap", async () => model.set("map", await source.bytes(`${path}/map`)));
  return model;
}

/**
 * @param {string} path
 * @param {number} start
 */
async function loadMessages(path, start) {
  const range = source.live ? `from=${start}&limit=${MESSAGE_PAGE}` : "from=0&limit=100000";
  try {
    return (await source.json(`${path}/messages?${range}`)).messages;
  } catch {
    return [];
  }
}

/**
 * Return the position of the first message to load for a step.
 *
 * @param {any} episode
 * @param {number} step
 */
function messageStart(episode, step) {
  const turn = episode.step_rows.turn[Math.min(step, episode.step_rows.turn.length - 1)] ?? 1;
  const row = episode.turn_rows.find((/** @type {any} */ each) => each.turn === turn);
  return Math.max(0, (row?.calls[0]?.request[0] ?? 0) - MESSAGE_PAGE / 2);
}

/**
 * @param {HTMLElement} el
 * @param {URLSearchParams} query
 * @param {string[]} names
 */
export async function episodePage(el, query, [id]) {
  const [episode, session] = await Promise.all([source.json(`/api/episodes/${encodeURIComponent(id)}`), source.json("/api/session")]);
  const turn = Number(query.get("turn") || 0);
  const row = turn && episode.turn_rows.find((/** @type {any} */ each) => each.turn === turn);
  const step = query.has("step") ? Number(query.get("step")) : row && row.first !== null ? row.first - 1 : 0;
  const model = await loadEpisodeModel(episode, step);
  const place = h("div", {});
  replace(el,
    h("h1", {}, `${episode.model} in ${episode.task}, seed ${episode.seed}`),
    h("p", {class: "facts"}, stateBadge(episode.state), replayBadge(episode.replay), ` ${formatNumber(episode.achievements)} achievements, reward ${formatNumber(episode.reward, 1)}, ${formatNumber(episode.steps)} steps, ${formatNumber(episode.turns)} turns, ${episode.stop_reason ?? "running"}`),
    episode.error && h("div", {class: "notice warning"}, h("strong", {}, episode.error.type), " ", episode.error.message),
    siblingLinks(episode),
    place,
    h("div", {class: "links"}, copyButton(shareAddress, "Copy link to this moment"), session.writable && source.live && h("a", {href: pageLink("play", {episode: episode.id, step}), class: "play-on"}, "Play on from this step by hand")),
    session.writable && source.live && forkControls(episode, session, model),
    episode.coding && h("section", {class: "coding"}),
    callTable(episode), unlockedTable(episode), outcomeTable(episode),
    session.writable && source.live ? annotations(episode) : null,
    h("section", {}, h("h2", {}, "Commands"), Object.entries(episode.commands).map(([name, command]) => [h("h3", {}, name), commandLine(/** @type {string} */ (command))])));
  const stopPlayer = player.render({model, el: place});
  model.on("change:step", () => {
    history.replaceState(null, "", episodeLink(episode.id, {step: model.get("step")}));
    const on = el.querySelector(".play-on");
    on?.setAttribute("href", pageLink("play", {episode: episode.id, step: model.get("step")}));
  });
  const stopKeys = forwardKeys(place);
  if (episode.coding) showCoding(/** @type {HTMLElement} */ (el.querySelector(".coding")), episode.id);
  return () => { stopPlayer(); stopKeys(); };
}

/**
 * Send keys pressed anywhere on the page to the player.
 *
 * @param {HTMLElement} place
 */
export function forwardKeys(place) {
  const forward = (/** @type {KeyboardEvent} */ event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (place.contains(target) || target.matches("input, select, textarea, button, a, summary")) return;
    const copy = new KeyboardEvent("keydown", {key: event.key, ctrlKey: event.ctrlKey, metaKey: event.metaKey, altKey: event.altKey, bubbles: true, cancelable: true});
    if (!place.querySelector(".player")?.dispatchEvent(copy)) event.preventDefault();
  };
  document.addEventListener("keydown", forward);
  return () => document.removeEventListener("keydown", forward);
}

/** @param {any} replay */
function replayBadge(replay) {
  const texts = /** @type {Record<string, string>} */ ({same: "replays exactly", different: "does not replay", unverifiable: "cannot be verified"});
  const detail = replay.difference?.text ?? replay.reason ?? `${formatNumber(replay.steps)} steps were replayed when this page was opened, and every state was the same.`;
  return h("span", {class: `badge ${replay.finding}`, title: detail}, texts[replay.finding], replay.finding !== "same" && h("span", {}, `: ${detail}`));
}

/** @param {any} episode */
function siblingLinks(episode) {
  if (!episode.siblings.length) return null;
  return h("nav", {class: "links", "aria-label": "The same world"}, h("span", {class: "soft"}, "The same world:"),
    h("a", {href: pageLink("race", {run: episode.run, task: episode.task, seed: episode.seed})}, "race"),
    episode.siblings.map((/** @type {any} */ other) => h("a", {href: pageLink(`pair/${episode.id}/${other.id}`)}, `${other.model} (${formatNumber(other.achievements ?? other.reward)})`)));
}

/** @param {any} episode */
function callTable(episode) {
  const rows = episode.turn_rows.flatMap((/** @type {any} */ turn) => turn.calls.map((/** @type {any} */ call) => [
    h("a", {href: episodeLink(episode.id, {turn: turn.turn})}, String(turn.turn)), formatNumber(call.prompt), formatNumber(call.completion), formatNumber(call.cached), formatNumber(call.reasoning),
    formatSeconds(call.latency_s), formatSeconds(call.waited_s), call.retries, formatCost(call.cost_usd), turn.malformed ?? (turn.unknown.length ? `unknown: ${turn.unknown.join(", ")}` : "-"),
    turn.hooks.map((/** @type {any} */ hook) => hook.description).join("; ")]));
  if (!rows.length) return null;
  const retries = episode.turn_rows.flatMap((/** @type {any} */ turn) => turn.calls).reduce((/** @type {number} */ sum, /** @type {any} */ call) => sum + call.retries, 0);
  return h("details", {}, h("summary", {}, `Calls: ${rows.length} with ${retries} retries, ${formatNumber(episode.tokens)} tokens, ${formatCost(episode.cost_usd)}`),
    table("Calls of the model", ["Turn", "Prompt", "Completion", "Cached", "Reasoning", "Latency", "Waited", "Retries", "Cost", "Unusable", "Hooks"], rows));
}

/** @param {any} episode */
function unlockedTable(episode) {
  if (!episode.unlocked.length) return null;
  return h("details", {}, h("summary", {}, `Achievements: ${episode.unlocked.length}`), table("Achievements", ["Achievement", "Step", "Turn"],
    episode.unlocked.map((/** @type {any} */ row) => [h("a", {href: episodeLink(episode.id, {step: row.step})}, row.achievement), row.step, row.turn])));
}

/** @param {any} episode */
function outcomeTable(episode) {
  return h("details", {}, h("summary", {}, "Metrics"), table("Metrics", ["Metric", "Value"],
    Object.entries(episode.outcomes).map(([name, value]) => [name, formatNumber(/** @type {number} */ (value), 4)])), h("p", {class: "soft"}, `Waste: ${formatPercent(episode.waste)}`));
}

/**
 * @param {any} episode
 * @param {any} session
 * @param {LocalModel} model
 */
function forkControls(episode, session, model) {
  if (!episode.film.frames) return null;
  const said = h("span", {class: "soft", role: "status"});
  return h("p", {class: "links"}, h("span", {class: "soft"}, "What if, from this step on:"), session.policies.map((/** @type {string} */ policy) =>
    h("button", {type: "button", onclick: async () => {
      said.textContent = "Playing …";
      try {
        const {session: fork} = await source.send("POST", "/api/fork", {episode: episode.id, step: model.get("step"), policy});
        location.hash = pageLink(`pair/${episode.id}/${fork}`, {step: model.get("step")});
      } catch (error) {
        said.textContent = /** @type {Error} */ (error).message;
      }
    }}, policy)), said);
}

/** @param {any} episode */
function annotations(episode) {
  const section = h("section", {}, h("h2", {}, "Labels and notes"));
  const path = `/api/episodes/${encodeURIComponent(episode.id)}`;
  const said = h("p", {class: "soft", role: "status"});
  const attempt = async (/** @type {() => Promise<void>} */ action) => {
    try {
      await action();
      said.textContent = "Stored.";
    } catch (error) {
      said.textContent = /** @type {Error} */ (error).message;
    }
  };
  const labels = h("input", {type: "text", value: (episode.labels ?? []).join(" "), placeholder: "keep, drop or your own"});
  const notes = h("ul", {});
  const showNote = (/** @type {any} */ note) => {
    const item = h("li", {}, note.step !== null && h("a", {href: episodeLink(episode.id, {step: note.step})}, `step ${note.step}`), " ", h("span", {dir: "auto"}, note.text), " ",
      h("button", {type: "button", class: "link", onclick: () => attempt(async () => {
        await source.send("DELETE", `${path}/notes/${encodeURIComponent(note.id)}`, {});
        item.remove();
      })}, "delete"));
    notes.append(item);
  };
  (episode.notes ?? []).forEach(showNote);
  const text = h("textarea", {rows: 2, "aria-label": "New note"});
  section.append(
    h("form", {class: "filters", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      attempt(async () => {
        const answer = await source.send("PUT", `${path}/labels`, {labels: labels.value.split(/[\s,]+/).filter(Boolean)});
        labels.value = answer.labels.join(" ");
      });
    }}, h("label", {class: "field"}, "Labels ", labels), h("button", {type: "submit"}, "Store labels")),
    notes,
    h("form", {class: "filters", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      attempt(async () => {
        const step = Number(new URLSearchParams(location.hash.split("?")[1]).get("step"));
        showNote(await source.send("POST", `${path}/notes`, {text: text.value, step: Number.isFinite(step) ? step : null}));
        text.value = "";
      });
    }}, text, h("button", {type: "submit"}, "Add a note at this step")), said);
  return section;
}

/**
 * Show what a coding trial left: tests, patch, terminal and the grader's output.
 *
 * @param {HTMLElement} el
 * @param {string} id
 */
async function showCoding(el, id) {
  const trial = await source.json(`/api/episodes/${encodeURIComponent(id)}/coding`);
  const failed = trial.tests.filter((/** @type {any} */ test) => test.outcome !== "passed");
  replace(el, h("h2", {}, `Tests: ${trial.tests.length - failed.length} of ${trial.tests.length} passed`),
    table("Tests", ["Test", "Outcome", "Message"], [...failed, ...trial.tests.filter((/** @type {any} */ test) => test.outcome === "passed")].map((test) =>
      [test.name, h("span", {class: `state ${test.outcome === "passed" ? "result" : "failure"}`}, test.outcome), h("pre", {dir: "auto"}, test.message ?? "")])),
    trial.patch && h("details", {open: true}, h("summary", {}, "Patch"), h("pre", {class: "patch"}, trial.patch.map((/** @type {any} */ line) =>
      [line.map((/** @type {any} */ [kind, text]) => h("span", {class: kind}, text)), "\n"]))),
    h("details", {}, h("summary", {}, "Terminal"), trial.terminal.map((/** @type {any} */ entry) => h("pre", {dir: "auto"}, `$ ${entry.command}\n${entry.output}`))),
    trial.grader && h("details", {}, h("summary", {}, "Grader's output"), h("pre", {dir: "auto"}, trial.grader)));
}

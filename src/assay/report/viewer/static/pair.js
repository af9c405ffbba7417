/** Two episodes next to each other, in lockstep, from the step where they part. */
import {forwardKeys, loadEpisodeModel} from "./episode.js";
import {episodeLink, formatNumber, h, pageLink, replace, table} from "./parts.js";
import {player} from "./player.js";
import {source} from "./source.js";

/**
 * @param {HTMLElement} el
 * @param {URLSearchParams} query
 * @param {string[]} names
 */
export async function pairPage(el, query, [first, second]) {
  const [pair, one, other] = await Promise.all([source.json(`/api/pair?a=${encodeURIComponent(first)}&b=${encodeURIComponent(second)}`),
    source.json(`/api/episodes/${encodeURIComponent(first)}`), source.json(`/api/episodes/${encodeURIComponent(second)}`)]);
  const start = query.has("step") ? Number(query.get("step")) : Math.max(0, (pair.parts_at ?? 1) - 1);
  const models = await Promise.all([loadEpisodeModel(one, start), loadEpisodeModel(other, start)]);
  const places = [h("div", {}), h("div", {})];
  const cost = h("p", {role: "status"});
  replace(el, h("h1", {}, `${one.model} and ${other.model}`),
    h("p", {class: "soft"}, `${one.task}, seed ${one.seed}`), h("p", {class: "notice callout"}, pair.same_world ? pair.sentence : pair.reason),
    h("p", {class: "links"}, h("a", {href: pageLink("race", {episodes: `${one.id},${other.id}`})}, "Race on one map"),
      pair.parts_at !== null && source.live && h("button", {type: "button", onclick: () => showCost(cost, one.id, other.id)}, "What did it cost?")), cost,
    h("div", {class: "pair"}, [one, other].map((episode, index) => h("section", {},
      h("h2", {}, h("a", {href: episodeLink(episode.id)}, episode.model), h("span", {class: "soft"}, ` ${formatNumber(episode.achievements ?? episode.reward)}`)), places[index]))),
    pair.achievements.length > 0 && table("Achievements by step", ["Achievement", one.model, other.model],
      pair.achievements.map((/** @type {any} */ row) => [row.achievement, formatNumber(row.a), formatNumber(row.b)])));
  const stops = models.map((model, index) => player.render({model, el: places[index]}));
  // Each follows the other; setting an equal value does nothing, so this ends.
  models.forEach((model, index) => {
    const partner = models[1 - index];
    for (const name of ["step", "speed"]) model.on(`change:${name}`, () => partner.set(name, model.get(name)));
    model.on("change:step", () => history.replaceState(null, "", pageLink(`pair/${first}/${second}`, {step: model.get("step")})));
  });
  const stopKeys = forwardKeys(places[one.steps >= other.steps ? 0 : 1]);
  return () => { stops.forEach((stop) => stop()); stopKeys(); };
}

/**
 * @param {HTMLElement} el
 * @param {string} a
 * @param {string} b
 */
async function showCost(el, a, b) {
  el.textContent = "Playing 32 futures from each side …";
  try {
    el.textContent = (await source.send("POST", "/api/cost", {a, b})).sentence;
  } catch (error) {
    el.textContent = /** @type {Error} */ (error).message;
  }
}

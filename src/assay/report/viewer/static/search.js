/** Search over all messages; each hit opens its episode at that step. */
import {episodeLink, formatNumber, h, notice, pageLink, queryString, replace} from "./parts.js";
import {pager} from "./runs.js";
import {source} from "./source.js";

const SEARCH_ROWS = 50;

/**
 * @param {HTMLElement} el
 * @param {URLSearchParams} query
 */
export async function searchPage(el, query) {
  const words = query.get("q") || "";
  const offset = Number(query.get("offset") || 0);
  const input = h("input", {type: "search", value: words, "aria-label": "Words in messages", autofocus: true});
  const results = h("div", {});
  replace(el, h("h1", {}, "Search"),
    h("form", {class: "filters", role: "search", onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      location.hash = pageLink("search", {q: input.value, run: query.get("run")});
    }}, input, h("button", {type: "submit"}, "Search all messages")), results);
  if (!words) return;
  const answer = await source.json(`/api/search?${queryString({q: words, offset, limit: SEARCH_ROWS, run: query.get("run") || ""})}`);
  replace(results, answer.total === 0 ? notice(`No message contains "${words}".`)
    : h("p", {class: "soft"}, `${formatNumber(answer.total)} messages`),
    h("ul", {class: "hits"}, answer.rows.map((/** @type {any} */ row) => h("li", {},
      h("a", {href: episodeLink(row.episode, {step: row.step})}, `${row.model}, seed ${row.seed}, step ${row.step}`), h("span", {class: "soft"}, ` ${row.role}`),
      h("p", {dir: "auto"}, row.before, h("mark", {}, row.hit), row.after)))),
    pager("search", {q: words, run: query.get("run")}, offset, answer.total, SEARCH_ROWS));
}

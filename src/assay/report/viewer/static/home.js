/** The first screen: the verdict on the latest run, its leaderboard and its wall. */
import {tableBlock} from "./blocks.js";
import {commandLine, formatCost, formatTime, h, notice, pageLink, replace} from "./parts.js";
import {source} from "./source.js";
import {wallElement} from "./wall.js";

/**
 * @param {HTMLElement} el
 * @param {URLSearchParams} query
 */
export async function homePage(el, query) {
  const run = query.get("run");
  const home = await source.json(`/api/home${run ? `?run=${encodeURIComponent(run)}` : ""}`);
  if (!home.run) {
    replace(el, h("h1", {}, "assay view"), notice(home.hint || "There are no episodes yet."));
    return () => {};
  }
  const wall = home.wall && wallElement(home.wall);
  replace(el,
    h("h1", {}, run ? `Run ${home.run.id}` : "Latest run"),
    home.verdict ? h("p", {class: `notice lead callout ${home.verdict.verdict}`}, home.verdict.sentence) : notice(home.verdict_reason || "", "callout"),
    home.verdict && home.verdict.all.length > 1 && h("details", {}, h("summary", {}, "All candidates"), h("ul", {}, home.verdict.all.map((/** @type {string} */ text) => h("li", {}, text)))),
    home.leaderboard && tableBlock(home.leaderboard),
    h("p", {class: "links"}, h("a", {href: pageLink("compare", {names: home.run.id})}, "Compare in detail"), h("a", {href: pageLink("episodes", {run: home.run.id})}, "All episodes")),
    wall && wall.element,
    runFacts(home.run));
  return () => wall?.stop();
}

/** @param {any} run */
export function runFacts(run) {
  return h("section", {}, h("h2", {}, "About this run"),
    h("dl", {}, h("dt", {}, "Run"), h("dd", {}, run.id), h("dt", {}, "Status"), h("dd", {}, run.status),
      h("dt", {}, "Started"), h("dd", {}, formatTime(run.created_at)),
      h("dt", {}, "Episodes"), h("dd", {}, `${run.result} results, ${run.failure} failures, ${run.infrastructure} infrastructure errors${run.running ? `, ${run.running} running` : ""}`),
      h("dt", {}, "Cost"), h("dd", {}, formatCost(run.cost_usd))),
    run.command && commandLine(run.command));
}

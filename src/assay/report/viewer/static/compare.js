/** What `assay compare` says, with every figure alive: a dot opens its pair. */
import {blockElement} from "./blocks.js";
import {commandLine, errorNotice, figureElement, h, pageLink, queryString, replace, select} from "./parts.js";
import {source} from "./source.js";

/**
 * @param {HTMLElement} el
 * @param {URLSearchParams} query
 */
export async function comparePage(el, query) {
  const chosen = Object.fromEntries(["names", "baseline", "metric", "seeds"].map((name) => [name, query.get(name) || ""]));
  const search = queryString(chosen).replaceAll("%2C", ",");
  const report = await source.json(`/api/compare?${search}`);
  const go = (/** @type {Record<string, string>} */ changes) => { location.hash = pageLink("compare", {...chosen, ...changes}); };
  replace(el, h("h1", {}, report.title),
    report.running && h("p", {class: "notice warning"}, "This run is still in progress: counts and means only, no verdict."),
    report.exploratory && h("p", {class: "notice warning"}, `Exploratory: ${report.exploratory_reason}. There are intervals and no verdict.`),
    report.summary.map((/** @type {string} */ sentence) => h("p", {class: "notice callout lead"}, sentence)),
    source.live && h("div", {class: "filters"},
      select("Metric", report.metrics, report.metric, (metric) => go({metric})),
      select("Baseline", report.subjects.map((/** @type {any} */ subject) => /** @type {[string, string]} */ ([subject.id, subject.name])), report.baseline, (baseline) => go({baseline}))),
    report.sections.map((/** @type {any} */ section) => sectionElement(section, report, search)),
    h("section", {}, h("h2", {}, "The command"), commandLine(report.command)));
}

/**
 * @param {any} section
 * @param {any} report
 * @param {string} search
 */
function sectionElement(section, report, search) {
  const figures = h("div", {});
  const load = async () => {
    if (!section.figures || figures.childElementCount) return;
    try {
      const answer = await source.json(`/api/figures?${search}&section=${encodeURIComponent(section.title)}`);
      replace(figures, answer.figures.map((/** @type {any} */ figure) => figureBlock(figure, report)));
    } catch (error) {
      replace(figures, errorNotice(/** @type {Error} */ (error)));
    }
  };
  const content = [section.blocks.map(blockElement), figures];
  if (!section.folded) {
    load();
    return h("section", {}, h("h2", {}, section.title), content);
  }
  return h("details", {ontoggle: load}, h("summary", {}, h("h2", {}, section.title)), content);
}

/**
 * @param {any} figure
 * @param {any} report
 */
function figureBlock(figure, report) {
  const svg = figureElement(figure.svg);
  for (const mark of svg.querySelectorAll("[data-pair], [data-achievement]")) {
    const href = markLink(/** @type {SVGElement} */ (mark), report);
    if (!href) continue;
    mark.setAttribute("tabindex", "0");
    mark.setAttribute("role", "link");
    mark.classList.add("alive");
    const open = () => { location.hash = href; };
    mark.addEventListener("click", open);
    mark.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") open(); });
  }
  return h("figure", {}, svg, h("figcaption", {}, h("strong", {}, figure.title), figure.note),
    figure.table && h("details", {}, h("summary", {}, "Data"), blockElement(figure.table)));
}

/**
 * @param {SVGElement} mark
 * @param {any} report
 */
function markLink(mark, report) {
  const {pair, achievement, subject} = mark.dataset;
  if (pair) {
    const row = report.contrasts.flatMap((/** @type {any} */ contrast) => contrast.pairs).find((/** @type {any} */ each) => each.pair === pair);
    return row?.a && row?.b ? pageLink(`pair/${row.a}/${row.b}`) : null;
  }
  const experiment = report.subjects.find((/** @type {any} */ each) => each.name === subject)?.id;
  return pageLink("episodes", {experiment, reached: achievement});
}

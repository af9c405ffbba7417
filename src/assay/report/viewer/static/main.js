/** The router: the address after "#" names a page and its state, in the viewer and in exports. */
import {comparePage} from "./compare.js";
import {episodePage} from "./episode.js";
import {homePage} from "./home.js";
import {pairPage} from "./pair.js";
import {errorNotice, h, pageLink, replace} from "./parts.js";
import {playPage} from "./play.js";
import {racePage} from "./race.js";
import {episodesPage, runsPage} from "./runs.js";
import {searchPage} from "./search.js";
import {source, takeToken} from "./source.js";

/** @type {Record<string, (el: HTMLElement, query: URLSearchParams, names: string[]) => Promise<void | (() => void)>>} */
const PAGES = {
  "": homePage, run: (el, query, [run]) => homePage(el, new URLSearchParams({run})), runs: runsPage, episodes: episodesPage, episode: episodePage,
  pair: pairPage, race: racePage, compare: comparePage, search: searchPage, play: playPage,
};
const LIVE_PAGES = ["", "run", "runs", "episodes"];
const LINKS = [["", "Latest run"], ["runs", "Runs"], ["episodes", "Episodes"], ["search", "Search"], ["play", "Play"]];

/** @type {(() => void) | null} */
let leavePage = null;
let visit = 0;

/** @param {boolean} [quiet] whether the page stays as it is until the new one is there */
async function showPage(quiet = false) {
  const page = /** @type {HTMLElement} */ (document.getElementById("page"));
  const [path, search = ""] = (location.hash.replace(/^#\/?/, "") || "").split("?");
  const [name, ...names] = path.split("/").map(decodeURIComponent);
  const mine = ++visit;
  const el = h("div", {class: "content"});
  // Filled outside of the document first: a page that is shown never jumps or stays half empty.
  if (!quiet) page.setAttribute("aria-busy", "true");
  let leave;
  try {
    const open = PAGES[name];
    if (open) leave = await open(el, new URLSearchParams(search), names);
    else replace(el, h("p", {class: "notice"}, `There is no page "${name}". `, h("a", {href: "#/"}, "Open the latest run")));
  } catch (error) {
    replace(el, errorNotice(/** @type {Error} */ (error)), h("p", {}, h("a", {href: "#/"}, "Open the latest run")));
  }
  if (mine !== visit) {
    leave?.();
    return;
  }
  leavePage?.();
  leavePage = leave || null;
  page.removeAttribute("aria-busy");
  replace(page, header(name), el);
  document.title = `${el.querySelector("h1")?.textContent || "assay"} · assay view`;
  if (!quiet) window.scrollTo(0, 0);
}

/** @param {string} current */
function header(current) {
  const links = source.live ? LINKS : LINKS.slice(0, 1);
  return h("header", {class: "top"}, h("a", {href: "#/", class: "brand"}, "assay"),
    h("nav", {"aria-label": "Pages"}, links.map(([name, text]) => h("a", {href: pageLink(name), "aria-current": name === current ? "page" : null}, text))));
}

async function startViewer() {
  takeToken();
  if (source.live) {
    try {
      const session = await source.json("/api/session");
      source.pageToken = session.page_token;
      source.events((event) => {
        const name = location.hash.replace(/^#\/?/, "").split(/[?/]/)[0];
        if (event === "stored" && LIVE_PAGES.includes(name) && !document.hidden) showPage(true);
      }, new AbortController().signal);
    } catch {
      // The page that is opened next says why.
    }
  } else if (!location.hash && source.data) location.hash = source.data.entry;
  window.addEventListener("hashchange", () => showPage());
  await showPage();
}

startViewer();

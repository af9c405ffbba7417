/**
 * Elements and texts that all pages share. Text becomes text nodes and nothing else: what
 * models wrote is never parsed as HTML.
 *
 * @typedef {Node | string | number | null | undefined | false | Part[]} Part
 */

/**
 * Create an element. A function value becomes a listener ("onclick"), true an empty attribute;
 * null, undefined and false leave the attribute out.
 *
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Part} children
 * @returns {any}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "value") /** @type {any} */ (element).value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Part[]} children
 */
export function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(element, child);
    else if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
}

/**
 * @param {Element} element
 * @param {...Part} children
 */
export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/**
 * Format a number as the terminal does: "-" if it is missing.
 *
 * @param {number | null | undefined} value
 * @param {number} [digits]
 */
export function formatNumber(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  return value.toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

/** @param {number | null | undefined} share */
export function formatPercent(share) {
  return share === null || share === undefined ? "-" : `${(100 * share).toFixed(1)} %`;
}

/** @param {number | null | undefined} dollars */
export function formatCost(dollars) {
  if (dollars === null || dollars === undefined) return "-";
  return dollars === 0 ? "$0" : `$${dollars < 0.01 ? dollars.toPrecision(2) : dollars.toFixed(2)}`;
}

/** @param {number | null | undefined} seconds */
export function formatSeconds(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  return seconds < 60 ? `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`
    : `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/**
 * Format a time as the terminal does: "2026-11-18 13:00 UTC".
 *
 * @param {string | null | undefined} time
 */
export function formatTime(time) {
  return time ? `${time.slice(0, 16).replace("T", " ")} UTC` : "-";
}

/**
 * Build the address of a page from its parts; empty values are left out.
 *
 * @param {string} page
 * @param {Record<string, any>} [query]
 */
export function pageLink(page, query = {}) {
  const search = queryString(query);
  return `#/${page}${search ? `?${search}` : ""}`;
}

/** @param {Record<string, any>} query */
export function queryString(query) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
}

/** @param {string} id */
export function episodeLink(id, query = {}) {
  return pageLink(`episode/${encodeURIComponent(id)}`, query);
}

/**
 * @param {() => string} read returns the text when the button is pressed
 * @param {string} label
 */
export function copyButton(read, label = "Copy") {
  const button = h("button", {
    type: "button",
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(read());
        button.textContent = "Copied";
      } catch {
        button.textContent = "Copying is not allowed here";
      }
      setTimeout(() => { button.textContent = label; }, 1500);
    },
  }, label);
  return button;
}

/** @param {string} command */
export function commandLine(command) {
  return h("div", {class: "command"}, h("code", {}, command), copyButton(() => command));
}

/**
 * Create a table. A cell is a part or [part, {class: ...}]; columns of numbers are aligned right.
 *
 * @param {string} caption
 * @param {Part[]} heads
 * @param {Part[][]} rows
 */
export function table(caption, heads, rows, dim = new Set()) {
  const numeric = heads.map((_, column) => rows.length > 0 && rows.every((row) => isNumeric(row[column])));
  return h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, heads.map((head, column) =>
        h("th", {scope: "col", class: numeric[column] && "n"}, head)))),
      h("tbody", {}, rows.map((row, index) => h("tr", {class: dim.has(index) && "dim"},
        row.map((cell, column) => h(column ? "td" : "th", {scope: column ? null : "row", class: numeric[column] && "n"}, cell)))))));
}

/** @param {Part} part */
function isNumeric(part) {
  const text = part instanceof Node ? part.textContent || "" : String(part ?? "");
  return !/^\d{4}-\d\d/.test(text) && /^\s*(?:[-+±<>≤≥~≈$(\[]\s*)*\d|^\s*-?\s*$/.test(text);
}

/**
 * @param {string} text
 * @param {string} [tone]
 */
export function notice(text, tone = "plain") {
  return h("p", {class: `notice ${tone}`}, text);
}

/** @param {Error & {hint?: string}} error */
export function errorNotice(error) {
  return h("div", {class: "notice warning", role: "alert"}, error.message || String(error));
}

/**
 * Create a labelled select element.
 *
 * @param {string} label
 * @param {(string | [string, string])[]} options
 * @param {string} chosen
 * @param {(value: string) => void} onChange
 */
export function select(label, options, chosen, onChange) {
  return h("label", {class: "field"}, label, " ",
    h("select", {onchange: (/** @type {any} */ event) => onChange(event.target.value)},
      options.map((option) => {
        const [value, text] = Array.isArray(option) ? option : [option, option];
        return h("option", {value, selected: value === chosen}, text);
      })));
}

/**
 * @param {string} label
 * @param {boolean} checked
 * @param {(checked: boolean) => void} onChange
 */
export function checkbox(label, checked, onChange) {
  return h("label", {class: "field"},
    h("input", {type: "checkbox", checked, onchange: (/** @type {any} */ event) => onChange(event.target.checked)}), " ", label);
}

/**
 * Show a badge for the state of an episode: a result, a failure or an infrastructure error.
 *
 * @param {string | null} state
 */
export function stateBadge(state) {
  return h("span", {class: `state ${state || "running"}`}, state || "running");
}

/**
 * Draw one of the project's own figures. The text comes from the server's own figures, and
 * everything that could run is removed all the same.
 *
 * @param {string} svg
 */
export function figureElement(svg) {
  const policy = trustedPolicy();
  const parsed = new DOMParser().parseFromString(/** @type {any} */ (policy ? policy.createHTML(svg) : svg), "image/svg+xml");
  for (const element of parsed.querySelectorAll("script, foreignObject, parsererror")) element.remove();
  for (const element of parsed.querySelectorAll("*")) {
    for (const {name} of [...element.attributes]) {
      if (name.startsWith("on")) element.removeAttribute(name);
    }
  }
  return document.importNode(/** @type {any} */ (parsed.documentElement), true);
}

/** @type {{createHTML: (text: string) => string} | null | undefined} */
let figurePolicy;

function trustedPolicy() {
  if (figurePolicy === undefined) {
    const types = /** @type {any} */ (window).trustedTypes;
    figurePolicy = types ? types.createPolicy("assay-svg", {createHTML: (/** @type {string} */ text) => text}) : null;
  }
  return figurePolicy;
}

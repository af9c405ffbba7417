/** Blocks of a report: the same texts and tables that the terminal and the HTML report have. */
import {h, notice, table} from "./parts.js";

/** @param {any} block */
export function blockElement(block) {
  if (block.kind === "text") return notice(block.text, block.tone);
  if (block.kind === "items") {
    return h("div", {class: `notice ${block.tone}`}, block.title && h("strong", {}, block.title), h("ul", {}, block.items.map((/** @type {string} */ item) => h("li", {}, item))));
  }
  if (block.kind === "answers") {
    return h("dl", {class: "answers"}, block.items.map((/** @type {any} */ item) => [h("dt", {}, item.question), h("dd", {}, item.answer)]));
  }
  if (block.kind === "table") return tableBlock(block);
  return null;
}

/** @param {any} block */
export function tableBlock(block) {
  const rows = block.rows.map((/** @type {any[]} */ row) => row.map((cell) =>
    cell.beside ? h("span", {}, cell.value, " ", h("span", {class: "soft"}, cell.beside)) : cell.value));
  return h("div", {}, table(block.caption || "", block.heads, rows, new Set(block.dim || [])), block.note && h("p", {class: "soft"}, block.note));
}

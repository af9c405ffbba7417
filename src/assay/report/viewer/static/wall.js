/**
 * The wall: one column per world, one row per model, every episode a miniature film. All films
 * run in lockstep and turn grey where their episode ended.
 */
import {episodeLink, formatNumber, h, pageLink, replace} from "./parts.js";
import {source} from "./source.js";
import {decodeFilms, decodeLights, decodeSprites, Painter} from "./tiles.js";

const WALL_UNIT = 8;
const WALL_FRAMES = 60;
const WALL_SECONDS = 20;

/**
 * Build the wall. Returns its element and a function that stops the films.
 *
 * @param {any} wall
 */
export function wallElement(wall) {
  const cells = /** @type {any[]} */ (wall.cells.flat().filter((/** @type {any} */ cell) => cell?.film));
  /** @type {Map<string, HTMLCanvasElement>} */
  const canvases = new Map(cells.map((cell) => [cell.id, h("canvas", {class: "miniature", width: 72, height: 56, "aria-hidden": "true"})]));
  const state = {step: 0, playing: !matchMedia("(prefers-reduced-motion: reduce)").matches, stopped: false};
  const range = h("input", {type: "range", min: 0, max: wall.steps, value: 0, "aria-label": "Step of all episodes", class: "scrub",
    oninput: () => { state.step = Number(range.value); state.playing = false; button.textContent = "Play"; }});
  const button = h("button", {type: "button", onclick: () => {
    state.playing = !state.playing;
    button.textContent = state.playing ? "Pause" : "Play";
  }}, state.playing ? "Pause" : "Play");
  const counter = h("span", {class: "soft"});
  const grid = h("table", {class: "wall"},
    h("caption", {}, `Every episode, world by world; the largest loss of ${wall.candidate ?? "the candidate"} in ${wall.metric} first`),
    h("thead", {}, h("tr", {}, h("th", {scope: "col"}, "Model"), wall.worlds.map((/** @type {any} */ world) =>
      h("th", {scope: "col"}, h("a", {href: pageLink("race", {run: wall.run, task: world.task, seed: world.seed})}, `seed ${world.seed}`),
        world.difference !== null && h("span", {class: "soft"}, ` ${world.difference > 0 ? "+" : ""}${formatNumber(world.difference, 1)}`))))),
    h("tbody", {}, wall.models.map((/** @type {any} */ model, /** @type {number} */ row) =>
      h("tr", {}, h("th", {scope: "row"}, model.model, h("span", {class: "soft"}, ` ${formatNumber(model.mean)}`)),
        wall.cells[row].map((/** @type {any} */ cell, /** @type {number} */ column) => h("td", {}, cell && wallCell(wall, cell, row, column, canvases.get(cell.id))))))));
  const element = h("section", {class: "wall-section"}, h("h2", {}, "Wall"),
    h("div", {class: "controls"}, button, range, counter), h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Wall of episodes"}, grid),
    wall.left_out > 0 && h("p", {class: "soft"}, `${wall.left_out} more worlds are not shown here.`));
  play(wall, cells, canvases, state, (step) => {
    range.value = String(step);
    counter.textContent = `step ${step} of ${wall.steps}`;
  }).catch((error) => replace(counter, error.message));
  return {element, stop: () => { state.stopped = true; }};
}

/**
 * @param {any} wall
 * @param {any} cell
 * @param {number} row
 * @param {number} column
 * @param {HTMLCanvasElement | undefined} canvas
 */
function wallCell(wall, cell, row, column, canvas) {
  const partner = partnerOf(wall, row, column);
  const href = partner ? pageLink(`pair/${partner.id}/${cell.id}`) : episodeLink(cell.id);
  const text = `${formatNumber(cell.value)}${cell.died ? " †" : ""}`;
  return h("a", {href, class: "cell", "aria-label": `${wall.models[row].model}, seed ${wall.worlds[column].seed}: ${wall.metric} ${formatNumber(cell.value)}, ${cell.steps} steps, ${cell.stop_reason ?? cell.state}`},
    canvas, h("span", {}, text));
}

/**
 * Return the episode to show next to a cell: the baseline's in the same world, or the candidate's.
 *
 * @param {any} wall
 * @param {number} row
 * @param {number} column
 */
function partnerOf(wall, row, column) {
  const wanted = wall.models[row].model === wall.baseline ? wall.candidate : wall.baseline;
  const other = wall.models.findIndex((/** @type {any} */ model) => model.model === wanted);
  return other < 0 || other === row ? null : wall.cells[other][column];
}

/**
 * @param {any} wall
 * @param {any[]} cells
 * @param {Map<string, HTMLCanvasElement>} canvases
 * @param {{step: number, playing: boolean, stopped: boolean}} state
 * @param {(step: number) => void} onStep
 */
async function play(wall, cells, canvases, state, onStep) {
  if (cells.length === 0) return;
  const [sprites, lights, films] = await Promise.all([
    source.bytes(`/api/sprites?unit=${WALL_UNIT}`).then(decodeSprites),
    source.bytes(`/api/lights?steps=${roundSteps(wall.steps)}`).then(decodeLights),
    source.bytes(`/api/films?episodes=${cells.map((cell) => cell.id).join(",")}&frames=${WALL_FRAMES}`).then(decodeFilms)]);
  const painters = cells.map((cell, index) => {
    const film = films[index];
    return film && {film, shown: -1, painter: new Painter(/** @type {HTMLCanvasElement} */ (canvases.get(cell.id)), sprites, lights, {inventory: false})};
  });
  let before = performance.now();
  let exact = state.step;
  let drawn = -1;
  const tick = (/** @type {number} */ now) => {
    if (state.stopped) return;
    if (state.playing) {
      exact = (Math.abs(exact - state.step) > 1 ? state.step : exact) + ((now - before) / 1000) * (wall.steps / WALL_SECONDS);
      if (exact > wall.steps * 1.15) exact = 0;
      state.step = Math.min(wall.steps, Math.floor(exact));
    } else exact = state.step;
    before = now;
    if (state.step !== drawn) {
      drawn = state.step;
      onStep(drawn);
      for (const each of painters) {
        if (!each) continue;
        const over = drawn > each.film.lastStep;
        const index = over ? each.film.length : Math.min(Math.floor(drawn / each.film.every), each.film.length - 1);
        if (index === each.shown) continue;
        each.shown = index;
        each.painter.draw(each.film.frame(Math.min(index, each.film.length - 1)), Math.min(drawn, each.film.lastStep), over);
      }
    }
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}

/** @param {number} steps */
export function roundSteps(steps) {
  return Math.max(1000, Math.ceil(steps / 1000) * 1000);
}

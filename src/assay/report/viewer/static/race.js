/** All episodes of one world on one map: trails in lockstep, flags, and marks of death. */
import {checkbox, copyButton, episodeLink, formatNumber, h, pageLink, replace, table} from "./parts.js";
import {shareAddress, source} from "./source.js";
import {decodeSprites, drawMap, MAP_SIZE} from "./tiles.js";

const RACE_UNIT = 16;
const RACE_SECONDS = 20;
const CLICK_CELLS = 1.5;

/**
 * @param {HTMLElement} el
 * @param {URLSearchParams} query
 */
export async function racePage(el, query) {
  const names = query.get("episodes") ? `episodes=${encodeURIComponent(query.get("episodes") || "")}`
    : ["run", "task", "seed"].map((name) => `${name}=${encodeURIComponent(query.get(name) || "")}`).join("&");
  const [race, packed] = await Promise.all([source.json(`/api/race?${names}`), source.bytes(`/api/sprites?unit=${RACE_UNIT}`)]);
  const view = new RaceView(race, await decodeSprites(packed), query);
  replace(el, h("h1", {}, `Race: ${race.task}, seed ${race.seed}`), view.element,
    race.left_out.length > 0 && h("p", {class: "soft"}, `Left out: ${race.left_out.map((/** @type {any} */ each) => `${each.id} (${each.reason})`).join("; ")}`));
  view.start();
  return () => view.stop();
}

class RaceView {
  /**
   * @param {any} race
   * @param {import("./tiles.js").Sprites} sprites
   * @param {URLSearchParams} query
   */
  constructor(race, sprites, query) {
    this.race = race;
    race.episodes.sort((/** @type {any} */ one, /** @type {any} */ other) => (other.achievements ?? other.reward) - (one.achievements ?? one.reward));
    this.query = query;
    this.last = Math.max(0, ...race.episodes.map((/** @type {any} */ episode) => episode.trail.length / 2 - 1));
    this.step = Math.min(this.last, Number(query.get("step") || this.last));
    this.playing = false;
    /** @type {Set<string>} */
    this.hidden = new Set();
    this.timer = 0;
    this.map = document.createElement("canvas");
    this.map.width = this.map.height = MAP_SIZE * RACE_UNIT;
    const tiles = Uint8Array.from(atob(race.map), (letter) => letter.charCodeAt(0));
    drawMap(/** @type {CanvasRenderingContext2D} */ (this.map.getContext("2d")), tiles, sprites);
    this.area = this.coveredArea();
    this.canvas = h("canvas", {class: "race", width: this.area.size * RACE_UNIT, height: this.area.size * RACE_UNIT, role: "img", "aria-label": this.describe(),
      onclick: (/** @type {MouseEvent} */ event) => this.openNear(event)});
    this.range = h("input", {type: "range", min: 0, max: this.last, value: this.step, class: "scrub", "aria-label": "Step", oninput: () => this.seek(Number(this.range.value))});
    this.button = h("button", {type: "button", onclick: () => this.toggle()}, "Play");
    this.counter = h("span", {class: "soft"});
    this.element = h("div", {class: "race-page"},
      h("div", {}, this.canvas,
        h("div", {class: "controls"}, this.button, this.range, this.counter),
        h("div", {class: "links"}, copyButton(shareAddress, "Copy link"), h("button", {type: "button", onclick: () => this.savePicture()}, "Save PNG"))),
      h("div", {class: "race-list"}, race.episodes.map((/** @type {any} */ episode) => h("p", {},
        h("span", {class: "swatch", style: `background:${episode.colour}`}),
        checkbox(`${episode.model}: ${formatNumber(episode.achievements ?? episode.reward)}, ${episode.steps} steps, ${episode.stop_reason ?? episode.state}`, true, (shown) => {
          if (shown) this.hidden.delete(episode.id); else this.hidden.add(episode.id);
          this.draw();
        }), " ", h("a", {href: episodeLink(episode.id)}, "open"))),
      h("p", {class: "soft"}, "Circles are achievements, crosses are deaths. Click a trail to open the episode at that step."),
      table("Achievements by step", ["Achievement", ...race.episodes.map((/** @type {any} */ episode) => episode.model)], this.flagRows())));
  }

  /** The square part of the map that all trails fit in, with a margin. */
  coveredArea() {
    const places = this.race.episodes.flatMap((/** @type {any} */ episode) => episode.trail);
    const xs = places.filter((/** @type {number} */ _, /** @type {number} */ index) => index % 2 === 0);
    const ys = places.filter((/** @type {number} */ _, /** @type {number} */ index) => index % 2 === 1);
    const low = [xs, ys].map((values) => values.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.min(a, b), MAP_SIZE - 1));
    const high = [xs, ys].map((values) => values.reduce((/** @type {number} */ a, /** @type {number} */ b) => Math.max(a, b), 0));
    const size = Math.min(MAP_SIZE, Math.max(24, high[0] - low[0] + 9, high[1] - low[1] + 9));
    const corner = [0, 1].map((axis) => Math.max(0, Math.min(MAP_SIZE - size, Math.round((low[axis] + high[axis] - size) / 2))));
    return {x: corner[0], y: corner[1], size};
  }

  describe() {
    return `Map with ${this.race.episodes.length} trails. ${this.race.episodes.map((/** @type {any} */ episode) =>
      `${episode.model}: ${episode.flags.length} achievements in ${episode.steps} steps${episode.death ? `, died at step ${episode.death.step}` : ""}`).join(". ")}.`;
  }

  flagRows() {
    const names = [...new Set(this.race.episodes.flatMap((/** @type {any} */ episode) => episode.flags.map((/** @type {any} */ flag) => flag.achievement)))];
    return names.map((name) => [name, ...this.race.episodes.map((/** @type {any} */ episode) => {
      const flag = episode.flags.find((/** @type {any} */ each) => each.achievement === name);
      return flag ? h("a", {href: episodeLink(episode.id, {step: flag.step})}, String(flag.step)) : "-";
    })]);
  }

  start() {
    this.draw();
    if (!this.query.has("step") && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.step = 0;
      this.toggle();
    }
  }

  stop() {
    cancelAnimationFrame(this.timer);
  }

  toggle() {
    this.playing = !this.playing;
    this.button.textContent = this.playing ? "Pause" : "Play";
    if (!this.playing) return;
    if (this.step >= this.last) this.step = 0;
    const began = performance.now() - (this.step / this.last) * RACE_SECONDS * 1000;
    const advance = (/** @type {number} */ now) => {
      if (!this.playing) return;
      this.seek(Math.floor(((now - began) / 1000 / RACE_SECONDS) * this.last));
      if (this.step >= this.last) this.toggle(); else this.timer = requestAnimationFrame(advance);
    };
    this.timer = requestAnimationFrame(advance);
  }

  /** @param {number} step */
  seek(step) {
    this.step = Math.min(Math.max(step, 0), this.last);
    this.range.value = String(this.step);
    if (!this.playing) {
      this.query.set("step", String(this.step));
      history.replaceState(null, "", pageLink("race", Object.fromEntries(this.query)));
    }
    this.draw();
  }

  draw() {
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const {x, y, size} = this.area;
    const side = size * RACE_UNIT;
    context.globalAlpha = 1;
    context.drawImage(this.map, x * RACE_UNIT, y * RACE_UNIT, side, side, 0, 0, side, side);
    context.fillStyle = "rgba(255,255,255,0.25)";
    context.fillRect(0, 0, side, side);
    const shown = this.race.episodes.filter((/** @type {any} */ episode) => !this.hidden.has(episode.id));
    shown.forEach((/** @type {any} */ episode, /** @type {number} */ index) => this.drawTrail(context, episode, index - (shown.length - 1) / 2));
    this.counter.textContent = `step ${this.step} of ${this.last}`;
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {any} episode
   * @param {number} shift trails over each other are drawn side by side
   */
  drawTrail(context, episode, shift) {
    const at = (/** @type {number} */ step) => {
      const index = 2 * Math.min(step, episode.trail.length / 2 - 1);
      const offset = 0.5 + shift * 0.14;
      return [(episode.trail[index] - this.area.x + offset) * RACE_UNIT, (episode.trail[index + 1] - this.area.y + offset) * RACE_UNIT];
    };
    const end = Math.min(this.step, episode.trail.length / 2 - 1);
    context.lineJoin = "round";
    for (const [colour, width] of [["rgba(255,255,255,0.8)", 5], [episode.colour, 3]]) {
      context.strokeStyle = String(colour);
      context.lineWidth = Number(width);
      context.beginPath();
      for (let step = 0; step <= end; step++) context.lineTo(...(/** @type {[number, number]} */ (at(step))));
      context.stroke();
    }
    for (const flag of episode.flags) {
      if (flag.step <= this.step) drawDot(context, at(flag.step), 5, episode.colour);
    }
    if (episode.death && episode.death.step <= this.step) drawCross(context, at(end), episode.colour);
    else drawDot(context, at(end), 7, episode.colour);
  }

  /** @param {MouseEvent} event */
  openNear(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * this.area.size + this.area.x - 0.5;
    const y = ((event.clientY - box.top) / box.height) * this.area.size + this.area.y - 0.5;
    let best = {distance: CLICK_CELLS, id: "", step: 0};
    for (const episode of this.race.episodes) {
      if (this.hidden.has(episode.id)) continue;
      for (let step = 0; step < episode.trail.length / 2 && step <= this.step; step++) {
        const distance = Math.hypot(episode.trail[2 * step] - x, episode.trail[2 * step + 1] - y);
        if (distance < best.distance) best = {distance, id: episode.id, step};
      }
    }
    if (best.id) location.hash = episodeLink(best.id, {step: best.step});
  }

  savePicture() {
    this.canvas.toBlob((/** @type {Blob | null} */ blob) => {
      if (!blob) return;
      const link = h("a", {href: URL.createObjectURL(blob), download: `race-seed-${this.race.seed}.png`});
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} place
 * @param {number} radius
 * @param {string} colour
 */
function drawDot(context, [x, y], radius, colour) {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = colour;
  context.fill();
  context.strokeStyle = "#fff";
  context.lineWidth = 2;
  context.stroke();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number[]} place
 * @param {string} colour
 */
function drawCross(context, [x, y], colour) {
  for (const [style, width] of [["#fff", 7], [colour, 4]]) {
    context.strokeStyle = String(style);
    context.lineWidth = Number(width);
    context.beginPath();
    context.moveTo(x - 7, y - 7);
    context.lineTo(x + 7, y + 7);
    context.moveTo(x + 7, y - 7);
    context.lineTo(x - 7, y + 7);
    context.stroke();
  }
}

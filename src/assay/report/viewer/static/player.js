/**
 * The episode player: what the player of the game saw, a scrub bar with marks, vitals over
 * time, and the messages of each turn. It has anywidget's interface, so the same file serves
 * the viewer, the exported page and notebooks. Everything follows the model's `step`.
 */
import {append, checkbox, formatCost, formatNumber, formatSeconds, h, replace, select} from "./parts.js";
import {decodeFilm, decodeLights, decodeMap, decodeSprites, drawMap, MAP_SIZE, Painter} from "./tiles.js";

const SPEEDS = [1, 2, 5, 10, 20, 50, 100];
const WINDOW = 24;
const VITALS = ["health", "food", "drink", "energy"];
const NIGHT = 0.5;
const LANES = [
  ["achievement", "achievement"], ["reward", "reward"], ["waste", "no effect"],
  ["call", "model call"], ["night", "night"], ["sleep", "asleep"],
];
export const PLAYER_KEYS = [
  ["j / k", "next / previous step"], ["J / K", "next / previous turn"], ["space", "play or pause"],
  ["1 – 7", "speed"], ["Home / End", "first / last step"], ["m", "the whole map"], ["?", "these keys"],
];

/**
 * Fill an element with the player of one episode. Returns a function that takes it away.
 *
 * @param {{model: any, el: HTMLElement}} parts
 */
function render({model, el}) {
  const episode = model.get("episode");
  const view = new PlayerView(model, el, episode);
  view.start();
  return () => view.stop();
}

class PlayerView {
  /**
   * @param {any} model
   * @param {HTMLElement} el
   * @param {any} episode
   */
  constructor(model, el, episode) {
    this.model = model;
    this.el = el;
    this.episode = episode;
    this.last = Math.max(0, (episode.film?.frames || episode.steps + 1) - 1);
    /** @type {any} */
    this.film = null;
    /** @type {any} */
    this.mapFilm = null;
    this.showMap = false;
    this.shown = {reasoning: true, calls: true, metadata: false, prompts: true};
    this.timer = 0;
    this.played = 0;
    this.windowStart = -1;
    this.listeners = {
      "change:step": () => this.update(),
      "change:playing": () => this.updatePlaying(),
      "change:messages": () => this.updateMessages(true),
      "change:map": () => this.loadMap(),
    };
  }

  start() {
    this.build();
    for (const [event, listener] of Object.entries(this.listeners)) this.model.on(event, listener);
    this.el.addEventListener("keydown", (event) => {
      if (this.handleKey(event)) event.preventDefault();
    });
    this.load();
  }

  stop() {
    cancelAnimationFrame(this.timer);
    this.timer = 0;
    for (const [event, listener] of Object.entries(this.listeners)) this.model.off(event, listener);
  }

  build() {
    this.canvas = h("canvas", {class: "world", role: "img"});
    this.mapCanvas = h("canvas", {class: "world map", role: "img", hidden: true});
    this.range = h("input", {
      type: "range", min: 0, max: this.last, step: 1, value: this.step, class: "scrub", "aria-label": "Step",
      oninput: () => this.seek(Number(this.range.value)),
    });
    this.marks = h("canvas", {class: "marks", role: "img", "aria-label": this.describeMarks(), onclick: (/** @type {MouseEvent} */ event) => {
      const box = this.marks.getBoundingClientRect();
      this.seek(Math.round(((event.clientX - box.left) / box.width) * this.last));
    }});
    this.vitals = h("div", {class: "vitals"});
    this.playButton = h("button", {type: "button", class: "play", onclick: () => this.togglePlay()}, "Play");
    this.status = h("p", {class: "status", "aria-live": "off"});
    this.pictureNote = h("p", {class: "soft"});
    this.list = h("div", {class: "messages", tabindex: 0, role: "region", "aria-label": "Messages"});
    this.helpBox = h("div", {class: "keys", hidden: true}, h("dl", {}, PLAYER_KEYS.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])));
    const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {() => void} */ onclick) =>
      h("button", {type: "button", "aria-label": label, title: label, onclick}, text);
    replace(this.el, h("div", {class: "player", tabindex: 0, "aria-label": "Episode player"},
      h("div", {class: "screen"},
        this.canvas, this.mapCanvas, this.pictureNote,
        h("div", {class: "controls"},
          button("«", "Previous turn", () => this.seekTurn(-1)), button("‹", "Previous step", () => this.seek(this.step - 1)),
          this.playButton,
          button("›", "Next step", () => this.seek(this.step + 1)), button("»", "Next turn", () => this.seekTurn(1)),
          select("Steps a second", SPEEDS.map((speed) => /** @type {[string, string]} */ ([String(speed), String(speed)])), String(this.model.get("speed") || 5),
            (value) => this.model.set("speed", Number(value))),
          button("Map", "Show or hide the whole map", () => this.toggleMap()),
          button("?", "Keys", () => this.toggleHelp())),
        this.range, this.marks, this.legend(), this.status, this.vitals, this.helpBox),
      h("div", {class: "transcript"},
        h("div", {class: "controls"}, [["prompts", "Observations"], ["reasoning", "Reasoning"], ["calls", "Tool calls"], ["metadata", "Metadata"]].map(([name, label]) =>
          checkbox(label, /** @type {any} */ (this.shown)[name], (checked) => {
            /** @type {any} */ (this.shown)[name] = checked;
            this.updateMessages(true);
          }))),
        this.list)));
    this.updatePlaying();
  }

  legend() {
    return h("p", {class: "legend"}, LANES.map(([name, text]) => h("span", {class: `mark ${name}`}, text)));
  }

  async load() {
    try {
      const [film, sprites, lights] = await Promise.all([
        decodeFilm(this.model.get("film")), decodeSprites(this.model.get("sprites")), decodeLights(this.model.get("lights"))]);
      this.film = film;
      this.sprites = sprites;
      this.lights = lights;
      this.painter = new Painter(this.canvas, sprites, lights);
    } catch (error) {
      this.canvas.hidden = true;
      this.pictureNote.textContent = this.episode.film?.reason || `There is no picture: ${/** @type {Error} */ (error).message}`;
    }
    this.drawMarks();
    this.drawVitals();
    await this.loadMap();
    this.update();
  }

  async loadMap() {
    const packed = this.model.get("map");
    if (!packed || this.mapFilm || !this.sprites) return;
    this.mapFilm = await decodeMap(packed);
    this.mapCanvas.width = this.mapCanvas.height = MAP_SIZE * this.sprites.unit;
    this.update();
  }

  get step() {
    return Math.min(this.model.get("step") || 0, this.last);
  }

  /** @param {number} step */
  seek(step) {
    const next = Math.min(Math.max(step, 0), this.last);
    this.model.set("step", next);
    this.model.save_changes();
  }

  /** Turn of a step: the one that a model was asked before it. */
  get turn() {
    const {turn} = this.episode.step_rows;
    return turn.length === 0 ? 1 : turn[Math.min(this.step, turn.length - 1)] ?? 1;
  }

  /** @param {number} direction */
  seekTurn(direction) {
    const rows = this.episode.turn_rows.filter((/** @type {any} */ row) => row.first !== null);
    const starts = rows.map((/** @type {any} */ row) => row.first - 1);
    const next = direction > 0 ? starts.find((/** @type {number} */ start) => start > this.step)
      : starts.filter((/** @type {number} */ start) => start < this.step).pop();
    this.seek(next ?? (direction > 0 ? this.last : 0));
  }

  togglePlay() {
    if (!this.model.get("playing") && this.step === this.last) this.seek(0);
    this.model.set("playing", !this.model.get("playing"));
    this.model.save_changes();
  }

  toggleMap() {
    this.showMap = !this.showMap;
    this.mapCanvas.hidden = !this.showMap;
    this.canvas.hidden = this.showMap || !this.film;
    if (this.showMap && !this.mapFilm) this.model.set("wantsMap", true);
    this.update();
  }

  toggleHelp() {
    this.helpBox.hidden = !this.helpBox.hidden;
  }

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (target.matches("input:not([type=range]):not([type=checkbox]), select, textarea")) return false;
    if (event.key === " " && target.matches("button, input")) return false;
    if (/^[1-7]$/.test(event.key)) {
      this.model.set("speed", SPEEDS[Number(event.key) - 1]);
      const chosen = this.el.querySelector("select");
      if (chosen) chosen.value = String(SPEEDS[Number(event.key) - 1]);
      return true;
    }
    const actions = /** @type {Record<string, () => void>} */ ({
      j: () => this.seek(this.step + 1), k: () => this.seek(this.step - 1),
      J: () => this.seekTurn(1), K: () => this.seekTurn(-1), " ": () => this.togglePlay(),
      Home: () => this.seek(0), End: () => this.seek(this.last), m: () => this.toggleMap(), "?": () => this.toggleHelp(),
    });
    const action = actions[event.key];
    if (action) action();
    return Boolean(action);
  }

  updatePlaying() {
    const playing = Boolean(this.model.get("playing"));
    this.playButton.textContent = playing ? "Pause" : "Play";
    this.playButton.setAttribute("aria-pressed", String(playing));
    cancelAnimationFrame(this.timer);
    if (!playing) return;
    this.played = performance.now();
    const advance = (/** @type {number} */ now) => {
      const due = Math.floor(((now - this.played) / 1000) * (this.model.get("speed") || 5));
      if (due > 0) {
        this.played = now;
        this.seek(this.step + due);
      }
      if (this.step >= this.last) this.model.set("playing", false);
      else this.timer = requestAnimationFrame(advance);
    };
    this.timer = requestAnimationFrame(advance);
  }

  update() {
    const step = this.step;
    if (Number(this.range.value) !== step) this.range.value = String(step);
    this.range.setAttribute("aria-valuetext", `step ${step} of ${this.last}, turn ${this.turn}`);
    if (this.painter && this.film) {
      const frame = this.film.frameAt(step);
      if (!this.showMap) this.painter.draw(frame, step, frame.dead);
      this.canvas.setAttribute("aria-label", this.describe(frame, step));
      if (this.showMap && this.mapFilm) this.drawWholeMap(frame, step);
    }
    this.updateStatus(step);
    this.moveCursor(step);
    this.updateMessages(false);
  }

  /**
   * @param {any} frame
   * @param {number} step
   */
  drawWholeMap(frame, step) {
    const context = this.mapCanvas.getContext("2d");
    const unit = /** @type {any} */ (this.sprites).unit;
    drawMap(context, this.mapFilm.tilesAt(step), /** @type {any} */ (this.sprites));
    context.strokeStyle = "#ffdf00";
    context.lineWidth = unit / 4;
    context.strokeRect((frame.x - 4) * unit, (frame.y - 3) * unit, 9 * unit, 7 * unit);
    this.mapCanvas.setAttribute("aria-label", `Whole map at step ${step}; the player is at ${frame.x}, ${frame.y}.`);
  }

  /**
   * @param {any} frame
   * @param {number} step
   */
  describe(frame, step) {
    const vitals = VITALS.map((name, index) => `${name} ${frame.items[index]}`).join(", ");
    return `World at step ${step}: ${vitals}${frame.asleep ? ", asleep" : ""}${frame.dead ? ", dead" : ""}.`;
  }

  /** @param {number} step */
  updateStatus(step) {
    const rows = this.episode.step_rows;
    const action = step === 0 ? "start" : rows.action[step - 1] ?? "-";
    const extra = [];
    if (step > 0 && rows.reward[step - 1]) extra.push(`reward ${formatNumber(rows.reward[step - 1], 1)}`);
    if (step > 0 && rows.no_effect[step - 1]) extra.push(`no effect: ${rows.no_effect[step - 1]}`);
    for (const name of rows.unlocked[String(step)] || []) extra.push(`unlocked ${name}`);
    replace(this.status, h("strong", {}, `Step ${step} of ${this.last}`), ` · turn ${this.turn} · ${action}`, extra.map((text) => ` · ${text}`));
  }

  describeMarks() {
    const rows = this.episode.step_rows;
    const unlocked = Object.entries(rows.unlocked).map(([step, names]) => `${/** @type {string[]} */ (names).join(", ")} at step ${step}`);
    return `Marks: ${unlocked.length ? unlocked.join("; ") : "no achievement"}; ${rows.no_effect.filter(Boolean).length} actions without effect.`;
  }

  drawMarks() {
    const width = 1200;
    const lane = 8;
    this.marks.width = width;
    this.marks.height = lane * LANES.length;
    const context = this.marks.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const rows = this.episode.step_rows;
    const wide = Math.max(2, width / (this.last + 1));
    const mark = (/** @type {string} */ name, /** @type {number} */ step) => {
      const row = LANES.findIndex(([each]) => each === name);
      context.fillStyle = style.getPropertyValue(`--mark-${name}`) || "#888";
      context.fillRect((step / Math.max(1, this.last)) * (width - wide), row * lane, wide, lane - 2);
    };
    for (const step of Object.keys(rows.unlocked)) mark("achievement", Number(step));
    rows.reward.forEach((/** @type {number} */ reward, /** @type {number} */ index) => { if (reward > 0) mark("reward", index + 1); });
    rows.no_effect.forEach((/** @type {string} */ reason, /** @type {number} */ index) => { if (reason) mark("waste", index + 1); });
    for (const row of this.episode.turn_rows) if (row.first !== null && row.calls.length) mark("call", row.first - 1);
    if (!this.film) return;
    for (let step = 0; step <= this.last; step++) {
      if (this.lights && this.lights[Math.min(step, this.lights.length - 1)] < NIGHT) mark("night", step);
      if (this.film.frameAt(step).asleep) mark("sleep", step);
    }
  }

  /** Draw the four vitals over time, with a cursor at the current step. */
  drawVitals() {
    if (!this.film) return;
    const width = 600;
    const height = 60;
    const svg = svgElement("svg", {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": "Health, food, drink and energy over time"});
    const every = Math.max(1, Math.floor(this.last / width));
    VITALS.forEach((name, item) => {
      const points = [];
      for (let step = 0; step <= this.last; step += every) {
        const level = this.film.frameAt(step).items[item];
        points.push(`${((step / Math.max(1, this.last)) * width).toFixed(1)},${(height - 3 - (level / 9) * (height - 6)).toFixed(1)}`);
      }
      svg.append(svgElement("polyline", {points: points.join(" "), class: `vital ${name}`, fill: "none", "vector-effect": "non-scaling-stroke"}));
    });
    this.cursor = svgElement("line", {x1: 0, x2: 0, y1: 0, y2: height, class: "cursor", "vector-effect": "non-scaling-stroke"});
    svg.append(this.cursor);
    this.levels = h("p", {class: "legend"});
    replace(this.vitals, svg, this.levels);
  }

  /** @param {number} step */
  moveCursor(step) {
    if (!this.cursor || !this.film) return;
    const x = String((step / Math.max(1, this.last)) * 600);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    const frame = this.film.frameAt(step);
    replace(/** @type {HTMLElement} */ (this.levels), VITALS.map((name, item) => h("span", {class: `mark ${name}`}, `${name} ${frame.items[item]}`)));
  }

  /**
   * Show the messages around the current turn.
   *
   * @param {boolean} force
   */
  updateMessages(force) {
    const messages = this.model.get("messages") || [];
    const row = this.episode.turn_rows.find((/** @type {any} */ each) => each.turn === this.turn);
    const wanted = row?.calls.length ? row.calls[0].reply ?? row.calls[0].request[0] : null;
    if (wanted !== null && messages.length && !messages.some((/** @type {any} */ message) => message.position === wanted)) {
      this.model.set("wanted", wanted);
    }
    const index = Math.max(0, messages.findIndex((/** @type {any} */ message) => message.turn === this.turn));
    const start = Math.max(0, Math.min(index - WINDOW / 3, messages.length - WINDOW) | 0);
    if (force || start !== this.windowStart) {
      this.windowStart = start;
      const shown = messages.slice(start, start + WINDOW).filter((/** @type {any} */ message) => this.shown.prompts || message.role === "assistant");
      replace(this.list, shown.length ? shown.map((/** @type {any} */ message) => this.messageElement(message)) : h("p", {class: "soft"}, "This episode has no messages."));
    }
    let first = null;
    for (const element of this.list.children) {
      const current = /** @type {HTMLElement} */ (element).dataset.turn === String(this.turn);
      element.classList.toggle("current", current);
      first ||= current && element.classList.contains("assistant") ? element : null;
    }
    first ||= this.list.querySelector(".current");
    // The reply, with the end of what it answers above it.
    if (first) this.list.scrollTop = /** @type {HTMLElement} */ (first).offsetTop - 120;
  }

  /** @param {any} message */
  messageElement(message) {
    const element = h("article", {class: `message ${message.role}`, "data-turn": message.turn, "data-position": message.position},
      h("header", {}, h("button", {type: "button", class: "link", onclick: () => this.seek(message.step), title: "Go to this step"},
        `turn ${message.turn} · step ${message.step}`), ` ${message.role}`));
    if (this.shown.reasoning && message.reasoning) append(element, [h("pre", {class: "reasoning", dir: "auto"}, message.reasoning)]);
    if (message.text) append(element, [h("pre", {dir: "auto"}, message.text, message.cut && `\n… (${formatNumber(message.cut)} characters)`)]);
    if (this.shown.calls) append(element, message.calls.map((/** @type {any} */ call) => h("pre", {class: "call", dir: "auto"}, `${call.name} ${call.arguments}`)));
    if (this.shown.metadata && message.role === "assistant") append(element, [this.metadata(message)]);
    return element;
  }

  /** @param {any} message */
  metadata(message) {
    const row = this.episode.turn_rows.find((/** @type {any} */ each) => each.turn === message.turn);
    const call = row?.calls.find((/** @type {any} */ each) => each.reply === message.position);
    if (!call) return null;
    const facts = [`${formatNumber(call.prompt)} + ${formatNumber(call.completion)} tokens`, formatSeconds(call.latency_s), formatCost(call.cost_usd)];
    if (call.retries) facts.push(`${call.retries} retries`);
    if (call.waited_s) facts.push(`waited ${formatSeconds(call.waited_s)}`);
    if (call.finish_reason) facts.push(`finish: ${call.finish_reason}`);
    for (const hook of row.hooks) facts.push(`${hook.name}: ${hook.description}`);
    return h("p", {class: "soft"}, facts.join(" · "));
  }
}

/**
 * @param {string} tag
 * @param {Record<string, any>} attributes
 */
export function svgElement(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

export const player = {render};

export default player;

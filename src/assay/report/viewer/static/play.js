/**
 * A person plays. The next view of every action is there before the key is pressed, so that the
 * picture answers at once; the server's state decides.
 */
import {checkbox, episodeLink, formatNumber, h, replace, select} from "./parts.js";
import {textField} from "./runs.js";
import {source} from "./source.js";
import {decodeLights, decodeSprites, Frame, Painter} from "./tiles.js";

/** Keys of the reference's own game. */
const KEYS = /** @type {Record<string, string>} */ ({
  a: "move_left", d: "move_right", w: "move_up", s: "move_down", ArrowLeft: "move_left", ArrowRight: "move_right", ArrowUp: "move_up", ArrowDown: "move_down",
  " ": "do", Tab: "sleep", n: "noop", r: "place_stone", t: "place_table", f: "place_furnace", p: "place_plant",
  1: "make_wood_pickaxe", 2: "make_stone_pickaxe", 3: "make_iron_pickaxe", 4: "make_wood_sword", 5: "make_stone_sword", 6: "make_iron_sword",
});
const LIGHT_STEPS = 10000;

/**
 * @param {HTMLElement} el
 * @param {URLSearchParams} query
 */
export async function playPage(el, query) {
  const session = await source.json("/api/session");
  const episode = query.get("episode");
  const settings = {seed: Number(query.get("seed") || 7), difficulty: query.get("difficulty") || "easy", name: "me", max_turns: 1000, actions_per_turn: 1, view: "pixels"};
  const area = h("div", {});
  /** @type {(() => void) | null} */
  let stop = null;
  const begin = async () => {
    try {
      const {name} = settings;
      const state = await source.send("POST", "/api/play", episode ? {episode, step: Number(query.get("step") || 0), name} : settings);
      const view = new PlayView(area, state, session, settings.view);
      await view.start();
      stop = () => view.stop();
    } catch (error) {
      replace(area, h("p", {class: "notice warning", role: "alert"}, /** @type {Error} */ (error).message));
    }
  };
  replace(area, h("form", {class: "filters", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); begin(); }},
    textField("Your name", settings.name, (value) => { settings.name = value; }),
    !episode && [textField("Seed", String(settings.seed), (value) => { settings.seed = Number(value); }, "number"),
      select("Difficulty", session.difficulties, settings.difficulty, (value) => { settings.difficulty = value; }),
      textField("Maximum turns", String(settings.max_turns), (value) => { settings.max_turns = Number(value); }, "number"),
      textField("Actions a turn", String(settings.actions_per_turn), (value) => { settings.actions_per_turn = Number(value); }, "number"),
      checkbox("Read the text that a model reads", false, (checked) => { settings.view = checked ? "text" : "pixels"; })],
    h("button", {type: "submit"}, "Start")));
  replace(el, h("h1", {}, episode ? `Play on from step ${query.get("step") || 0}` : "Play"),
    h("p", {}, "Your episode is stored like any other: it replays exactly, and compares in pairs with models in the same world."), area);
  return () => stop?.();
}

class PlayView {
  /**
   * @param {HTMLElement} el
   * @param {any} state
   * @param {any} session
   * @param {string} view
   */
  constructor(el, state, session, view) {
    this.el = el;
    this.state = state;
    this.session = session;
    this.view = view;
    this.busy = false;
    /** @type {string[]} */
    this.waiting = [];
    this.onKey = (/** @type {KeyboardEvent} */ event) => this.handleKey(event);
  }

  async start() {
    this.canvas = h("canvas", {class: "world", role: "img", hidden: this.view === "text"});
    this.text = h("pre", {class: "seen", hidden: this.view !== "text"});
    this.status = h("p", {class: "status", "aria-live": "polite"});
    this.ending = h("p", {class: "links"}, h("button", {type: "button", onclick: () => this.end()}, "End and store"));
    replace(this.el, h("div", {class: "play-page"}, h("div", {}, this.canvas, this.text, this.status, this.ending),
      h("div", {class: "action-list"}, this.session.actions.map((/** @type {string} */ action) => h("button", {type: "button", onclick: () => this.act(action)},
        h("kbd", {}, Object.keys(KEYS).filter((key) => KEYS[key] === action).map((key) => (key === " " ? "space" : key)).join(" ")), ` ${action}`)))));
    document.addEventListener("keydown", this.onKey);
    const [sprites, lights] = await Promise.all([source.bytes("/api/sprites?unit=16").then(decodeSprites), source.bytes(`/api/lights?steps=${LIGHT_STEPS}`).then(decodeLights)]);
    this.painter = new Painter(this.canvas, sprites, lights);
    this.show(this.state.frame, this.state.step);
    this.update();
  }

  stop() {
    document.removeEventListener("keydown", this.onKey);
  }

  /** @param {KeyboardEvent} event */
  handleKey(event) {
    const action = KEYS[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey || /** @type {HTMLElement} */ (event.target).matches("input, select, textarea")) return;
    event.preventDefault();
    this.act(action);
  }

  /** @param {string} action */
  async act(action) {
    if (this.state.done) return;
    if (this.busy) {
      if (this.waiting.length < 3) this.waiting.push(action);
      return;
    }
    this.busy = true;
    const next = this.state.next?.[action];
    if (next) this.show(next.frame, this.state.step + 1);
    try {
      this.state = await source.send("POST", `/api/play/${this.state.play}/act`, {actions: [action]});
      this.show(this.state.frame, this.state.step);
      this.update();
    } catch (error) {
      /** @type {HTMLElement} */ (this.status).textContent = /** @type {Error} */ (error).message;
      this.waiting = [];
    }
    this.busy = false;
    const queued = this.waiting.shift();
    if (queued) this.act(queued);
  }

  /**
   * @param {string} packed
   * @param {number} step
   */
  show(packed, step) {
    const frame = new Frame(Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0)));
    this.painter?.draw(frame, step, frame.dead);
  }

  update() {
    const {state} = this;
    const parts = [`Step ${state.step}, turn ${state.turn}`, `reward ${formatNumber(state.reward, 1)}`, `${state.unlocked.length} achievements`];
    if (state.new.length) parts.push(`unlocked ${state.new.join(", ")}`);
    if (state.no_effect) parts.push(`no effect: ${state.no_effect}`);
    if (state.done) parts.push(`the episode has ended: ${state.ended}`);
    /** @type {HTMLElement} */ (this.status).textContent = parts.join(" · ");
    /** @type {HTMLElement} */ (this.text).textContent = state.text;
    if (state.session) replace(/** @type {HTMLElement} */ (this.ending), h("a", {href: episodeLink(state.session)}, "Open the stored episode"));
  }

  async end() {
    try {
      const {session} = await source.send("POST", `/api/play/${this.state.play}/end`, {});
      location.hash = episodeLink(session);
    } catch (error) {
      /** @type {HTMLElement} */ (this.status).textContent = /** @type {Error} */ (error).message;
    }
  }
}

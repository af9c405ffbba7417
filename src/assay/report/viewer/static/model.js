/**
 * The state of a player, with the interface that anywidget gives to a widget in a notebook, so
 * that the same player runs in both.
 */
export class LocalModel {
  /** @param {Record<string, any>} values */
  constructor(values) {
    this.values = {...values};
    /** @type {Map<string, Set<() => void>>} */
    this.listeners = new Map();
  }

  /** @param {string} name */
  get(name) {
    return this.values[name];
  }

  /**
   * @param {string} name
   * @param {any} value
   */
  set(name, value) {
    if (this.values[name] === value) return;
    this.values[name] = value;
    for (const listener of this.listeners.get(`change:${name}`) || []) listener();
  }

  save_changes() {}

  /**
   * @param {string} event
   * @param {() => void} listener
   */
  on(event, listener) {
    const listeners = this.listeners.get(event) || new Set();
    listeners.add(listener);
    this.listeners.set(event, listeners);
  }

  /**
   * @param {string} event
   * @param {() => void} listener
   */
  off(event, listener) {
    this.listeners.get(event)?.delete(listener);
  }
}

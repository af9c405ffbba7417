/**
 * Where pages get their data: the server that sent the page, or the data inside an exported
 * page. Both answer the same paths, so that the pages do not know which one it is.
 */

/** Error answered by the server, with its sentence for people. */
export class SourceError extends Error {
  /**
   * @param {string} message
   * @param {string} code
   * @param {any} [answer]
   */
  constructor(message, code, answer = {}) {
    super(message);
    this.code = code;
    this.answer = answer;
  }
}

/** @typedef {{format: string, json: Record<string, any>, bytes: Record<string, string>, entry: string}} PageData */

const TOKEN_KEY = "assay.token";
const RETRIES = 20;

class Source {
  constructor() {
    const element = document.getElementById("assay-data");
    /** @type {PageData | null} */
    this.data = element ? JSON.parse(element.textContent || "{}") : null;
    this.pageToken = "";
    /** @type {Map<string, Promise<ArrayBuffer>>} */
    this.kept = new Map();
  }

  /** Whether a server answers, so that live data and writes are possible. */
  get live() {
    return this.data === null;
  }

  /**
   * @param {string} path
   * @returns {Promise<any>}
   */
  async json(path) {
    if (this.data) {
      if (!(path in this.data.json)) throw new SourceError("Not part of this file.", "not_found");
      return this.data.json[path];
    }
    return (await this.request("GET", path)).json();
  }

  /**
   * Return the bytes of an answer, still compressed. Sprites and lights are asked for once.
   *
   * @param {string} path
   * @returns {Promise<ArrayBuffer>}
   */
  bytes(path) {
    const kept = this.kept.get(path);
    if (kept) return kept;
    const answer = this.data ? this.embedded(path) : this.request("GET", path).then((response) => response.arrayBuffer());
    if (/^\/api\/(sprites|lights)/.test(path)) this.kept.set(path, answer);
    return answer;
  }

  /** @param {string} path */
  async embedded(path) {
    const text = /** @type {PageData} */ (this.data).bytes[path];
    if (text === undefined) throw new SourceError("Not part of this file.", "not_found");
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {any} body
   */
  async send(method, path, body) {
    return (await this.request(method, path, body)).json();
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {any} [body]
   * @returns {Promise<Response>}
   */
  async request(method, path, body) {
    /** @type {Record<string, string>} */
    const headers = {Authorization: `Bearer ${readToken()}`};
    if (method !== "GET") headers["X-Page-Token"] = this.pageToken;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    for (let attempt = 0; ; attempt++) {
      let response;
      try {
        response = await fetch(path, {method, headers, body: body === undefined ? null : JSON.stringify(body)});
      } catch {
        throw new SourceError("The server does not answer. Is 'assay view' still running?", "gone");
      }
      if (response.ok) return response;
      const answer = await response.json().catch(() => ({}));
      // Another process is writing to the database; it is over in a moment.
      if (response.status === 503 && attempt < RETRIES) {
        await new Promise((resolve) => setTimeout(resolve, 1000 * Number(response.headers.get("Retry-After") || 1)));
        continue;
      }
      if (response.status === 401) {
        throw new SourceError("This page needs the address that 'assay view' printed.", "unauthorized");
      }
      throw new SourceError(answer.detail || `The server answered ${response.status}.`, answer.code || "bug", answer);
    }
  }

  /**
   * Listen to the server's events until the signal aborts; a lost connection is made again.
   *
   * @param {(name: string, data: any) => void} onEvent
   * @param {AbortSignal} signal
   */
  async events(onEvent, signal) {
    while (!signal.aborted) {
      try {
        const response = await fetch("/api/live", {headers: {Authorization: `Bearer ${readToken()}`}, signal});
        const reader = /** @type {ReadableStream<any>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
          const {done, value} = await reader.read();
          if (done) break;
          const blocks = (rest + value).split("\n\n");
          rest = blocks.pop() || "";
          for (const block of blocks) {
            const event = /^event: (.*)$/m.exec(block);
            const data = /^data: (.*)$/m.exec(block);
            if (event && data) onEvent(event[1], JSON.parse(data[1]));
          }
        }
      } catch {
        if (signal.aborted) return;
      }
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

/** Take the token out of the address, where nobody should copy it by accident. */
export function takeToken() {
  const [path, search = ""] = location.hash.split("?");
  const query = new URLSearchParams(search);
  const token = query.get("token");
  if (token === null) return;
  try {
    localStorage.setItem(TOKEN_KEY, token);
  } catch {
    sessionToken = token;
  }
  query.delete("token");
  const rest = query.toString();
  history.replaceState(null, "", `${path || "#/"}${rest ? `?${rest}` : ""}`);
}

let sessionToken = "";

export function readToken() {
  try {
    return localStorage.getItem(TOKEN_KEY) || sessionToken;
  } catch {
    return sessionToken;
  }
}

/** Return the address of this moment, with the token, for somebody who may read this server. */
export function shareAddress() {
  const [path, search = ""] = (location.hash || "#/").split("?");
  const query = new URLSearchParams(search);
  if (source.live) query.set("token", readToken());
  const text = query.toString();
  return `${location.href.split("#")[0]}${path}${text ? `?${text}` : ""}`;
}

export const source = new Source();

/**
 * @param {ArrayBuffer | DataView | Uint8Array} packed
 * @returns {Promise<ArrayBuffer>}
 */
export async function gunzip(packed) {
  const stream = new Blob([/** @type {any} */ (packed)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

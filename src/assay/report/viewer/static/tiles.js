/**
 * Films of episodes, and how their frames are drawn. The server replays an episode and sends
 * tile numbers; here they become pixels, by the server's formula and rounding, so that the
 * picture equals the exact frame in daylight. At night the reference adds noise, which is left
 * out here.
 */
import {gunzip} from "./source.js";

export const VIEW_WIDTH = 9;
export const VIEW_HEIGHT = 7;
export const MAP_SIZE = 64;
const FRAME_BYTES = 82;
const CELLS = VIEW_WIDTH * VIEW_HEIGHT;
const ITEM_COUNT = 16;
const TINT = [0, 16, 64];
const DARK = 0.5;

/** Frames of one episode, or some of them at equal distances. */
export class Film {
  /** @param {ArrayBuffer} buffer */
  constructor(buffer) {
    const view = new DataView(buffer);
    expectMagic(view, "AVF1");
    this.length = view.getUint32(4, true);
    /** Steps from one frame to the next. */
    this.every = view.getUint32(8, true);
    this.lastStep = view.getUint32(12, true);
    this.bytes = new Uint8Array(buffer, 16);
  }

  /** @param {number} step */
  frameAt(step) {
    const index = step >= this.lastStep ? this.length - 1 : Math.floor(step / this.every);
    return this.frame(Math.min(Math.max(index, 0), this.length - 1));
  }

  /** @param {number} index */
  frame(index) {
    return new Frame(this.bytes.subarray(index * FRAME_BYTES, (index + 1) * FRAME_BYTES));
  }
}

/** What the player sees at one step. */
export class Frame {
  /** @param {Uint8Array} bytes */
  constructor(bytes) {
    this.tiles = bytes.subarray(0, CELLS);
    this.items = bytes.subarray(CELLS, CELLS + ITEM_COUNT);
    this.asleep = (bytes[CELLS + ITEM_COUNT] & 1) === 1;
    this.dead = (bytes[CELLS + ITEM_COUNT] & 2) === 2;
    this.x = bytes[CELLS + ITEM_COUNT + 1];
    this.y = bytes[CELLS + ITEM_COUNT + 2];
  }
}

/** Textures in one size: tiles by day, tiles without most of their colour, items. */
export class Sprites {
  /** @param {ArrayBuffer} buffer */
  constructor(buffer) {
    const view = new DataView(buffer);
    expectMagic(view, "AVS1");
    this.unit = view.getUint32(4, true);
    const tiles = view.getUint32(8, true);
    this.size = this.unit * this.unit * 3;
    this.day = new Uint8Array(buffer, 16, tiles * this.size);
    this.faded = new Uint8Array(buffer, 16 + tiles * this.size, tiles * this.size);
    this.items = new Uint8Array(buffer, 16 + 2 * tiles * this.size);
  }
}

/** The whole map over time: the first one, and the cells that change at each step. */
export class MapFilm {
  /** @param {ArrayBuffer} buffer */
  constructor(buffer) {
    const view = new DataView(buffer);
    expectMagic(view, "AVM1");
    this.length = view.getUint32(4, true);
    this.first = new Uint8Array(buffer, 8, MAP_SIZE * MAP_SIZE);
    /** @type {number[]} */
    this.offsets = [];
    let offset = 8 + MAP_SIZE * MAP_SIZE;
    for (let frame = 1; frame < this.length; frame++) {
      this.offsets.push(offset);
      offset += 2 + 3 * view.getUint16(offset, true);
    }
    this.view = view;
    this.at = 0;
    this.tiles = this.first.slice();
  }

  /** @param {number} step */
  tilesAt(step) {
    const wanted = Math.min(step, this.length - 1);
    if (wanted < this.at) {
      this.tiles = this.first.slice();
      this.at = 0;
    }
    for (; this.at < wanted; this.at++) {
      const offset = this.offsets[this.at];
      const count = this.view.getUint16(offset, true);
      for (let change = 0; change < count; change++) {
        const place = offset + 2 + 3 * change;
        this.tiles[this.view.getUint16(place, true)] = this.view.getUint8(place + 2);
      }
    }
    return this.tiles;
  }
}

/**
 * @param {DataView} view
 * @param {string} magic
 */
function expectMagic(view, magic) {
  const read = String.fromCharCode(view.getUint8(0), view.getUint8(1), view.getUint8(2), view.getUint8(3));
  if (read !== magic) throw new Error(`expected ${magic}, received ${read}: the page is older than the server; reload it`);
}

/** @param {any} packed */
export async function decodeFilm(packed) {
  return new Film(await gunzip(packed));
}

/** @param {any} packed */
export async function decodeMap(packed) {
  return new MapFilm(await gunzip(packed));
}

/** @param {any} packed */
export async function decodeSprites(packed) {
  return new Sprites(await gunzip(packed));
}

/** @param {any} packed */
export async function decodeLights(packed) {
  return new Float64Array(await gunzip(packed));
}

/**
 * Split an answer of several films; null for an episode that has none.
 *
 * @param {ArrayBuffer} buffer
 * @returns {Promise<(Film | null)[]>}
 */
export async function decodeFilms(buffer) {
  const view = new DataView(buffer);
  const films = [];
  for (let offset = 0; offset < buffer.byteLength;) {
    const length = view.getUint32(offset, true);
    films.push(length ? decodeFilm(buffer.slice(offset + 4, offset + 4 + length)) : null);
    offset += 4 + length;
  }
  return Promise.all(films);
}

/** Draws frames on a canvas at the size of its sprites. */
export class Painter {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Sprites} sprites
   * @param {Float64Array} lights
   * @param {{inventory?: boolean}} [options]
   */
  constructor(canvas, sprites, lights, {inventory = true} = {}) {
    this.sprites = sprites;
    this.lights = lights;
    this.inventory = inventory;
    canvas.width = VIEW_WIDTH * sprites.unit;
    canvas.height = (VIEW_HEIGHT + (inventory ? 2 : 0)) * sprites.unit;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", {willReadFrequently: true}));
    this.image = this.context.createImageData(canvas.width, canvas.height);
    this.image.data.fill(255);
    this.veil = nightVeil(sprites.unit);
  }

  /**
   * @param {Frame} frame
   * @param {number} step
   * @param {boolean} [grey]
   */
  draw(frame, step, grey = false) {
    const daylight = this.lights[Math.min(step, this.lights.length - 1)];
    if (daylight >= DARK) this.drawDay(frame, daylight);
    else this.drawNight(frame, daylight);
    if (frame.asleep) this.mix([0, 0, 16], 1);
    else if (grey) this.mix([96, 96, 96], 1);
    if (this.inventory) this.drawItems(frame);
    this.context.putImageData(this.image, 0, 0);
  }

  /**
   * @param {Frame} frame
   * @param {number} daylight
   */
  drawDay(frame, daylight) {
    const {day, faded} = this.sprites;
    const rest = (1 - daylight) / 2;
    this.eachPixel(frame, (out, pixel) => {
      for (let channel = 0; channel < 3; channel++) {
        this.image.data[out + channel] =
          Math.trunc(day[pixel + channel] * daylight + (faded[pixel + channel] + TINT[channel]) * rest);
      }
    });
  }

  /**
   * @param {Frame} frame
   * @param {number} daylight
   */
  drawNight(frame, daylight) {
    const {day} = this.sprites;
    const rest = (1 - daylight) / 2;
    this.eachPixel(frame, (out, pixel) => {
      const mask = 2 * (DARK - daylight) * this.veil[out >> 2];
      const red = (1 - mask) * day[pixel] + mask * 79.5;
      const green = (1 - mask) * day[pixel + 1] + mask * 79.5;
      const blue = (1 - mask) * day[pixel + 2] + mask * 79.5;
      const level = greyLevel(red, green, blue);
      const colours = [red, green, blue];
      for (let channel = 0; channel < 3; channel++) {
        const dull = 0.4 * (colours[channel] - level) + level;
        this.image.data[out + channel] = Math.trunc(colours[channel] * daylight + (dull + TINT[channel]) * rest);
      }
    });
  }

  /**
   * @param {Frame} frame
   * @param {(out: number, pixel: number) => void} paint
   */
  eachPixel(frame, paint) {
    const {unit, size} = this.sprites;
    const width = this.image.width;
    for (let cell = 0; cell < CELLS; cell++) {
      const left = (cell % VIEW_WIDTH) * unit;
      const top = Math.floor(cell / VIEW_WIDTH) * unit;
      let pixel = frame.tiles[cell] * size;
      for (let y = 0; y < unit; y++) {
        let out = 4 * ((top + y) * width + left);
        for (let x = 0; x < unit; x++, out += 4, pixel += 3) paint(out, pixel);
      }
    }
  }

  /**
   * Replace the scene by its grey levels, halved towards a tint: sleep, and the end of an episode.
   *
   * @param {number[]} tint
   * @param {number} shift
   */
  mix(tint, shift) {
    const {data} = this.image;
    const end = 4 * this.image.width * VIEW_HEIGHT * this.sprites.unit;
    for (let out = 0; out < end; out += 4) {
      const level = greyLevel(data[out], data[out + 1], data[out + 2]);
      for (let channel = 0; channel < 3; channel++) data[out + channel] = (level + tint[channel]) >> shift;
    }
  }

  /** @param {Frame} frame */
  drawItems(frame) {
    const {unit, size, items} = this.sprites;
    const {data, width} = this.image;
    const top = VIEW_HEIGHT * unit;
    for (let out = 4 * top * width; out < data.length; out += 4) data[out] = data[out + 1] = data[out + 2] = 0;
    let place = 0;
    frame.items.forEach((count, item) => {
      if (count === 0) return;
      let pixel = (item * 9 + Math.min(count, 9) - 1) * size;
      const left = (place % VIEW_WIDTH) * unit;
      const row = top + Math.floor(place / VIEW_WIDTH) * unit;
      for (let y = 0; y < unit; y++) {
        let out = 4 * ((row + y) * width + left);
        for (let x = 0; x < unit; x++, out += 4, pixel += 3) {
          for (let channel = 0; channel < 3; channel++) data[out + channel] = items[pixel + channel];
        }
      }
      place += 1;
    });
  }
}

/**
 * @param {number} red
 * @param {number} green
 * @param {number} blue
 */
function greyLevel(red, green, blue) {
  return Math.floor((19595 * red + 38470 * green + 7471 * blue + 32768) / 65536);
}

/**
 * Return how much of the noise of a night is mixed in at each pixel: more at the edges.
 *
 * @param {number} unit
 */
function nightVeil(unit) {
  const width = VIEW_WIDTH * unit;
  const height = VIEW_HEIGHT * unit;
  const veil = new Float64Array(width * height);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      const across = (2 * x) / (width - 1) - 1;
      const down = (2 * y) / (height - 1) - 1;
      veil[y * width + x] = 1 - Math.exp((-0.5 * (across * across + down * down)) / 0.25);
    }
  }
  return veil;
}

/**
 * Draw a whole map by day.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Uint8Array} tiles
 * @param {Sprites} sprites
 */
export function drawMap(context, tiles, sprites) {
  const {unit, size, day} = sprites;
  const image = context.createImageData(MAP_SIZE * unit, MAP_SIZE * unit);
  image.data.fill(255);
  for (let cell = 0; cell < tiles.length; cell++) {
    const left = (cell % MAP_SIZE) * unit;
    const top = Math.floor(cell / MAP_SIZE) * unit;
    let pixel = tiles[cell] * size;
    for (let y = 0; y < unit; y++) {
      let out = 4 * ((top + y) * image.width + left);
      for (let x = 0; x < unit; x++, out += 4) {
        image.data[out] = day[pixel++];
        image.data[out + 1] = day[pixel++];
        image.data[out + 2] = day[pixel++];
      }
    }
  }
  context.putImageData(image, 0, 0);
}

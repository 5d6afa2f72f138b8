// Pictures of pages, compared with those that were kept. Kept ones have half the size and sixteen colours, so that they
// take little room; a new one is brought to the same first.

import { deflateSync } from "node:zlib";
import { crc32 } from "./crc.mjs";
import { fromNpm, require } from "./tools.mjs";

const { PNG } = require("pngjs");
const COLOURS = 16;
const APART = 24;

const distance = (a, b) => (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 + (a[2] - b[2]) ** 2;

/** Half as wide and high: of four pixels the mean. */
function halved(png) {
  const from = PNG.sync.read(png);
  const [width, height] = [from.width >> 1, from.height >> 1];
  const data = Buffer.alloc(width * height * 4, 255);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      for (let part = 0; part < 3; part += 1) {
        const at = (row, column) => from.data[((2 * y + row) * from.width + 2 * x + column) * 4 + part];
        data[(y * width + x) * 4 + part] = (at(0, 0) + at(0, 1) + at(1, 0) + at(1, 1)) >> 2;
      }
    }
  }
  return { width, height, data };
}

/** The colours that most pixels have, none close to another. */
function palette(data) {
  const counts = new Map();
  for (let at = 0; at < data.length; at += 4) {
    const colour = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
    counts.set(colour, (counts.get(colour) ?? 0) + 1);
  }
  const chosen = [];
  for (const [colour] of Array.from(counts).sort((a, b) => b[1] - a[1])) {
    const rgb = [colour >> 16, (colour >> 8) & 255, colour & 255];
    if (chosen.every((other) => distance(rgb, other) > APART ** 2)) chosen.push(rgb);
    if (chosen.length === COLOURS) break;
  }
  return chosen;
}

/** For each pixel the nearest of these colours. */
function indexed(data, colours) {
  const nearest = new Map();
  const result = new Uint8Array(data.length / 4);
  for (let at = 0; at < data.length; at += 4) {
    const rgb = [data[at], data[at + 1], data[at + 2]];
    const key = (rgb[0] << 16) | (rgb[1] << 8) | rgb[2];
    if (!nearest.has(key)) nearest.set(key, colours.reduce((best, colour, index) => (distance(rgb, colour) < distance(rgb, colours[best]) ? index : best), 0));
    result[at / 4] = nearest.get(key);
  }
  return result;
}

function chunk(name, data) {
  const body = Buffer.concat([Buffer.from(name, "latin1"), data]);
  const frame = Buffer.alloc(body.length + 8);
  frame.writeUInt32BE(data.length, 0);
  body.copy(frame, 4);
  frame.writeUInt32BE(crc32(body), body.length + 4);
  return frame;
}

/** A PNG of four bits a pixel. */
export function small(png) {
  const { width, height, data } = halved(png);
  const colours = palette(data);
  const pixels = indexed(data, colours);
  const bytes = Math.ceil(width / 2);
  const rows = Buffer.alloc((bytes + 1) * height);
  for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) rows[y * (bytes + 1) + 1 + (x >> 1)] |= pixels[y * width + x] << (x % 2 ? 0 : 4);
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([4, 3, 0, 0, 0], 8);
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), chunk("IHDR", head), chunk("PLTE", Buffer.from(colours.flat())), chunk("IDAT", deflateSync(rows, { level: 9, memLevel: 9 })), chunk("IEND", Buffer.alloc(0))]);
}

/** The share of pixels that differ from the kept picture, and a picture of them; 1 where the sizes differ. */
export async function difference(kept, png) {
  const { default: pixelmatch } = await fromNpm("pixelmatch");
  const [before, now] = [PNG.sync.read(kept), halved(png)];
  if (before.width !== now.width || before.height !== now.height) return { share: 1, why: `${before.width}×${before.height} became ${now.width}×${now.height}`, picture: png };
  const colours = palette(before.data);
  const same = Buffer.alloc(now.data.length, 255);
  indexed(now.data, colours).forEach((index, at) => same.set(colours[index], at * 4));
  const diff = new PNG({ width: now.width, height: now.height });
  const pixels = pixelmatch(before.data, same, diff.data, now.width, now.height, { threshold: 0.1 });
  return { share: pixels / (now.width * now.height), why: `${pixels} pixels`, picture: PNG.sync.write(diff) };
}

// Draws lines over time on a canvas: axes, a grid, and lines that have gaps where nothing is known.

import { clock, inUnit } from "./format.js";

const HEIGHT = 150;
const LEFT = 64;
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 12;
const LABEL_PIXELS = 52;
const ROW_PIXELS = 34;
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** The next round step that is at least this: 1, 2 or 5 times a power of ten; of bytes a power of two. Pure.
 * @param {number} least @param {boolean} binary @returns {number} */
export function step(least, binary) {
  if (binary) return 2 ** Math.ceil(Math.log2(least));
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5].find((factor) => factor * power >= least * 0.999999) ?? 10);
}

/** The most of all values, and at least something. @param {(number | null)[][]} lines @returns {number} */
export function most(lines) {
  let highest = 0;
  for (const values of lines) for (const value of values) if (value !== null && value > highest) highest = value;
  return highest > 0 ? highest : 1;
}

/** @param {string} name */
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** @typedef {{context: CanvasRenderingContext2D, x: (at: number) => number, y: (value: number) => number, width: number, from: number, to: number, top: number}} Space */

/** @param {HTMLCanvasElement} canvas @param {number} width @param {number[]} xs @param {number} top @returns {Space} */
function space(canvas, width, xs, top) {
  const ratio = devicePixelRatio || 1;
  const [wideAs, highAs] = [Math.round(width * ratio), Math.round(HEIGHT * ratio)];
  if (canvas.width !== wideAs || canvas.height !== highAs) [canvas.width, canvas.height] = [wideAs, highAs];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.setLineDash([]);
  context.clearRect(0, 0, width, HEIGHT);
  const [from, to] = [xs[0] ?? 0, xs[xs.length - 1] ?? 1];
  const wide = Math.max(1, width - LEFT - RIGHT);
  return { context, width, from, to, top, x: (at) => LEFT + (wide * (at - from)) / Math.max(1, to - from), y: (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * value) / top };
}

/** @param {Space} space @param {string} unit @param {number} each */
function axes({ context, x, y, width, from, to, top }, unit, each) {
  context.font = `11px ${variable("--font")}`;
  context.strokeStyle = variable("--line");
  context.fillStyle = variable("--dim");
  context.lineWidth = 1;
  const line = (/** @type {number[]} */ [x1 = 0, y1 = 0, x2 = 0, y2 = 0]) => {
    context.beginPath();
    context.moveTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
    context.lineTo(Math.round(x2) + 0.5, Math.round(y2) + 0.5);
    context.stroke();
  };
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let value = 0; value <= top * 1.000001; value += each) {
    line([LEFT, y(value), width - RIGHT, y(value)]);
    context.fillText(inUnit(value, unit), LEFT - 6, y(value));
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const seconds = ((to - from) * LABEL_PIXELS) / Math.max(LABEL_PIXELS, width - LEFT - RIGHT);
  const time = TIMES.find((candidate) => candidate >= seconds) ?? 86400;
  for (let at = Math.ceil(from / time) * time; at <= to; at += time) {
    line([x(at), TOP, x(at), HEIGHT - BOTTOM]);
    context.fillText(clock(at * 1000).slice(0, time < 60 ? 8 : 5), Math.min(x(at), width - 18), HEIGHT - BOTTOM + 5);
  }
}

/** Not more points than pixels: the most of those that share one. Which share one follows from the time alone, so that a
 * line does not flicker as it moves. @param {number[]} xs @param {(number | null)[]} values @param {number} each Seconds.
 * @returns {[number, number | null][]} */
export function thinned(xs, values, each) {
  if (each <= 1) return xs.map((at, place) => [at, values[place] ?? null]);
  /** @type {[number, number | null][]} */
  const points = [];
  let group = -1;
  for (let place = 0; place < xs.length; place += 1) {
    const [at, value] = [xs[place] ?? 0, values[place] ?? null];
    const last = points[points.length - 1];
    if (last && Math.floor(at / each) === group) {
      if (value !== null && (last[1] === null || value > last[1])) last[1] = value;
      continue;
    }
    group = Math.floor(at / each);
    points.push([at, value]);
  }
  return points;
}

/** Draws a line through each of these rows of values, in its colour; dashes tell apart where colours cannot be told.
 * @param {HTMLCanvasElement} canvas @param {number} width Of the canvas on the page. @param {number[]} xs Seconds since 1970. @param {(number | null)[][]} lines @param {string} unit @param {number} colours How many there are. */
export function plot(canvas, width, xs, lines, unit, colours) {
  const highest = most(lines);
  const row = step((highest * ROW_PIXELS) / (HEIGHT - BOTTOM - TOP), unit.startsWith("B"));
  const area = space(canvas, width, xs, Math.ceil(highest / row) * row);
  axes(area, unit, row);
  const { context, x, y } = area;
  const each = Math.ceil((area.to - area.from) / Math.max(1, area.width - LEFT - RIGHT));
  context.lineWidth = 1.5;
  lines.forEach((values, index) => {
    context.strokeStyle = variable(`--c${index % colours}`);
    context.setLineDash([[], [6, 3], [2, 2]][Math.floor(index / 4) % 3] ?? []);
    context.beginPath();
    let drawn = false;
    for (const [at, value] of thinned(xs, values, each)) {
      if (value === null) drawn = false;
      else if (drawn) context.lineTo(x(at), y(value));
      else context.moveTo(x(at), y(value));
      drawn = value !== null;
    }
    context.stroke();
  });
}

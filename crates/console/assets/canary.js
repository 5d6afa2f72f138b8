// The canary, which writes and reads all the time, and what it says of availability, second by second.

import { html, useLayoutEffect, useRef } from "./preact.js";
import { clock, count, percent } from "./format.js";
import { post } from "./api.js";
import { Action, State, Table } from "./parts.js";

const SECONDS_SHOWN = 180;
const CELL = 4;

/** @typedef {{at: number, available: boolean | null}} Second */

/** @param {{frame: Frame}} props */
export function Canary({ frame }) {
  const { canary } = frame;
  const run = (/** @type {boolean} */ on) => html`<${Action} kind=${on ? "main" : ""} action=${() => post("/api/lab/canary", { run: on })}>${on ? "Start the canary" : "Stop the canary"}<//>`;
  if (!canary) return html`<p>The canary writes and reads keys of its own all the time, and knows what it must find.</p>${run(true)}`;
  const wrong = canary.lost > 0 || canary.stale > 0;
  return html`<p class="verdict-line"><${State} mood=${wrong ? "bad" : "good"}>acknowledged writes lost: ${count(canary.lost)}, stale reads: ${count(canary.stale)}<//></p>
    <dl class="facts"><div><dt>now</dt><dd><${State} mood=${canary.available ? "good" : "bad"}>${canary.available ? "available" : "not available"}<//></dd></div><div><dt>writes</dt><dd>${count(canary.writes)}</dd></div><div><dt>reads</dt><dd>${count(canary.reads)}</dd></div><div><dt>refused or late</dt><dd>${count(canary.failed)}</dd></div></dl>${run(false)}`;
}

/** Spans of seconds in which requests failed, the newest first. Pure. @param {Second[]} seconds @returns {{from: number, to: number}[]} */
export function outages(seconds) {
  /** @type {{from: number, to: number}[]} */
  const spans = [];
  let open = false;
  for (const { at, available } of seconds) {
    const last = spans[spans.length - 1];
    if (available === false && open && last) last.to = at;
    else if (available === false) spans.push({ from: at, to: at });
    open = available === false;
  }
  return spans.reverse();
}

/** @param {{seconds: Second[]}} props */
export function Availability({ seconds }) {
  const place = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const known = seconds.filter((second) => second.available !== null);
  useLayoutEffect(() => {
    const canvas = place.current;
    const context = canvas?.getContext("2d");
    if (!canvas || !context) return;
    const colour = (/** @type {string} */ name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const colours = [colour("--line"), colour("--bad"), colour("--good")];
    context.clearRect(0, 0, canvas.width, canvas.height);
    for (let index = 0; index < SECONDS_SHOWN; index += 1) {
      const available = seconds[seconds.length - SECONDS_SHOWN + index]?.available ?? null;
      context.fillStyle = colours[available === null ? 0 : available ? 2 : 1] ?? "";
      // A failure is also lower, not only of another colour.
      context.fillRect(index * CELL, available === false ? 16 : 2, CELL - 1, available === false ? 14 : 28);
    }
  });
  const spans = outages(seconds);
  return html`<canvas ref=${place} class="strip" width=${SECONDS_SHOWN * CELL} height="32" role="img" aria-label="Availability of each of the last 180 seconds; the interruptions are in the table below"></canvas>
    <p>${known.length === 0 ? html`<span class="dim">Start the canary to see this.</span>` : html`Available in <b>${percent(known.filter((second) => second.available).length / known.length)}</b> of the last ${count(known.length)} seconds. <span class="dim small">A low bar is a second in which a request failed.</span>`}</p>
    <details><summary>Interruptions</summary><${Table} title="Interruptions" head=${["from, UTC", "to", "seconds"]} rows=${spans.map((span) => ({ key: span.from, cells: [clock(span.from), clock(span.to), count((span.to - span.from) / 1000 + 1)] }))} empty="None in this time." /></details>`;
}

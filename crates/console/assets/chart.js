// A graph: lines on a canvas, a legend in words, its query for Prometheus, and the same figures as a table.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./preact.js";
import { clock, inUnit } from "./format.js";
import { plot } from "./plot.js";
import { store } from "./store.js";

/** @typedef {{title: string, values: (number | null)[]}} Line */

const COLOURS = 10;
const ROWS_MAX = 60;
/** Of a graph, about. */
const PIXELS = 300;
/** Series whose unit is 1 and that are parts of a whole. */
const SHARES = new Set(["cache_hits", "stalled"]);

/** @param {Series | undefined} series @returns {string} */
const unitOf = (series) => (series && SHARES.has(series.id) ? "share" : series?.unit ?? "");

/** When a graph changes next: a pixel of an hour lasts several seconds, and nothing is seen to change in between.
 * @param {number[]} xs @returns {number} */
export function beat(xs) {
  const [first = 0, last = 0] = [xs[0], xs[xs.length - 1]];
  return Math.floor(last / Math.max(1, Math.ceil((last - first) / PIXELS)));
}

/** The canvas. @param {{lines: Line[], xs: number[], unit: string, title: string}} props */
function Canvas({ lines, xs, unit, title }) {
  const place = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const width = useRef(0);
  const draw = useRef(() => {});
  draw.current = () => { if (place.current && width.current > 0) plot(place.current, width.current, xs, lines.map((line) => line.values), unit, COLOURS); };
  const theme = document.documentElement.dataset.theme;
  useLayoutEffect(() => draw.current(), [beat(xs), Math.round((xs[0] ?? 0) / 60), lines.map((line) => line.title).join("\n"), unit, theme]);
  useEffect(() => {
    const resized = new ResizeObserver(([entry]) => {
      width.current = entry?.contentRect.width ?? 0;
      draw.current();
    });
    resized.observe(/** @type {HTMLCanvasElement} */ (place.current));
    return () => resized.disconnect();
  }, []);
  return html`<canvas class="plot" ref=${place} role="img" aria-label=${`${title}; the figures are in the table below`}></canvas>`;
}

/** @param {{lines: Line[], xs: number[], unit: string, title: string}} props */
function Figures({ lines, xs, unit, title }) {
  const each = Math.max(1, Math.ceil(xs.length / ROWS_MAX));
  const rows = xs.map((x, index) => ({ x, index })).filter(({ index }) => (xs.length - 1 - index) % each === 0).reverse();
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`${title}, as a table`}>
    <table><thead><tr><th scope="col">UTC</th>${lines.map((line) => html`<th scope="col">${line.title}</th>`)}</tr></thead>
    <tbody>${rows.map(({ x, index }) => html`<tr key=${x}><th scope="row">${clock(x * 1000)}</th>${lines.map((line) => html`<td>${inUnit(line.values[index], unit)}</td>`)}</tr>`)}</tbody></table></div>`;
}

/** A graph with all that belongs to it.
 * @param {{title: string, unit: string, xs: number[], lines: Line[], promql?: string[], note?: string, problem?: string}} props */
export function Chart({ title, unit, xs, lines, promql = [], note = "", problem = "" }) {
  const [open, setOpen] = useState(false);
  const last = (/** @type {Line} */ line) => inUnit(line.values[line.values.length - 1], unit);
  return html`<figure class="chart"><figcaption><strong>${title}</strong>${note && html`<span class="dim"> ${note}</span>`}</figcaption>
    ${xs.length > 1 && lines.length > 0 ? html`<${Canvas} ...${{ lines, xs, unit, title }} />` : html`<p class="plot empty">${problem || "No values yet."}</p>`}
    <ul class="legend">${lines.map((line, index) => html`<li key=${line.title}><span class=${`key c${index % COLOURS}`} aria-hidden="true"></span>${line.title} <b>${last(line)}</b></li>`)}</ul>
    <details onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}><summary>Table and PromQL<span class="sr"> of ${title}</span></summary>
      ${open && html`${promql.map((query) => html`<pre class="query">${query}</pre>`)}<${Figures} ...${{ lines, xs, unit, title }} />`}</details></figure>`;
}

/** Sums of a series over all nodes, point by point. @param {import("./past.js").PastValues} past @param {string} id @returns {(number | null)[]} */
export function summed(past, id) {
  const all = Array.from(past.nodes.values(), (series) => series.get(id) ?? []);
  return past.xs.map((_, index) => {
    const known = all.map((values) => values[index]).filter((value) => typeof value === "number");
    return known.length ? known.reduce((sum, value) => /** @type {number} */ (sum) + /** @type {number} */ (value), 0) ?? null : null;
  });
}

/** A graph of several series, each summed over all nodes. @param {{title: string, ids: string[], past: import("./past.js").PastValues, note?: string}} props */
export function SumChart({ title, ids, past, note = "sum of all nodes" }) {
  const table = ids.map((id) => store.table.find((series) => series.id === id)).filter((series) => series !== undefined);
  const lines = table.map((series) => ({ title: series.title, values: summed(past, series.id) }));
  return html`<${Chart} ...${{ title, note, lines, xs: past.xs, unit: unitOf(table[0]), promql: table.map((series) => series.promql), problem: past.problem }} />`;
}

/** A graph of one series, a line for each node. @param {{title?: string, id: string, past: import("./past.js").PastValues, names: Map<string, string>, note?: string}} props */
export function NodesChart({ title, id, past, names, note = "" }) {
  const series = store.table.find((candidate) => candidate.id === id);
  const lines = Array.from(past.nodes, ([url, values]) => ({ title: names.get(url) ?? url, values: values.get(id) ?? [] }));
  return html`<${Chart} ...${{ title: title ?? series?.title ?? id, note, lines, xs: past.xs, unit: unitOf(series), promql: series ? [series.promql] : [], problem: past.problem }} />`;
}

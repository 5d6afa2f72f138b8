// Load: which keys and partitions are asked for most, and which requests were slow and why.

import { html, useLayoutEffect, useRef, useState } from "./preact.js";
import { clock, count, duration, figure, moment, percent, visible } from "./format.js";
import { heaviest, mergedKeys, withWindow } from "./hot-model.js";
import { usePolled } from "./poll.js";
import { Bar, Choice, Key, NodeName, Panel, State, Table, Trouble, namesOf } from "./parts.js";
import { Receipt } from "./receipt.js";
import { required } from "./receipt-model.js";

const HOT_MS = 5000;
const SLOW_MS = 2000;
const KEYS_MAX = 20;
const ROWS_MAX = 50;

/** @param {{answers: import("./poll.js").Polled[]}} props */
function HotKeys({ answers }) {
  const keys = mergedKeys(answers.flatMap((answer) => (answer.value ? [answer.value] : [])));
  const seconds = answers.find((answer) => answer.value)?.value.window_s ?? 10;
  const most = keys[0]?.count ?? 0;
  const rows = keys.slice(0, KEYS_MAX).map((one, rank) => ({ key: one.hash, cells: [
    String(rank + 1), one.key !== null ? html`<${Key} text=${one.key} />` : one.key_base64 !== null ? html`<span class="dim">base64</span> <code class="version">${one.key_base64}</code>` : html`<span class="dim">hidden</span> <code>${one.hash}</code>`,
    html`<${Bar} share=${most ? one.count / most : 0} />`, figure(one.count / seconds), html`${count(one.count)} <span class="dim">± ${count(one.error)}</span>`, String(one.partition),
  ] }));
  return html`<${Table} title="Hot keys" head=${["rank", "key", "share", "1/s", "in the window", "partition"]} rows=${rows} empty="No key was counted in the last window." />
    <p class="dim small">Estimated from one request in ${answers.find((answer) => answer.value)?.value.sample ?? 16}, over ${seconds} s, of all nodes. ± is how much too high it may be.</p>`;
}

/** @param {{windows: import("./hot-model.js").HotWindow[], top: number[], most: number}} props */
function Heat({ windows, top, most }) {
  const place = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  useLayoutEffect(() => {
    const canvas = /** @type {HTMLCanvasElement} */ (place.current);
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--c0").trim();
    windows.forEach((window, column) => top.forEach((partition, row) => {
      context.globalAlpha = most > 0 ? (window.counts.get(partition) ?? 0) / most : 0;
      context.fillRect(canvas.width - (windows.length - column) * 12, row * 12, 11, 11);
    }));
  });
  return html`<canvas ref=${place} class="heat" width=${12 * 30} height=${12 * Math.max(1, top.length)} role="img" aria-label="Requests of the hottest partitions over time; the figures are in the table below"></canvas>`;
}

/** @param {{answers: import("./poll.js").Polled[], windows: import("./hot-model.js").HotWindow[]}} props */
function HotPartitions({ answers, windows }) {
  const last = windows[windows.length - 1];
  if (!last) return html`<p class="dim">No window has been seen yet.</p>`;
  const top = heaviest(last.counts, 12);
  const most = Math.max(0, ...windows.flatMap((window) => top.map((partition) => window.counts.get(partition) ?? 0)));
  const rows = top.map((partition) => {
    const now = last.counts.get(partition) ?? 0;
    return { key: partition, cells: [String(partition), html`<${Bar} share=${most ? now / most : 0} />`, count(now), percent(last.total ? now / last.total : null)] };
  });
  const before = windows.slice(-8).reverse();
  return html`<${Table} title="Hot partitions" head=${["partition", "share", "in the window", "of all"]} rows=${rows} empty="No requests in the last window." />
    ${top.length > 0 && html`<h3>Over time</h3><p class="dim small">A row for each partition of the table, a column for each window of ${answers.find((answer) => answer.value)?.value.window_s ?? 10} s, the newest at the right.</p><${Heat} windows=${windows} top=${top} most=${most} />
    <details><summary>Table<span class="sr"> of partitions over time</span></summary><${Table} title="Hot partitions over time" head=${["partition", ...before.map((window) => clock(window.at))]} rows=${top.map((partition) => ({ key: partition, cells: [String(partition), ...before.map((window) => count(window.counts.get(partition) ?? 0))] }))} /></details>`}`;
}

/** @param {{ms: number | null, of: number}} props */
const Part = ({ ms, of }) => (ms === null ? html`<span class="dim">–</span>` : html`${duration(ms / 1000)} <${Bar} share=${of ? ms / of : 0} />`);

/** @param {{answers: import("./poll.js").Polled[], names: Map<string, string>}} props */
function Slow({ answers, names }) {
  const [open, setOpen] = useState("");
  const [order, setOrder] = useState("newest");
  const all = answers.flatMap(({ url, value }) => (value?.requests ?? []).map((/** @type {SlowRequest} */ request) => ({ url, request })));
  all.sort((a, b) => (order === "newest" ? b.request.at_ms - a.request.at_ms : b.request.ms - a.request.ms));
  const rows = all.slice(0, ROWS_MAX).map(({ url, request }) => {
    const id = `${url} ${request.at_ms} ${request.hash} ${request.ms}`;
    return { key: id, id, url, request };
  });
  const shown = rows.find((row) => row.id === open);
  return html`<${Choice} title="Order" value=${order} onChange=${setOrder} choices=${[{ value: "newest", title: "newest first" }, { value: "slowest", title: "slowest first" }]} />
    <${Table} title="Slow requests" head=${["at, UTC", "took", "request", "class", "status", "queue", "commit", "peers", "hash", "coordinator", "receipt"]} empty="No request was slower than the threshold." rows=${rows.map(({ key, id, url, request }) => ({ key, class: id === open ? "chosen" : "", cells: [
      moment(request.at_ms), html`<b>${duration(request.ms / 1000)}</b>`, `${request.operation} ${request.ack}/${request.from}`, request.class, html`<${State} mood=${request.status >= 500 ? "bad" : "good"}>${request.status}<//>`,
      html`<${Part} ms=${request.queue_ms} of=${request.ms} />`, html`<${Part} ms=${request.commit_ms} of=${request.ms} />`, html`<${Part} ms=${request.peers_ms} of=${request.ms} />`,
      request.hash ? html`<code title=${`partition ${request.partition}`}>${request.hash}</code>` : "–", html`<${NodeName} url=${url} names=${names} />`,
      html`<button type="button" aria-expanded=${id === open} onClick=${() => setOpen(id === open ? "" : id)}>${id === open ? "hide" : "show"}</button>`,
    ] }))} />
    ${shown && html`<h3>Receipt of ${shown.request.operation} at ${moment(shown.request.at_ms)}</h3><${Receipt} title="Receipt of the slow request" lines=${shown.request.receipt} ack=${required(shown.request.ack, shown.request.from)} names=${names} />`}`;
}

/** @param {{frame: Frame}} props */
export function Load({ frame }) {
  const names = namesOf(frame);
  const windows = useRef(/** @type {import("./hot-model.js").HotWindow[]} */ ([]));
  const hot = usePolled("hot", HOT_MS, (answers) => { windows.current = withWindow(windows.current, answers.flatMap((answer) => (answer.value ? [answer.value] : []))); });
  const slow = usePolled("slow", SLOW_MS);
  const threshold = slow.find((answer) => answer.value)?.value.threshold_ms;
  const problems = (/** @type {import("./poll.js").Polled[]} */ answers) => answers.filter((answer) => answer.problem).map((answer) => html`<${Trouble} key=${answer.url} problem=${`${names.get(answer.url) ?? answer.url}: ${visible(answer.problem)}`} />`);
  return html`<div class="grid"><${Panel} title="Hot keys">${problems(hot)}<${HotKeys} answers=${hot} /><//>
    <${Panel} title="Hot partitions"><${HotPartitions} answers=${hot} windows=${windows.current} /><//>
    <${Panel} title="Slow requests" wide aside=${threshold !== undefined && html`<span class="dim">from ${count(threshold)} ms</span>`}>${problems(slow)}<${Slow} answers=${slow} names=${names} /><//></div>`;
}

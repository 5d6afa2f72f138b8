// Overview: the verdict in words, the nodes, rates, latencies, statuses, and every figure that the nodes give.

import { html, useState } from "./preact.js";
import { count, duration, figure, percent, visible } from "./format.js";
import { buckets, counted, merged, metric, quantile, rate, samples, total } from "./stats.js";
import { behind, members, verdictOf } from "./verdict.js";
import { NodesChart, SumChart } from "./chart.js";
import { usePast } from "./past.js";
import { store } from "./store.js";
import { Bar, NodeName, Panel, State, Table, Window, namesOf, stateOf } from "./parts.js";

const GRAPHS = ["gets", "puts", "deletes", "get_p99", "put_p99", "errors"];
const CLASSES = ["quorum", "below", "all", "other"];

/** @param {{frame: Frame}} props */
export function Verdict({ frame }) {
  const [first, ...rest] = verdictOf(frame, store.placement);
  return html`<div class=${`verdict ${first?.severity}`} role="status" aria-label="Verdict"><p class="main"><${State} mood=${first?.severity ?? "off"}>${first?.text}<//></p>
    ${rest.length > 0 && html`<ul>${rest.map((sentence) => html`<li key=${sentence.text}><${State} mood=${sentence.severity}>${sentence.text}<//></li>`)}</ul>`}</div>`;
}

/** @param {{frame: Frame, names: Map<string, string>}} props */
function Nodes({ frame, names }) {
  const lag = new Map(behind(members(frame)).map((one) => [one.url, one]));
  const rows = frame.nodes.map((node, index) => {
    const before = store.before?.nodes[index]?.stats;
    const { mood, word, why } = stateOf(node);
    const last10 = node.stats ? buckets(before ?? null, node.stats, "http_request_duration_seconds") : new Map();
    const p99 = quantile(last10, node.stats?.bounds ?? [], 0.99);
    const hints = lag.get(node.url)?.hints ?? 0;
    return { key: node.url, cells: [
      html`<${NodeName} url=${node.url} names=${names} />`,
      html`<${State} mood=${mood} title=${why}>${word}<//>${why && html`<div class="why">${visible(why)}</div>`}`,
      figure(node.stats && rate(before, node.stats, "http_requests_total")),
      duration(p99 === null ? null : p99 / 1e6),
      node.stats ? count(metric(node.stats, "http_requests_in_flight")) : "–",
      hints > 0 ? html`<span class="warning-text">${count(hints)}</span>` : "0",
      node.stats ? duration(node.stats.uptime_s) : "–",
    ] };
  });
  return html`<${Table} title="Nodes" head=${["node", "state", "requests/s", "p99", "in flight", "hints for it", "up for"]} rows=${rows} />`;
}

/** The counts of the last ten seconds by method and class, of all nodes. @param {Frame} frame @param {string} method @param {string} group */
function lately(frame, method, group) {
  return merged(frame.nodes.map((node, index) => (node.stats ? buckets(store.before?.nodes[index]?.stats ?? null, node.stats, "http_request_duration_seconds", { method, class: group }) : new Map())));
}

/** @param {{frame: Frame}} props */
function Latencies({ frame }) {
  const bounds = frame.nodes.find((node) => node.stats)?.stats?.bounds ?? [];
  const seconds = store.before ? (frame.at_ms - store.before.at_ms) / 1000 : 0;
  const micros = (/** @type {number | null} */ value) => duration(value === null ? null : value / 1e6);
  const rows = ["GET", "PUT", "DELETE"].flatMap((method) => CLASSES.map((group) => {
    const all = lately(frame, method, group);
    const requests = counted(all);
    const cells = [method, group, figure(seconds ? requests / seconds : null), micros(quantile(all, bounds, 0.5)), micros(quantile(all, bounds, 0.99)), micros(quantile(all, bounds, 0.999))];
    return { key: `${method} ${group}`, requests, cells };
  })).filter((row) => row.requests > 0);
  return html`<${Table} title="Latency by method and class" head=${["method", "class", "1/s", "p50", "p99", "p99.9"]} rows=${rows} empty="No requests in the last ten seconds." />
    <p class="dim small">Last ten seconds, all nodes. Quorum: a majority of the replicas must answer; below: fewer; all: each of them.</p>`;
}

/** @param {string} status @returns {import("./parts.js").Mood} */
const moodOf = (status) => (status.startsWith("5") ? "bad" : status.startsWith("4") && status !== "404" ? "warning" : "good");

/** @param {{frame: Frame}} props */
function Statuses({ frame }) {
  /** @type {Map<string, {all: number, rate: number | null}>} */
  const statuses = new Map();
  frame.nodes.forEach((node, index) => {
    if (!node.stats) return;
    const before = store.before?.nodes[index]?.stats;
    for (const status of new Set(samples(node.stats, "http_requests_total").map((sample) => String(sample.labels.status)))) {
      const known = statuses.get(status) ?? { all: 0, rate: null };
      statuses.set(status, { all: known.all + metric(node.stats, "http_requests_total", { status }), rate: total([known.rate, rate(before, node.stats, "http_requests_total", { status })]) });
    }
  });
  const sum = Array.from(statuses.values()).reduce((all, one) => all + one.all, 0);
  const rows = Array.from(statuses).sort(([a], [b]) => a.localeCompare(b)).map(([status, one]) => ({ key: status, cells: [
    html`<${State} mood=${moodOf(status)}>${status}<//>`, html`<${Bar} share=${sum ? one.all / sum : 0} mood=${moodOf(status)} />`, percent(sum ? one.all / sum : null), count(one.all), figure(one.rate),
  ] }));
  return html`<${Table} title="Statuses" head=${["status", "share", "of all", "since start", "1/s now"]} rows=${rows} empty="No requests since the nodes started." />`;
}

/** One row for each figure of `/v0/stats`, a column for each node. @param {{frame: Frame, names: Map<string, string>}} props */
function Everything({ frame, names }) {
  const [filter, setFilter] = useState("");
  /** @type {Map<string, Map<string, number>>} */
  const figures = new Map();
  for (const node of frame.nodes) {
    for (const name of Object.keys(node.stats?.metrics ?? {})) {
      for (const { labels, value } of samples(/** @type {Stats} */ (node.stats), name)) {
        const text = Object.entries(labels).map(([label, of]) => `${label}="${of}"`).join(",");
        const id = text ? `${name}{${text}}` : name;
        figures.set(id, (figures.get(id) ?? new Map()).set(node.url, value));
      }
    }
  }
  const rows = Array.from(figures).filter(([id]) => id.includes(filter)).sort(([a], [b]) => a.localeCompare(b))
    .map(([id, values]) => ({ key: id, cells: [html`<code>${visible(id)}</code>`, ...frame.nodes.map((node) => (node.stats ? html`<data value=${values.get(node.url) ?? 0}>${(values.get(node.url) ?? 0).toLocaleString("en", { maximumFractionDigits: 9 })}</data>` : "–"))] }));
  return html`<label for="figures-filter">Only with <input id="figures-filter" type="search" value=${filter} onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} /></label> <span class="dim small">0 is also what a node leaves out.</span>
    <${Table} title="All figures" head=${["figure", ...frame.nodes.map((node) => names.get(node.url)?.split(" ")[0] ?? "?")]} rows=${rows} />`;
}

/** @param {{frame: Frame}} props */
export function Overview({ frame }) {
  const [seconds, setSeconds] = useState(300);
  const [all, setAll] = useState(false);
  const past = usePast(GRAPHS, seconds);
  const names = namesOf(frame);
  return html`<${Verdict} frame=${frame} />
    <div class="grid"><${Panel} title="Nodes" wide><${Nodes} frame=${frame} names=${names} /><//>
    <${Panel} title="Traffic" wide aside=${html`<${Window} value=${seconds} onChange=${setSeconds} />`}><div class="charts four">
      <${SumChart} title="Requests" ids=${["gets", "puts", "deletes"]} past=${past} />
      <${NodesChart} title="GET, p99" id="get_p99" past=${past} names=${names} note="a line for each node" />
      <${NodesChart} title="PUT, p99" id="put_p99" past=${past} names=${names} note="a line for each node" />
      <${NodesChart} title="Errors (5xx)" id="errors" past=${past} names=${names} note="a line for each node" /></div><//>
    <${Panel} title="Latency"><${Latencies} frame=${frame} /><//>
    <${Panel} title="Statuses"><${Statuses} frame=${frame} /><//>
    <${Panel} title="All figures" wide><details onToggle=${(/** @type {any} */ event) => setAll(event.target.open)}><summary>Every figure of <code>/v0/stats</code>, as it is</summary>
      ${all && html`<${Everything} frame=${frame} names=${names} />`}</details><//></div>`;
}

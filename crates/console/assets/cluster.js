// Cluster: who sees whom, what each node is, and where partitions and keys are.

import { html, useState } from "./preact.js";
import { count, duration, percent, visible } from "./format.js";
import { metric, samples } from "./stats.js";
import { NodeName, Panel, State, Table, namesOf, stateOf } from "./parts.js";
import { urls } from "./verdict.js";
import { Ring } from "./ring.js";
import { store } from "./store.js";

const OFFSET_WORTH_SAYING_SECONDS = 0.05;

/** What one node says of another. @typedef {{known: boolean, connections: number, latency: number, offset: number, rebuilding: boolean}} View */

/** @param {Stats | null | undefined} stats @param {string} peer @returns {View} */
function view(stats, peer) {
  const one = (/** @type {string} */ name) => (stats ? metric(stats, name, { peer }) : 0);
  return { known: Boolean(stats?.peers.includes(peer)), connections: one("peer_connections"), latency: one("peer_latency_seconds"), offset: one("peer_clock_offset_seconds"), rebuilding: one("peer_rebuilding") > 0 };
}

/** What a node sees of another, and whether that one sees it too.
 * @param {{seen: View, back: View}} props */
function Cell({ seen, back }) {
  if (!seen.known) return html`<${State} mood="off">unknown<//>`;
  const onesided = back.known && seen.connections > 0 !== back.connections > 0;
  const mood = seen.connections === 0 ? "bad" : onesided || seen.rebuilding ? "warning" : "good";
  return html`<${State} mood=${mood}>${seen.connections > 0 ? duration(seen.latency) : "no connection"}<//>
    ${onesided && html`<div class="why">one-sided: ${seen.connections > 0 ? "not seen back" : "is seen by it"}</div>`}
    ${seen.rebuilding && html`<div class="why">rebuilding</div>`}
    ${Math.abs(seen.offset) >= OFFSET_WORTH_SAYING_SECONDS && html`<div class="why">clock ${seen.offset > 0 ? "+" : "−"}${duration(Math.abs(seen.offset))}</div>`}`;
}

/** @param {{frame: Frame, names: Map<string, string>}} props */
function Matrix({ frame, names }) {
  const all = urls(frame);
  // What a node that is silent now said last is no longer what it sees.
  const statsOf = new Map(frame.nodes.map((node) => [node.url, node.state === "up" ? node.stats : null]));
  const short = (/** @type {string} */ url) => names.get(url)?.split(" ")[0] ?? "?";
  const rows = all.map((row) => ({ key: row, cells: [
    html`<${NodeName} url=${row} names=${names} />`,
    ...all.map((column) => (row === column ? html`<span class="dim">itself</span>`
      : statsOf.get(row) ? html`<${Cell} seen=${view(statsOf.get(row), column)} back=${view(statsOf.get(column), row)} />` : html`<${State} mood="off">no word<//>`)),
  ] }));
  return html`<div class="matrix"><${Table} title="Who sees whom" head=${["sees ↓  is seen →", ...all.map((url) => html`<span title=${url}>${short(url)}</span>`)]} rows=${rows} /></div>
    <p class="dim small">A row says what that node sees: the round trip over its connections, and the other's clock where it differs by 50 ms or more.</p>`;
}

/** @param {{frame: Frame, names: Map<string, string>}} props */
function Members({ frame, names }) {
  const rows = frame.nodes.map((node) => {
    const { mood, word, why } = stateOf(node);
    const { stats } = node;
    const voting = stats ? metric(stats, "node_voting_partitions") : null;
    return { key: node.url, cells: [
      html`<${NodeName} url=${node.url} names=${names} />`,
      html`<${State} mood=${mood}>${word}<//>${why && html`<div class="why">${visible(why)}</div>`}`,
      stats ? html`<${State} mood=${metric(stats, "node_votes") > 0 ? "good" : "warning"}>${metric(stats, "node_votes") > 0 ? "votes" : "no vote"}<//>` : "–",
      count(voting),
      stats ? (metric(stats, "node_fenced") > 0 ? html`<${State} mood="bad">fenced<//>` : "fine") : "–",
      stats ? html`${stats.version} <code>${stats.commit.slice(0, 8)}</code>` : "–",
      duration(stats?.uptime_s),
      stats ? count(samples(stats, "peer_connects_total").reduce((sum, sample) => sum + sample.value, 0)) : "–",
    ] };
  });
  const versions = new Set(frame.nodes.flatMap((node) => (node.stats ? [`${node.stats.version} ${node.stats.commit}`] : [])));
  return html`${versions.size > 1 && html`<p><${State} mood="warning">The nodes run ${versions.size} different builds.<//></p>`}
    <${Table} title="Nodes" head=${["node", "state", "vote", "partitions", "clock", "version", "up for", "connects made"]} rows=${rows} />`;
}

/** @param {{names: Map<string, string>}} props */
function Shares({ names }) {
  const { placement } = store;
  if (!placement) return html`<p class="dim">The layout is not known yet.</p>`;
  const nodes = placement.nodes.length;
  const primaries = new Array(nodes).fill(0);
  const copies = new Array(nodes).fill(0);
  for (let partition = 0; partition < placement.partitions; partition += 1) {
    for (let rank = 0; rank < placement.from; rank += 1) {
      const node = placement.preference[partition * nodes + rank] ?? 0;
      copies[node] += 1;
      if (rank === 0) primaries[node] += 1;
    }
  }
  const weights = placement.nodes.reduce((sum, node) => sum + node.weight, 0);
  const rows = placement.nodes.map((node, index) => ({ key: node.url, cells: [
    html`<${NodeName} url=${node.url} names=${names} />`, node.zone ?? "–", String(node.weight), percent(node.weight / weights),
    percent(primaries[index] / placement.partitions), count(primaries[index]), percent(copies[index] / placement.partitions / placement.from), count(copies[index]),
  ] }));
  return html`<${Table} title="Share against weight" head=${["node", "zone", "weight", "its share", "first of", "partitions", "of copies", "partitions"]} rows=${rows} />`;
}

/** @param {{frame: Frame}} props */
export function Cluster({ frame }) {
  const names = namesOf(frame);
  const [found, setFound] = useState(/** @type {Located | null} */ (null));
  return html`<div class="grid"><${Panel} title="Who sees whom" wide><${Matrix} frame=${frame} names=${names} /><//>
    <${Panel} title="Nodes" wide><${Members} frame=${frame} names=${names} /><//>
    <${Ring} frame=${frame} names=${names} found=${found} onFound=${setFound} />
    <div class="stack"><${Panel} title="Share against weight"><${Shares} names=${names} /><//>
    <${Panel} title="Membership"><p>Layout version ${store.placement?.layout_version ?? "–"}, ${count(store.placement?.partitions)} partitions, ${store.placement?.from ?? "–"} copies of each key.</p>
      <p class="dim">The nodes are those of the configuration. Nothing moves between them.</p><//></div></div>`;
}

// Storage: what the engine owes, how long commits take, and when the disk is full.

import { html, useMemo, useState } from "./preact.js";
import { bytes, count, duration, figure, percent } from "./format.js";
import { buckets, metric, quantile, rate, samples } from "./stats.js";
import { NodesChart } from "./chart.js";
import { usePast } from "./past.js";
import { untilFull } from "./forecast.js";
import { store } from "./store.js";
import { NodeName, Panel, State, Table, Window, namesOf } from "./parts.js";

const GRAPHS = ["compaction_pending", "level0_files", "commit_p99", "cache_hits", "write_amplification", "disk_free", "commits", "stalled"];

/** @typedef {{frame: Frame, names: Map<string, string>}} Props */

/** One over another, where there is another. @param {number} of @param {number} whole */
const ratio = (of, whole) => (whole > 0 ? of / whole : null);

/** @param {Stats} stats @param {(name: string) => number} one */
function amplification(stats, one) {
  return ratio(one("store_flushed_bytes_total") + one("store_compacted_bytes_total"), one("store_written_bytes_total"));
}

/** @param {Stats} stats @returns {any} */
function engineState(stats) {
  const state = String(samples(stats, "store_state").find((sample) => sample.value > 0)?.labels.state ?? "healthy");
  if (state !== "healthy") return html`<${State} mood="bad">${state}<//>`;
  return metric(stats, "store_stalled") > 0 ? html`<${State} mood="warning">holds writes back<//>` : html`<${State} mood="good">healthy<//>`;
}

/** @param {Props} props */
function Engine({ frame, names }) {
  const rows = frame.nodes.map((node) => {
    const { stats } = node;
    if (!stats) return { key: node.url, cells: [html`<${NodeName} url=${node.url} names=${names} />`, html`<span class="dim">no figures</span>`] };
    const one = (/** @type {string} */ name) => metric(stats, name);
    return { key: node.url, cells: [
      html`<${NodeName} url=${node.url} names=${names} />`, engineState(stats), bytes(one("store_compaction_pending_bytes")), count(one("store_level0_files")), `${bytes(one("store_memtable_bytes"))}, ${count(one("store_memtables_waiting"))} full`,
      `${count(one("store_stalls_total"))}, ${duration(one("store_stall_seconds_total"))}`, `${count(one("store_backpressure"))} of 7`, figure(amplification(stats, one)), count(one("store_records")), bytes(one("store_table_bytes")), count(one("store_background_errors_total")),
    ] };
  });
  return html`<${Table} title="Engine" head=${["node", "state", "to compact", "level 0 files", "write buffers", "stalls, for", "backpressure", "write amplification", "records", "tables", "errors"]} rows=${rows} />`;
}

/** @param {Props} props */
function Commits({ frame, names }) {
  const rows = frame.nodes.map((node, index) => {
    const { stats } = node;
    if (!stats) return { key: node.url, cells: [html`<${NodeName} url=${node.url} names=${names} />`, html`<span class="dim">no figures</span>`] };
    const before = store.before?.nodes[index]?.stats;
    const lately = buckets(before ?? null, stats, "commit_sync_duration_seconds");
    const ever = buckets(null, stats, "commit_sync_duration_seconds");
    const at = (/** @type {import("./stats.js").Buckets} */ counts, /** @type {number} */ share) => {
      const micros = quantile(counts, stats.bounds, share);
      return duration(micros === null ? null : micros / 1e6);
    };
    return { key: node.url, cells: [
      html`<${NodeName} url=${node.url} names=${names} />`, figure(rate(before, stats, "commit_commits_total")), figure(ratio(metric(stats, "commit_records_total"), metric(stats, "commit_commits_total"))),
      at(lately, 0.5), at(lately, 0.99), at(ever, 0.5), at(ever, 0.99), at(ever, 0.999), count(metric(stats, "commit_queue_works")),
    ] };
  });
  return html`<${Table} title="Commits" head=${["node", "commits/s", "records each", "p50 now", "p99 now", "p50", "p99", "p99.9 since start", "waiting"]} rows=${rows} />`;
}

/** @param {Props} props */
function Caches({ frame, names }) {
  const rows = frame.nodes.map((node, index) => {
    const { stats } = node;
    if (!stats) return { key: node.url, cells: [html`<${NodeName} url=${node.url} names=${names} />`, html`<span class="dim">no figures</span>`] };
    const before = store.before?.nodes[index]?.stats;
    const [hits, misses] = ["store_cache_hits_total", "store_cache_misses_total"].map((name) => ({ all: metric(stats, name), now: rate(before, stats, name) ?? 0 }));
    if (!hits || !misses) return { key: node.url, cells: [] };
    return { key: node.url, cells: [
      html`<${NodeName} url=${node.url} names=${names} />`, percent(ratio(hits.now, hits.now + misses.now)), percent(ratio(hits.all, hits.all + misses.all)),
      `${bytes(metric(stats, "store_cache_used_bytes"))} of ${bytes(metric(stats, "store_cache_capacity_bytes"))}`, bytes(metric(stats, "store_record_cache_used_bytes")), figure(rate(before, stats, "store_block_reads_total")),
    ] };
  });
  return html`<${Table} title="Caches" head=${["node", "hits now", "since start", "block cache", "record cache", "blocks read/s"]} rows=${rows} />`;
}

/** @param {{seconds: number, soonest: number, latest: number | null} | null} forecast */
function inWords(forecast) {
  if (!forecast) return html`<span class="dim">does not fill, or too short a time to tell</span>`;
  const mood = forecast.soonest < 86400 ? "bad" : forecast.soonest < 7 * 86400 ? "warning" : "good";
  return html`<${State} mood=${mood}>in ${duration(forecast.seconds)}<//> <span class="dim">(${duration(forecast.soonest)} to ${forecast.latest === null ? "never" : duration(forecast.latest)})</span>`;
}

/** @param {Props & {past: import("./past.js").PastValues}} props */
function Disks({ frame, names, past }) {
  // It follows from an hour: once in ten seconds is enough.
  const forecasts = useMemo(() => new Map(Array.from(past.nodes, ([url, series]) => [url, untilFull(past.xs, series.get("disk_free") ?? [])])), [Math.floor((past.xs[past.xs.length - 1] ?? 0) / 10), Math.round((past.xs[0] ?? 0) / 60)]);
  const rows = frame.nodes.map((node) => {
    const [free, all] = ["store_disk_free_bytes", "store_disk_total_bytes"].map((name) => (node.stats ? metric(node.stats, name) : null));
    return { key: node.url, cells: [html`<${NodeName} url=${node.url} names=${names} />`, bytes(free), bytes(all), percent(free && all ? free / all : null), inWords(forecasts.get(node.url) ?? null)] };
  });
  return html`<${Table} title="Disks" head=${["node", "free", "of", "share", "full at this pace"]} rows=${rows} />
    <p class="dim small">The pace of the window chosen for the graphs. The interval is two standard errors of its eight parts: wide where the pace changes.</p>`;
}

/** @param {{frame: Frame}} props */
export function Storage({ frame }) {
  const names = namesOf(frame);
  const [seconds, setSeconds] = useState(3600);
  const past = usePast(GRAPHS, seconds);
  const chart = (/** @type {string} */ id, /** @type {string} */ title) => html`<${NodesChart} key=${id} id=${id} title=${title} past=${past} names=${names} />`;
  return html`<div class="grid"><${Panel} title="Engine" wide><${Engine} frame=${frame} names=${names} /><//>
    <${Panel} title="Disks" wide><${Disks} frame=${frame} names=${names} past=${past} /><//>
    <${Panel} title="Commits" wide><${Commits} frame=${frame} names=${names} /><//>
    <${Panel} title="Caches" wide><${Caches} frame=${frame} names=${names} /><//>
    <${Panel} title="Over time" wide aside=${html`<${Window} value=${seconds} onChange=${setSeconds} />`}><div class="charts four">
      ${chart("compaction_pending", "Bytes to compact")}${chart("level0_files", "Files of level 0")}${chart("commit_p99", "Commit, p99")}
      ${chart("cache_hits", "Blocks found in the cache")}${chart("write_amplification", "Write amplification")}${chart("disk_free", "Disk free")}${chart("stalled", "Time that commits were held back")}${chart("commits", "Commits")}</div><//></div>`;
}

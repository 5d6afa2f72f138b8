// Consistency: what was refused and why, what waits for whom, and how far the replicas are proven to be the same.

import { html, useRef, useState } from "./preact.js";
import { bytes, count, duration, figure, host, percent, visible } from "./format.js";
import { metric, rate, samples, total } from "./stats.js";
import { NodesChart, SumChart } from "./chart.js";
import { usePast } from "./past.js";
import { usePolled } from "./poll.js";
import { post, remove } from "./api.js";
import { store } from "./store.js";
import { Action, Bar, NodeName, NotAllowed, Panel, State, Table, Trouble, Window, namesOf } from "./parts.js";

const GRAPHS = ["not_enough_reads", "not_enough_writes", "hints_pending", "hints_oldest", "hints_delivered", "restamps", "write_backs", "read_repairs", "watermark_age"];
const ROUNDS_MAX = 20;
const POLL_MS = 2000;
const NOT_ENOUGH = "coordinator_not_enough_replicas_total";

/** @typedef {{frame: Frame, names: Map<string, string>}} Props */

/** @param {Props} props */
function Refused({ frame, names }) {
  /** @type {Map<string, {operation: string, cause: string, peer: string, all: number, rate: number | null}>} */
  const causes = new Map();
  frame.nodes.forEach((node, index) => {
    if (!node.stats) return;
    const before = store.before?.nodes[index]?.stats;
    for (const { labels, value } of samples(node.stats, NOT_ENOUGH)) {
      const [operation, cause, peer] = [String(labels.operation ?? ""), String(labels.cause ?? ""), String(labels.peer ?? "")];
      const key = `${operation} ${cause} ${peer}`;
      const known = causes.get(key) ?? { operation, cause, peer, all: 0, rate: null };
      causes.set(key, { ...known, all: known.all + value, rate: total([known.rate, rate(before, node.stats, NOT_ENOUGH, labels)]) });
    }
  });
  const rows = Array.from(causes.values()).filter((one) => one.all > 0).sort((a, b) => b.all - a.all).map((one) => ({ key: `${one.operation} ${one.cause} ${one.peer}`, cells: [
    html`<${NodeName} url=${one.peer} names=${names} />`, one.cause, one.operation, count(one.all), figure(one.rate),
  ] }));
  return html`<${Table} title="504s by cause and replica" head=${["replica", "what it did", "for a", "since start", "1/s now"]} rows=${rows} empty="No request has lacked replicas since the nodes started." />
    <p class="dim small">One for each replica that a 504 lacked, counted by the nodes that coordinated.</p>`;
}

/** A pair of nodes of which one keeps hints for the other. @typedef {{url: string, peer: string, stats: Stats, before: Stats | null | undefined, pending: number, moves: boolean}} Pair */

/** @param {Frame} frame @returns {Pair[]} */
function pairs(frame) {
  const all = frame.nodes.flatMap(({ url, stats }, index) => (stats?.peers ?? []).map((peer) => {
    const before = store.before?.nodes[index]?.stats;
    const moves = ["hints_kept_total", "hints_delivered_total"].some((name) => (rate(before, stats, name, { peer }) ?? 0) > 0);
    return { url, peer, stats: /** @type {Stats} */ (stats), before, pending: metric(/** @type {Stats} */ (stats), "hints_pending", { peer }), moves };
  }));
  return all.sort((a, b) => b.pending - a.pending);
}

/** @param {{pairs: Pair[], names: Map<string, string>, title: string}} props */
function Pairs({ pairs: shown, names, title }) {
  const rows = shown.map(({ url, peer, stats, before }) => {
    const one = (/** @type {string} */ name) => metric(stats, name, { peer });
    return { key: `${url} ${peer}`, cells: [
      html`<${NodeName} url=${url} names=${names} /> <span aria-hidden="true">→</span><span class="sr">for</span> <${NodeName} url=${peer} names=${names} />`,
      one("hints_pending") > 0 ? html`<${State} mood="warning">${count(one("hints_pending"))}<//>` : "0", bytes(one("hints_pending_bytes")), duration(one("hints_oldest_seconds")),
      figure(rate(before, stats, "hints_kept_total", { peer })), figure(rate(before, stats, "hints_delivered_total", { peer })), `${bytes(one("hints_rate_bytes"))}/s`, count(one("hints_superseded_total")),
    ] };
  });
  return html`<${Table} title=${title} head=${["kept by → for", "waiting", "bytes", "oldest", "kept/s", "delivered/s", "at most", "superseded"]} rows=${rows} empty="No node keeps hints for another." />`;
}

/** Pairs with hints, and the others where somebody asks: of ten nodes there are ninety.
 * @param {Props} props */
function Hints({ frame, names }) {
  const [open, setOpen] = useState(false);
  const all = pairs(frame);
  const busy = all.filter((pair) => pair.pending > 0 || pair.moves);
  const dropped = frame.nodes.flatMap((node) => (node.stats ? samples(node.stats, "hints_dropped_total").filter((sample) => sample.value > 0).map((sample) => ({ node, reason: sample.labels.reason, value: sample.value })) : []));
  return html`<${Pairs} title="Hints of pairs" pairs=${busy} names=${names} />
    <details onToggle=${(/** @type {any} */ event) => setOpen(event.target.open)}><summary>Pairs without hints: ${all.length - busy.length}</summary>${open && html`<${Pairs} title="Pairs without hints" pairs=${all.filter((pair) => !busy.includes(pair))} names=${names} />`}</details>
    <p>${dropped.length === 0 ? html`<span class="dim">No hint was dropped since the nodes started.</span>` : dropped.map((one) => html`<${State} mood="warning">${count(one.value)} dropped by ${host(one.node.url)}: ${one.reason}<//> `)}</p>`;
}

/** @param {Props} props */
function Counters({ frame, names }) {
  /** @type {[string, string][]} */
  const all = [["restamps", "coordinator_restamps_total"], ["write-backs", "coordinator_write_backs_total"], ["read repairs", "coordinator_read_repairs_total"], ["denied repairs", "coordinator_read_repairs_denied_total"],
    ["refused as stale", "coordinator_stale_answers_total"], ["hedges", "coordinator_hedges_total"], ["late answers", "coordinator_late_answers_total"], ["damaged, mended", "coordinator_mends_total"], ["unconfirmed stores", "coordinator_unconfirmed_stores_total"]];
  const rows = all.map(([title, name]) => ({ key: name, cells: [title, ...frame.nodes.map((node, index) => (node.stats ? html`${count(metric(node.stats, name))}${(rate(store.before?.nodes[index]?.stats, node.stats, name) ?? 0) > 0 && html` <span class="dim">+${figure(rate(store.before?.nodes[index]?.stats, node.stats, name))}/s</span>`}` : "–"))] }));
  return html`<${Table} title="What coordinators did besides" head=${["since start", ...frame.nodes.map((node) => names.get(node.url)?.split(" ")[0])]} rows=${rows} />`;
}

/** @param {number} ms @param {number} now */
const age = (ms, now) => (ms > 0 ? duration(Math.max(0, (now - ms) / 1000)) : "never");

/** @param {{repair: any}} props */
function Driving({ repair }) {
  if (!repair?.driving) return html`${repair?.wanted > repair?.driven ? "waits to begin" : repair?.reason ? html`<span class="why">${visible(repair.reason)}</span>` : html`<span class="dim">none</span>`}`;
  const { phase, step, steps, share, listed, copied } = repair.driving;
  return html`<${Bar} share=${share ?? 0} /> ${phase}, step ${step}/${steps}, ${percent(share)}; ${count(listed)} listed, ${count(copied)} copied`;
}

/** @param {{runs: boolean, path: string, what: string, at: string | undefined}} props */
function StartOrStop({ runs, path, what, at }) {
  const [word, action] = runs ? ["Stop the", () => remove(path)] : ["Start a", () => post(path, {})];
  return html`<${Action} key=${word} disabled=${!store.may("write")} done="asked for" action=${action}>${word} ${what}<span class="sr"> at ${at}</span><//>`;
}

/** @param {Props & {repairs: import("./poll.js").Polled[]}} props */
function Convergence({ frame, names, repairs }) {
  const rows = frame.nodes.map((node, index) => {
    const repair = repairs[index]?.value;
    const unproven = node.stats ? metric(node.stats, "repair_unproven_partitions") : null;
    return { key: node.url, cells: [
      html`<${NodeName} url=${node.url} names=${names} />`,
      repair ? age(repair.watermark.lowest_ms, frame.at_ms) : repairs[index]?.problem || "–", repair ? age(repair.watermark.highest_ms, frame.at_ms) : "–",
      unproven ? html`<${State} mood="warning">${count(unproven)}<//>` : count(unproven),
      html`<${Driving} repair=${repair} />`,
      html`<${StartOrStop} runs=${Boolean(repair?.driving)} path=${`/api/nodes/${index}/repair`} what="round" at=${names.get(node.url)} />`,
    ] };
  });
  return html`<${Table} title="How far replicas are proven the same" head=${["node", "oldest watermark", "newest", "unproven", "round under way", "repair"]} rows=${rows} />${!store.may("write") && html`<${NotAllowed} level="write" />`}`;
}

/** @param {Props & {rounds: Round[]}} props */
function Rounds({ names, rounds }) {
  const rows = rounds.map((round) => ({ key: `${round.url} ${round.round}`, cells: [
    html`<${NodeName} url=${round.url} names=${names} />`, html`<code>${round.round}</code>`, round.clean ? html`<${State} mood="good">clean<//>` : html`<${State} mood="warning">${round.stopped ? "stopped" : "not clean"}<//>`,
    count(round.differing), count(round.missing), count(round.copied), `${count(round.proven)} / ${count(round.unsettled)}`, duration(round.seconds),
  ] }));
  return html`<${Table} title="Rounds" head=${["driven by", "round", "end", "keys that differed", "missing", "copied", "proven / unsettled", "took"]} rows=${rows} empty="No round has ended since the nodes started." />
    <p class="dim small">The last ${ROUNDS_MAX} rounds, of those that nodes have driven since they started.</p>`;
}

/** @typedef {{url: string, round: string, clean: boolean, stopped: boolean, differing: number, missing: number, copied: number, proven: number, unsettled: number, seconds: number}} Round */

/** @param {string} url @param {any} last @returns {Round} */
function roundOf(url, last) {
  const missing = Array.isArray(last.missing) ? last.missing.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + Number(one?.records ?? one?.count ?? one ?? 0), 0) : Number(last.missing ?? 0);
  return { url, round: String(last.round), clean: last.clean, stopped: Boolean(last.stopped), differing: last.differing, missing: Number.isFinite(missing) ? missing : last.missing.length, copied: last.copied, proven: last.partitions_proven, unsettled: last.partitions_unsettled, seconds: last.seconds };
}

/** Adds the rounds that these answers name; the newest first, and not more than are shown. Pure.
 * @param {Round[]} known @param {import("./poll.js").Polled[]} answers @returns {Round[]} */
export function withRounds(known, answers) {
  const all = new Map(known.map((round) => [`${round.url} ${round.round}`, round]));
  for (const { url, value } of answers) {
    for (const last of value?.rounds ?? (value?.last ? [value.last] : [])) all.set(`${url} ${last.round}`, roundOf(url, last));
  }
  return Array.from(all.values()).sort((a, b) => b.round.localeCompare(a.round)).slice(0, ROUNDS_MAX);
}

/** @param {Props} props */
function Scrub({ frame, names }) {
  const clusters = usePolled("cluster", POLL_MS);
  const rows = frame.nodes.map((node, index) => {
    const scrub = clusters[index]?.value?.nodes.find((/** @type {any} */ one) => one.scrub)?.scrub;
    const records = node.stats ? metric(node.stats, "store_records") : 0;
    const done = scrub && node.stats ? Math.min(1, (metric(node.stats, "scrub_records_total") % Math.max(1, records)) / Math.max(1, records)) : 0;
    const runs = scrub && scrub.begun > scrub.ended;
    return { key: node.url, cells: [
      html`<${NodeName} url=${node.url} names=${names} />`,
      scrub ? (runs ? html`<${Bar} share=${done} /> pass ${count(scrub.begun)} runs` : html`${count(scrub.ended)} passes ended`) : clusters[index]?.problem || "–",
      count(scrub?.records), bytes(scrub?.bytes), scrub?.damaged ? html`<${State} mood="warning">${count(scrub.damaged)}<//>` : count(scrub?.damaged), count(scrub?.mended),
      html`${scrub?.trouble && html`<div class="why">${visible(scrub.trouble)}</div>`}<${StartOrStop} runs=${runs} path=${`/api/nodes/${index}/scrub`} what="pass" at=${names.get(node.url)} />`,
    ] };
  });
  return html`<${Table} title="Scrub" head=${["node", "pass", "verified", "bytes", "damaged", "mended", "scrub"]} rows=${rows} />`;
}

/** @param {{frame: Frame}} props */
export function Consistency({ frame }) {
  const names = namesOf(frame);
  const [seconds, setSeconds] = useState(300);
  const past = usePast(GRAPHS, seconds);
  const rounds = useRef(/** @type {Round[]} */ ([]));
  const repairs = usePolled("repair", POLL_MS, (answers) => { rounds.current = withRounds(rounds.current, answers); });
  const problem = repairs.length > 0 && repairs.every((answer) => answer.problem) ? repairs[0]?.problem : null;
  return html`<div class="grid"><${Panel} title="Requests that lacked replicas"><${Refused} frame=${frame} names=${names} /><//>
    <${Panel} title="What coordinators did besides"><${Counters} frame=${frame} names=${names} /><//>
    <${Panel} title="Hints" wide><${Hints} frame=${frame} names=${names} /><//>
    <${Panel} title="Over time" wide aside=${html`<${Window} value=${seconds} onChange=${setSeconds} />`}><div class="charts">
      <${NodesChart} title="Hints kept" id="hints_pending" past=${past} names=${names} note="by the node that keeps them" />
      <${NodesChart} title="Age of the oldest hint" id="hints_oldest" past=${past} names=${names} note="by the node that keeps it" />
      <${SumChart} title="Replicas that requests lacked" ids=${["not_enough_reads", "not_enough_writes"]} past=${past} />
      <${SumChart} title="Repairs on the way" ids=${["restamps", "write_backs", "read_repairs"]} past=${past} />
      <${NodesChart} title="Age of the watermark" id="watermark_age" past=${past} names=${names} />
      <${SumChart} title="Hints delivered" ids=${["hints_delivered"]} past=${past} /></div><//>
    <${Panel} title="Convergence" wide><${Trouble} problem=${problem} /><${Convergence} frame=${frame} names=${names} repairs=${repairs} /><//>
    <${Panel} title="Rounds of repair" wide><${Rounds} frame=${frame} names=${names} rounds=${rounds.current} /><//>
    <${Panel} title="Scrub" wide><${Scrub} frame=${frame} names=${names} /><//></div>`;
}

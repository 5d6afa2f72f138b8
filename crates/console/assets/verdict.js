// What the figures mean, in words. Pure: from a frame and, where it is known, the layout to sentences.

import { count, duration, host, letter, list, percent } from "./format.js";
import { metric, samples } from "./stats.js";

/** @typedef {"good" | "warning" | "bad"} Severity */
/** @typedef {{severity: Severity, text: string}} Sentence */
/** @typedef {{url: string, name: string, serves: boolean, why: string, stats: Stats | null}} Member One node of the cluster. */

const OLDEST_WORTH_SAYING_SECONDS = 2;
const CLOCK_WORTH_SAYING_SECONDS = 0.5;
const DISK_WORTH_SAYING_SHARE = 0.1;

/** All nodes of the cluster in their order: those that the console asks first, then others that these know.
 * @param {Frame} frame @returns {string[]} */
export function urls(frame) {
  const asked = frame.nodes.filter((node) => node.state !== "foreign" && node.state !== "not-kvorum").map((node) => node.url);
  const known = new Set(asked);
  for (const node of frame.nodes) {
    if (node.state !== "foreign") for (const url of [node.stats?.node, ...(node.stats?.peers ?? [])]) if (url) known.add(url);
  }
  return Array.from(known);
}

/** How many nodes have connections to this one, and how many could. @param {Frame} frame @param {string} url */
function seenBy(frame, url) {
  const others = frame.nodes.filter((node) => node.state === "up" && node.stats && node.url !== url);
  const seeing = others.filter((node) => metric(/** @type {Stats} */ (node.stats), "peer_connections", { peer: url }) > 0);
  return { seeing: seeing.length, others: others.length };
}

/** Each node, and whether its answers count. @param {Frame} frame @returns {Member[]} */
export function members(frame) {
  const all = urls(frame);
  return all.map((url, index) => {
    const name = letter(index, all.length);
    const node = frame.nodes.find((candidate) => candidate.url === url);
    const stats = node?.stats ?? null;
    if (node?.state === "up" && stats) {
      const votes = metric(stats, "node_votes") > 0;
      const why = !stats.ready ? stats.reason ?? "not ready" : votes ? "" : "rebuilding, has no vote";
      return { url, name, serves: why === "", why, stats };
    }
    if (node?.state === "silent") return { url, name, serves: false, why: "silent", stats };
    const { seeing, others } = seenBy(frame, url);
    const serves = others > 0 && seeing * 2 > others;
    return { url, name, serves, why: serves ? "" : node ? node.why ?? node.state : "not reached by its peers", stats };
  });
}

/** How many replicas of a partition serve, at least; and of how many partitions fewer than a quorum do.
 * @param {Member[]} nodes @param {Placement | null} placement @param {number} from */
function leastServing(nodes, placement, from) {
  const away = nodes.filter((node) => !node.serves).length;
  if (!placement) return { least: Math.max(0, from - away), below: null };
  const serves = placement.nodes.map((node) => nodes.find((member) => member.url === node.url)?.serves ?? false);
  const quorum = Math.floor(from / 2) + 1;
  let least = from;
  let below = 0;
  for (let partition = 0; partition < placement.partitions; partition += 1) {
    let serving = 0;
    for (let rank = 0; rank < from; rank += 1) {
      if (serves[placement.preference[partition * placement.nodes.length + rank] ?? -1]) serving += 1;
    }
    least = Math.min(least, serving);
    if (serving < quorum) below += 1;
  }
  return { least, below: below / placement.partitions };
}

/** Whether reads and writes by a majority work, and how many more losses they bear.
 * @param {Member[]} nodes @param {Placement | null} placement @returns {Sentence} */
export function availability(nodes, placement) {
  const from = placement?.from ?? Math.min(3, nodes.length);
  const quorum = Math.floor(from / 2) + 1;
  const { least, below } = leastServing(nodes, placement, from);
  const at = `${quorum}/${from}`;
  const spare = least - quorum;
  if (spare < 0) {
    const lost = below === null || below === 1 ? "" : ` for ${percent(below)} of the keys`;
    return { severity: "bad", text: `Reads and writes at ${at} fail${lost}: too few replicas answer.` };
  }
  if (spare === 0) {
    const more = from === 1 ? "each key has one copy, so the loss of a node stops its keys" : "one more loss stops them";
    return { severity: "warning", text: `Reads and writes at ${at} work; ${more}.` };
  }
  const bear = spare === 1 ? "the loss of one node" : `the loss of ${spare} nodes`;
  return { severity: "good", text: `Reads and writes at ${at} work, and bear ${bear}.` };
}

/** The nodes whose answers do not count, by the reason. @param {Member[]} nodes @returns {Sentence[]} */
function absentees(nodes) {
  /** @type {Map<string, string[]>} */
  const reasons = new Map();
  for (const node of nodes) if (!node.serves) reasons.set(node.why, [...(reasons.get(node.why) ?? []), node.name]);
  return Array.from(reasons, ([why, names]) => {
    const subject = names.length === 1 ? `Node ${names[0]} is` : `Nodes ${list(names)} are`;
    const text = /^(silent|rebuilding|not )/.test(why) ? `${subject} ${why}.` : `${subject} away: ${why}`;
    return { severity: /** @type {Severity} */ ("warning"), text };
  });
}

/** Hints that wait for each node, of all that hold some. @param {Member[]} nodes
 * @returns {{name: string, url: string, hints: number, oldest: number}[]} */
export function behind(nodes) {
  return nodes.map((target) => {
    let hints = 0;
    let oldest = 0;
    for (const { stats } of nodes) {
      if (!stats) continue;
      hints += metric(stats, "hints_pending", { peer: target.url });
      oldest = Math.max(oldest, metric(stats, "hints_oldest_seconds", { peer: target.url }));
    }
    return { name: target.name, url: target.url, hints, oldest };
  });
}

/** @param {Member[]} nodes @returns {Sentence[]} */
function backlog(nodes) {
  return behind(nodes).filter((one) => one.hints > 0 && (one.oldest === 0 || one.oldest >= OLDEST_WORTH_SAYING_SECONDS)).map((one) => {
    const age = one.oldest > 0 ? `, ${duration(Math.round(one.oldest))}` : "";
    const noun = one.hints === 1 ? "hint" : "hints";
    return { severity: "warning", text: `Node ${one.name} is behind by ${count(one.hints)} ${noun}${age}.` };
  });
}

/** What is wrong with one node that serves. @param {Member} node @returns {Sentence[]} */
function troubles(node) {
  const { stats, name } = node;
  if (!stats) return [];
  /** @type {Sentence[]} */
  const found = [];
  const say = (/** @type {Severity} */ severity, /** @type {string} */ text) => found.push({ severity, text });
  for (const { labels, value } of samples(stats, "store_state")) {
    if (value > 0 && labels.state === "disk-full") say("bad", `The disk of node ${name} is full: it takes no writes.`);
    if (value > 0 && labels.state === "poisoned") say("bad", `The store of node ${name} failed: restart the node.`);
  }
  if (metric(stats, "node_fenced") > 0) say("bad", `The clock of node ${name} is too far from the others': it refuses requests.`);
  if (metric(stats, "store_stalled") > 0) say("warning", `The store of node ${name} holds writes back until compaction catches up.`);
  const [free, all] = [metric(stats, "store_disk_free_bytes"), metric(stats, "store_disk_total_bytes")];
  if (all > 0 && free / all < DISK_WORTH_SAYING_SHARE) say("warning", `The disk of node ${name} has ${percent(free / all)} left.`);
  const offsets = samples(stats, "peer_clock_offset_seconds");
  if (offsets.length > 0 && offsets.every((sample) => Math.abs(sample.value) > CLOCK_WORTH_SAYING_SECONDS)) {
    const ahead = -(offsets[0]?.value ?? 0);
    say("warning", `The clock of node ${name} is ${duration(Math.abs(ahead))} ${ahead > 0 ? "ahead of" : "behind"} the others'.`);
  }
  return found;
}

/** Nodes that the console cannot take figures from. @param {Frame} frame @returns {Sentence[]} */
function strangers(frame) {
  /** @type {Record<string, string>} */
  const words = {
    unauthorized: "wants a key with the right `status`: start the console with --key-file",
    old: "is of an older version, without /v0/stats: upgrade it to see its figures",
    foreign: "belongs to another cluster: its figures are left out",
    "not-kvorum": "is not kvorum: check the address",
  };
  return frame.nodes.filter((node) => words[node.state]).map((node) => ({
    severity: "warning",
    text: `${host(node.url)} ${words[node.state]}.`,
  }));
}

/** @type {{frame: Frame, placement: Placement | null, sentences: Sentence[]} | null} */
let last = null;

/** The verdict of a frame, which several parts of a page show. @param {Frame} frame @param {Placement | null} placement @returns {Sentence[]} */
export function verdictOf(frame, placement) {
  if (last?.frame !== frame || last.placement !== placement) last = { frame, placement, sentences: verdict(frame, placement) };
  return last.sentences;
}

/** The verdict: first whether requests work, then what is not as it should be, worst first.
 * @param {Frame} frame @param {Placement | null} placement @returns {Sentence[]} */
export function verdict(frame, placement) {
  const nodes = members(frame);
  if (nodes.length === 0) return [{ severity: "bad", text: "No node of a kvorum cluster answers." }, ...strangers(frame)];
  const rest = [...absentees(nodes), ...backlog(nodes), ...nodes.flatMap(troubles), ...strangers(frame)];
  const order = { bad: 0, warning: 1, good: 2 };
  return [availability(nodes, placement), ...rest.sort((a, b) => order[a.severity] - order[b.severity])];
}

/** The worst of these. @param {Sentence[]} sentences @returns {Severity} */
export function worst(sentences) {
  if (sentences.some((sentence) => sentence.severity === "bad")) return "bad";
  return sentences.some((sentence) => sentence.severity === "warning") ? "warning" : "good";
}

// The modules of the pages that draw nothing: what they say and what they count.

import assert from "node:assert/strict";
import { test } from "node:test";
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { ASSETS } from "./server.mjs";
import { frameAt, recording } from "./recorded.mjs";

// A copy beside which it is written that these files are modules, as the browser knows from the page.
const copy = mkdtempSync(join(tmpdir(), "kvorum-pages-"));
writeFileSync(join(copy, "package.json"), '{"type":"module"}');
for (const name of readdirSync(ASSETS)) if (name.endsWith(".js")) cpSync(new URL(name, ASSETS), join(copy, name), { dereference: true });
process.on("exit", () => rmSync(copy, { recursive: true }));
const load = (name) => import(pathToFileURL(join(copy, name)));
const { verdict, availability, members, worst } = await load("verdict.js");
const { visible, visibleLines, duration, bytes, percent, count, letter, list } = await load("format.js");
const { metric, quantile, rate, buckets, samples } = await load("stats.js");
const { parse, judged, newest } = await load("receipt-model.js");
const { untilFull } = await load("forecast.js");
const { mergedKeys, withWindow } = await load("hot-model.js");

const URLS = ["http://a:1", "http://b:1", "http://c:1"];

/** A node as a frame has it; `peers` are those that it sees. */
function node(url, { sees = URLS, metrics = {}, labels = {}, state = "up", why = null, ready = true, reason = null } = {}) {
  const peers = URLS.filter((other) => other !== url);
  const stats = { node: url, cluster: "c", version: "0.1.0", commit: "abc", at_ms: 1000, uptime_s: 10, ready, reason, peers, bounds: [1, 2, 3, 5, 8], histograms: {},
    metrics: { node_votes: 1, peer_connections: peers.map((peer, index) => [index, sees.includes(peer) ? 4 : 0]), ...metrics }, labels: { peer_connections: ["peer"], hints_pending: ["peer"], hints_oldest_seconds: ["peer"], store_state: ["state"], peer_clock_offset_seconds: ["peer"], ...labels } };
  return { url, state, why, stats: state === "up" ? stats : null, series: {} };
}

const frame = (...nodes) => ({ at_ms: 1000, nodes, dev: null, canary: null });
const said = (given, placement = null) => verdict(given, placement).map((sentence) => sentence.text);

test("three nodes that serve bear the loss of one", () => {
  assert.deepEqual(said(frame(...URLS.map((url) => node(url)))), ["Reads and writes at 2/3 work, and bear the loss of one node."]);
});

test("with one node silent one more loss stops requests, and hints for it are said", () => {
  const sees = URLS.slice(0, 2);
  const metrics = { hints_pending: [[1, 7100]], hints_oldest_seconds: [[1, 40]] };
  const given = frame(node(URLS[0], { sees, metrics }), node(URLS[1], { sees, metrics: { hints_pending: [[1, 7103]], hints_oldest_seconds: [[1, 39.8]] } }), node(URLS[2], { state: "silent" }));
  assert.deepEqual(said(given), ["Reads and writes at 2/3 work; one more loss stops them.", "Node c is silent.", "Node c is behind by 14,203 hints, 40 s."]);
  assert.equal(worst(verdict(given, null)), "warning");
});

test("with two nodes silent requests fail", () => {
  const given = frame(node(URLS[0], { sees: [] }), node(URLS[1], { state: "silent" }), node(URLS[2], { state: "silent" }));
  assert.deepEqual(said(given), ["Reads and writes at 2/3 fail: too few replicas answer.", "Nodes b and c are silent."]);
  assert.equal(worst(verdict(given, null)), "bad");
});

test("with a layout the share of the keys is said", () => {
  const urls = ["http://a:1", "http://b:1", "http://c:1", "http://d:1", "http://e:1"];
  const placement = { layout_version: 1, partitions: 4, from: 3, nodes: urls.map((url) => ({ url, zone: null, weight: 1 })), preference: Uint8Array.from([0, 1, 2, 3, 4, 1, 2, 3, 4, 0, 2, 3, 4, 0, 1, 3, 4, 0, 1, 2]) };
  const nodes = urls.map((url, index) => ({ url, name: "x", serves: index > 1, why: "", stats: null }));
  assert.equal(availability(nodes, placement).text, "Reads and writes at 2/3 fail for 25 % of the keys: too few replicas answer.");
});

test("a node that the console may not ask counts as its peers see it", () => {
  const nodes = members(frame(node(URLS[0]), node(URLS[1]), node(URLS[2], { state: "unauthorized" })));
  assert.equal(nodes[2].serves, true);
  assert.equal(members(frame(node(URLS[0], { sees: [] }), node(URLS[1], { sees: [] }), node(URLS[2], { state: "unauthorized" })))[2].serves, false);
  assert.match(said(frame(node(URLS[0]), node(URLS[1]), node(URLS[2], { state: "unauthorized" })))[1], /--key-file/);
});

test("a console that knows one node of three counts the others as it sees them", () => {
  assert.deepEqual(said(frame(node(URLS[0]))), ["Reads and writes at 2/3 work, and bear the loss of one node."]);
});

test("what is wrong with a node is said with its name", () => {
  const metrics = { node_fenced: 1, store_state: [["disk-full", 1]], store_disk_free_bytes: 5, store_disk_total_bytes: 100, peer_clock_offset_seconds: [[0, -3], [1, -3]] };
  const given = said(frame(node(URLS[0], { metrics }), node(URLS[1]), node(URLS[2], { ready: false, reason: "draining" })));
  assert.ok(given.includes("The disk of node a is full: it takes no writes."));
  assert.ok(given.includes("The clock of node a is too far from the others': it refuses requests."));
  assert.ok(given.includes("The clock of node a is 3 s ahead of the others'."));
  assert.ok(given.includes("The disk of node a has 5 % left."));
  assert.ok(given.some((text) => text.includes("Node c is away: draining")), given.join("\n"));
  assert.match(said(frame({ ...node(URLS[0]), state: "not-kvorum", stats: null }))[1], /is not kvorum/);
});

test("every character of a key is seen", () => {
  assert.equal(visible('a"b\n\u202ec\u0000\u00a0\\ שלום'), 'a"b\\n\\u{202e}c\\0\\u{a0}\\\\ שלום');
  assert.equal(visible("\ud800\u200b\u{e0041}"), "\\u{d800}\\u{200b}\\u{e0041}");
  assert.equal(visibleLines("a\nb\u202e"), "a\nb\\u{202e}");
});

test("figures are written for people", () => {
  assert.deepEqual([0, 0.000041, 0.0123, 40, 600, 10000, 400000].map(duration), ["0 s", "41 µs", "12.3 ms", "40 s", "10 min", "2.78 h", "4.63 d"]);
  assert.deepEqual([0, 1536, 3 * 1024 ** 3].map(bytes), ["0 B", "1.5 KiB", "3 GiB"]);
  assert.deepEqual([0, 0.00001, 0.5, 0.99999, 1].map(percent), ["0 %", "< 0.01 %", "50 %", "99.999 %", "100 %"]);
  assert.deepEqual([count(14203), count(null), letter(2, 3), letter(30, 40), list(["a", "b", "c"])], ["14,203", "–", "c", "31", "a, b and c"]);
});

test("figures of the recording are read with their labels", () => {
  const { stats } = frameAt("healthy", 10).nodes[0];
  for (const [name, raw] of Object.entries(stats.metrics)) {
    const sum = typeof raw === "number" ? raw : raw.reduce((total, sample) => total + sample[sample.length - 1], 0);
    assert.ok(Math.abs(metric(stats, name) - sum) < 1e-9 * Math.max(1, Math.abs(sum)), name);
  }
  for (const { labels } of samples(stats, "peer_connections")) assert.ok(stats.peers.includes(labels.peer));
  assert.equal(metric(stats, "never_heard_of"), 0);
  assert.ok(rate(frameAt("healthy", 0).nodes[0].stats, stats, "http_requests_total") > 0);
});

test("a quantile is linear within its bucket, and a restart begins anew", () => {
  const at = (values, uptime_s) => ({ uptime_s, bounds: [1, 2, 3, 5, 8], histograms: { h: { labels: ["method"], values } } });
  const now = at([["GET", 10, [[0, 98], [3, 2]]], ["PUT", 5, [[4, 1]]]], 10);
  assert.equal(quantile(buckets(null, now, "h", { method: "GET" }), now.bounds, 0.5), 50 / 98);
  assert.equal(quantile(buckets(null, now, "h", { method: "GET" }), now.bounds, 0.99), 4);
  assert.equal(quantile(buckets(at([["GET", 1, [[0, 98]]]], 5), now, "h", { method: "GET" }), now.bounds, 0.5), 4);
  assert.equal(quantile(buckets(at([["GET", 1, [[0, 98]]]], 500), now, "h", { method: "GET" }), now.bounds, 0.5), 50 / 98);
  assert.equal(quantile(new Map(), now.bounds, 0.5), null);
});

test("a receipt says who was needed, who was late, and which version", () => {
  const lines = parse("http://c:1=accepted@02-c, http://a:1=no-answer, http://b:1=stale@01-b", 'r0;desc="http://c:1";dur=0.839, r1;desc="http://a:1", r2;desc="http://b:1";dur=0.5');
  assert.deepEqual(lines[0], { node: "http://c:1", outcome: "accepted", version: "02-c", ms: 0.839 });
  const { replicas, decided } = judged(lines, 1);
  assert.deepEqual(replicas.map((replica) => replica.part), ["needed", "absent", "failed"]);
  assert.equal(decided, 0.839);
  assert.equal(judged(lines, 2).decided, null);
  assert.equal(newest(lines), "02-c");
});

test("a disk that fills evenly has a narrow interval, one that does not fill has no forecast", () => {
  const xs = Array.from({ length: 600 }, (_, index) => index);
  const even = untilFull(xs, xs.map((x) => 10000 - 10 * x));
  assert.ok(Math.abs(even.seconds - 401) < 1 && even.latest - even.soonest < 1);
  const uneven = untilFull(xs, xs.map((x) => 10000 - 10 * x - 300 * Math.sin(x / 40)));
  assert.ok(uneven.soonest < even.seconds && (uneven.latest === null || uneven.latest > even.seconds));
  assert.equal(untilFull(xs, xs.map(() => 5)), null);
  assert.equal(untilFull(xs.slice(0, 10), xs.slice(0, 10).map((x) => 100 - x)), null);
});

test("hot keys of several nodes are added, and windows are kept thirty long", () => {
  const { hot } = recording.healthy.pages[0];
  const one = mergedKeys([hot]);
  assert.deepEqual(mergedKeys([hot, hot]).map((key) => key.count), one.map((key) => key.count * 2));
  let windows = [];
  for (let at = 0; at < 100; at += 1) windows = withWindow(windows, [{ ...hot, at_ms: Math.floor(at / 2) * 10000 + 1 }]);
  assert.equal(windows.length, 30);
  assert.ok(windows.every((window) => window.counts.size <= 64));
});

// The console's API from a recording: what the pages are shown in the tests without nodes. Everything follows from the
// recording and the number of seconds that passed, so that a picture is the same each time.

import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

const load = (name) => JSON.parse(gunzipSync(readFileSync(new URL(`fixtures/${name}.json.gz`, import.meta.url))).toString());

export const recording = load("recorded");

const VERSION = "01a22a66b6020000-b94d5f7f";
const base64 = (data) => Buffer.from(data).toString("base64");

/** What is added to the recording: keys and values that are awkward, and the lab, which only `kvorum dev` has. */
const VALUES = {
  a: { type: "text/plain", base64: base64("hello") },
  j: { type: "application/json", base64: base64('{"cart":[{"id":7,"n":2}],"total":19.5}') },
};
const SCAN = [
  { key: "a", etag: `"${VERSION}"`, content_type: "text/plain", value: "hello" },
  { key: 'quo"te\nnew\u202eline', etag: `"${VERSION}"`, content_type: "application/json", value: '{"a":1}', expires_ms: 1796070000000 },
  { key: "\u05e9\u05dc\u05d5\u05dd", etag: `"${VERSION}"`, value: "\u0000x" },
  { key_base64: "/wABgA==", etag: `"${VERSION}"`, value_base64: "AAECAw==" },
  { complete: true, count: 4, bytes: 40, digest: "00", after: null, coverage: [] },
];
const JOBS = [
  { id: 3, kind: "bench knee", state: "running", progress: { step: "probe", rate: 16000, rate_achieved: 15996, p50_ms: 0.8, p99_ms: 4.2, passed: true, missed: [] }, error: null, open: null },
  { id: 2, kind: "profile cpu", state: "done", progress: { said: "# cpu profile\n\n22 samples in 3 s" }, error: null, open: "/open/0123/" },
  { id: 1, kind: "bench run", state: "failed", progress: null, error: "the disk is full: no report could be written", open: null },
];
const INTERRUPTED = [4, 5];

/** Nodes of the lab, of which one is paused where the recorded one was silent. */
function lab(frame) {
  frame.dev = { nodes: frame.nodes.map(({ url, state }, index) => ({ number: index + 1, url, state: state === "up" ? "running" : "paused", slow_ms: index === 1 ? 200 : 0, skew_s: 0 })) };
  frame.canary = { writes: 18234, reads: 18240, lost: 0, stale: 0, failed: 3, available: true };
}

/** The frame after so many seconds. Two were recorded, ten seconds apart; in between the first one stays. */
export function frameAt(scene, second) {
  const { frames } = recording[scene];
  const [kept, shift] = second < 10 ? [frames[0], second] : [frames[1], second - 10];
  const frame = structuredClone(kept);
  frame.at_ms += shift * 1000;
  for (const node of frame.nodes) if (node.stats) node.stats.at_ms += shift * 1000;
  frame.nodes.forEach((node, index) => {
    if (node.stats) node.series = Object.fromEntries(recording.series.map(({ id }) => [id, wave(id, index, 3600 + second)]));
  });
  lab(frame);
  if (INTERRUPTED.includes(second)) frame.canary.available = false;
  return frame;
}

/** A wave for each series and node, so that graphs have something to show. */
function wave(id, node, index) {
  const level = { gets: 400, puts: 390, deletes: 20, get_p99: 0.0008, put_p99: 0.004, errors: 0, hints_pending: 0, commit_p99: 0.003, cache_hits: 0.97, write_amplification: 2.4, compaction_pending: 4e6, level0_files: 3, disk_free: 6e10 }[id] ?? 1;
  const swing = 1 + 0.2 * Math.sin(index / 17 + node * 2) + 0.1 * Math.sin(index / 5 + id.length);
  if (id === "disk_free") return 6.1e10 - node * 1e9 - index * 40000 - 30000 * Math.sin(index / 9);
  if (id === "cache_hits") return Math.min(1, level * (0.98 + 0.02 * swing));
  return level * swing;
}

function historyOf(scene, url) {
  const ids = url.searchParams.get("series").split(",");
  const seconds = Math.min(Number(url.searchParams.get("seconds")), 3600);
  const frame = frameAt(scene, 0);
  const nodes = frame.nodes.map((node, place) => ({ url: node.url, series: Object.fromEntries(ids.map((id) => [id, Array.from({ length: seconds }, (_, index) => wave(id, place, index + 3600 - seconds))])) }));
  return { end_ms: frame.at_ms - 1000, step_ms: 1000, nodes };
}

const problem = (status, title, detail) => ({ status, type: "application/problem+json", body: JSON.stringify({ title, status, detail }) });
const plain = (value, status = 200) => ({ status, type: "application/json", body: JSON.stringify(value) });

/** What a node answers through the console. */
function ofNode(scene, method, index, page, url, state) {
  const pages = recording[scene].pages[index] ?? {};
  if (page === "entity") return entity(method, url, state);
  if (page === "scan") return { status: 200, type: "application/x-ndjson", body: `${SCAN.map((line) => JSON.stringify(line)).join("\n")}\n` };
  if (page === "layout" && url.searchParams.has("id")) return plain(recording.located);
  if (page === "layout") return plain(recording.layout);
  if (method === "POST") return plain({ round: 2, pass: 2 }, 202);
  return page in pages ? plain(pages[page]) : problem(502, "No Answer", "The node does not answer: it is silent.");
}

/** One key that is stored on three replicas, of which the last is late. */
function entity(method, url, state) {
  const [key, ack] = [url.searchParams.get("id"), Number(url.searchParams.get("ack") ?? 2)];
  const nodes = recording.layout.nodes.map((node) => node.url);
  const version = VERSION;
  const outcomes = method === "GET" ? ["record", "version", "version"] : ["accepted", "accepted", "accepted"];
  const times = [0.21, 1.12, 3.4];
  const replicas = nodes.slice(0, 3).map((node, index) => (index < Math.max(ack, 2) ? `${node}=${outcomes[index]}@${version}` : `${node}=no-answer`));
  const timing = nodes.slice(0, 3).map((node, index) => `r${index};desc="${node}"${index < Math.max(ack, 2) ? `;dur=${times[index].toFixed(3)}` : ""}`);
  const head = { etag: `"${version}"`, "kvorum-replicas": replicas.join(", "), "server-timing": timing.join(", ") };
  const value = state.values.get(key) ?? VALUES[key];
  if (method === "GET" && value === undefined) return { ...problem(404, "Not Found", "No value has this id."), head: {} };
  if (method === "GET") return { status: 200, type: value.type, body: Buffer.from(value.base64, "base64"), head: { ...head, "last-modified": "Mon, 30 Nov 2026 03:01:44 GMT" } };
  return { status: method === "PUT" ? 201 : 202, type: null, body: "", head };
}

/** What the console answers to a request with the right token; null: not a page of this. */
export function answer(scene, method, url, state) {
  const path = url.pathname;
  if (path === "/api/session") return plain({ level: state.level, mode: "dev", nodes: frameAt(scene, 0).nodes.map((node) => node.url), version: "0.1.0" });
  if (path === "/api/series") return plain(recording.series);
  if (path === "/api/history") return plain(historyOf(scene, url));
  if (path === "/api/lab/jobs") return plain(JOBS);
  if (path.startsWith("/api/lab/")) return plain({ ok: true, id: 4, nodes: [] });
  const [, index, page] = /^\/api\/nodes\/(\d+)\/(\w+)$/.exec(path) ?? [];
  return page ? ofNode(scene, method, Number(index), page, url, state) : null;
}

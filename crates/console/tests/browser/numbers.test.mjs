// Numbers on pages are those that nodes gave: each figure of a frame is made another one, so that none is in the place of
// another unnoticed. What pages do not write themselves, `format.js`, has its own tests.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { frameAt } from "./recorded.mjs";
import { launch, recorded, show } from "./tools.mjs";
import { bytes, count, duration, figure, percent } from "../../assets/format.js";

/** The pages compare with the frame before the last ten seconds. */
const SECONDS = 10;

let browser;
before(async () => { browser = await launch(); });
after(() => browser.close());

/** What a column of a table shows, from `now(name)`, what was planted, and `rate(name)`, its growth in a second. */
const SHOWN = {
  storage: {
    engine: {
      "to compact": ({ now }) => bytes(now("store_compaction_pending_bytes")),
      "level 0 files": ({ now }) => count(now("store_level0_files")),
      "write buffers": ({ now }) => `${bytes(now("store_memtable_bytes"))}, ${count(now("store_memtables_waiting"))} full`,
      "stalls, for": ({ now }) => `${count(now("store_stalls_total"))}, ${duration(now("store_stall_seconds_total"))}`,
      backpressure: ({ now }) => `${count(now("store_backpressure"))} of 7`,
      "write amplification": ({ now }) => figure((now("store_flushed_bytes_total") + now("store_compacted_bytes_total")) / now("store_written_bytes_total")),
      records: ({ now }) => count(now("store_records")),
      tables: ({ now }) => bytes(now("store_table_bytes")),
      errors: ({ now }) => count(now("store_background_errors_total")),
    },
    disks: {
      free: ({ now }) => bytes(now("store_disk_free_bytes")),
      of: ({ now }) => bytes(now("store_disk_total_bytes")),
      share: ({ now }) => percent(now("store_disk_free_bytes") / now("store_disk_total_bytes")),
    },
    commits: {
      "commits/s": ({ rate }) => figure(rate("commit_commits_total")),
      "records each": ({ now }) => figure(now("commit_records_total") / now("commit_commits_total")),
      "p50 now": ({ p50 }) => duration(p50),
      p50: ({ p50 }) => duration(p50),
      waiting: ({ now }) => count(now("commit_queue_works")),
    },
    caches: {
      "hits now": ({ rate }) => percent(rate("store_cache_hits_total") / (rate("store_cache_hits_total") + rate("store_cache_misses_total"))),
      "since start": ({ now }) => percent(now("store_cache_hits_total") / (now("store_cache_hits_total") + now("store_cache_misses_total"))),
      "block cache": ({ now }) => `${bytes(now("store_cache_used_bytes"))} of ${bytes(now("store_cache_capacity_bytes"))}`,
      "record cache": ({ now }) => bytes(now("store_record_cache_used_bytes")),
      "blocks read/s": ({ rate }) => figure(rate("store_block_reads_total")),
    },
  },
  overview: {
    nodes: {
      "in flight": ({ now }) => count(now("http_requests_in_flight")),
      "hints for it": ({ others }) => count(others("hints_pending")),
      "requests/s": ({ rate }) => figure(rate("http_requests_total")),
      "up for": ({ stats }) => duration(stats.uptime_s),
    },
  },
  cluster: {
    nodes: {
      partitions: ({ now }) => count(now("node_voting_partitions")),
      "connects made": ({ now }) => count(now("peer_connects_total")),
      "up for": ({ stats }) => duration(stats.uptime_s),
    },
  },
  consistency: {
    convergence: { unproven: ({ now }) => count(now("repair_unproven_partitions")) },
  },
};
/** A row for each figure, a column for each node. */
const COUNTERS = {
  restamps: "coordinator_restamps_total", "write-backs": "coordinator_write_backs_total", "read repairs": "coordinator_read_repairs_total", "denied repairs": "coordinator_read_repairs_denied_total",
  "refused as stale": "coordinator_stale_answers_total", hedges: "coordinator_hedges_total", "late answers": "coordinator_late_answers_total", "damaged, mended": "coordinator_mends_total", "unconfirmed stores": "coordinator_unconfirmed_stores_total",
};
const PAIRS = {
  waiting: (one) => count(one("hints_pending")), bytes: (one) => bytes(one("hints_pending_bytes")), oldest: (one) => duration(one("hints_oldest_seconds")),
  "at most": (one) => `${bytes(one("hints_rate_bytes"))}/s`, superseded: (one) => count(one("hints_superseded_total")),
};
/** Those that a label tells apart; the others are one number. */
const LABELLED = { http_requests_total: [["GET", "200"], ["PUT", "204"]], peer_connects_total: [[0], [1]], hints_pending: [[0], [1]], hints_pending_bytes: [[0], [1]], hints_oldest_seconds: [[0], [1]], hints_rate_bytes: [[0], [1]], hints_superseded_total: [[0], [1]], hints_kept_total: [[0], [1]], hints_delivered_total: [[0], [1]] };

/** Each name that is asked for, in the order of asking. */
const names = [];
const ask = { now: (name) => names.push(name), rate: (name) => names.push(name), others: () => 0, stats: {}, p50: 0 };
for (const page of Object.values(SHOWN)) for (const table of Object.values(page)) for (const shown of Object.values(table)) shown(ask);
for (const shown of Object.values(PAIRS)) shown(ask.now);
names.push(...Object.values(COUNTERS), ...Object.keys(LABELLED));
const NAMES = Array.from(new Set(names));

/** Another number for each name, node and label; a bit more after ten seconds. */
const value = (name, node, label, late) => (NAMES.indexOf(name) + 2) * 1009 + node * 101 + label * 13 + (late ? (NAMES.indexOf(name) + 3) * 37 : 0);

function plant(stats, node, late) {
  for (const name of NAMES) {
    const labels = LABELLED[name];
    stats.metrics[name] = labels ? labels.map((label, index) => [...label, value(name, node, index, late)]) : value(name, node, 0, late);
    if (labels && !stats.labels[name]) stats.labels[name] = ["peer"];
  }
  // All in one bucket.
  const bucket = 60 + node;
  stats.histograms.commit_sync_duration_seconds = { labels: [], values: [[1, [[bucket, late ? 300 : 100]]]] };
}

/** What a node gave, as `SHOWN` asks for it. */
function given(frame, earlier, node) {
  const { stats } = frame.nodes[node];
  const before = earlier.nodes[node].stats;
  const seconds = (stats.at_ms - before.at_ms) / 1000;
  const sum = (of, name, label) => (LABELLED[name] ? of.metrics[name].filter((sample) => label === undefined || sample[0] === label).reduce((all, sample) => all + sample.at(-1), 0) : of.metrics[name]);
    const others = (name) => frame.nodes.filter((other) => other !== frame.nodes[node]).reduce((all, other) => all + sum(other.stats, name, other.stats.peers.indexOf(frame.nodes[node].url)), 0);
  const [lower, upper] = [stats.bounds[59 + node], stats.bounds[60 + node]];
  return { stats, others, p50: (lower + upper) / 2 / 1e6, now: (name) => sum(stats, name), rate: (name) => (sum(stats, name) - sum(before, name)) / seconds, of: (name, peer) => sum(stats, name, peer) };
}

const text = (cell) => cell.replace(/\s+/g, " ").replace(/^[●▲■○◐] /, "").trim();

/** The columns and rows of the first table of a panel. */
async function tableOf(page, id) {
  const table = page.locator(`section[aria-labelledby=h-${id}] table`).first();
  const head = (await table.locator("thead th").allInnerTexts()).map(text);
  const rows = await Promise.all((await table.locator("tbody tr").all()).map(async (row) => (await row.locator("th, td").allInnerTexts()).map(text)));
  return { head, rows };
}

function planted(second) {
  const frame = frameAt("healthy", second);
  frame.nodes.forEach(({ stats }, index) => plant(stats, index, second >= SECONDS));
  return frame;
}

const withPlanted = (run) => recorded(browser, { paceMs: 0, frame: planted }, async ({ page, faults }) => {
  await run(page, planted(SECONDS), planted(0));
  assert.deepEqual(faults, []);
});

test("each column shows what its node gave", () => withPlanted(async (page, frame, earlier) => {
  for (const [name, tables] of Object.entries(SHOWN)) {
    await show(page, name);
    for (const [id, columns] of Object.entries(tables)) {
      const { head, rows } = await tableOf(page, id);
      assert.equal(rows.length, frame.nodes.length, `${name} ${id}`);
      for (const [column, shown] of Object.entries(columns)) {
        const at = head.indexOf(column);
        assert.ok(at > 0, `${name} ${id} has no column ${column}: ${head}`);
        assert.deepEqual(rows.map((row) => row[at]), frame.nodes.map((_, node) => text(shown(given(frame, earlier, node)))), `${name}, ${id}, ${column}`);
      }
    }
  }
}));

test("what coordinators did, and hints of each pair, are what the nodes gave", () => withPlanted(async (page, frame, earlier) => {
  await show(page, "consistency");
  const { rows: counters } = await tableOf(page, "what-coordinators-did-besides");
  assert.deepEqual(counters.map(([title]) => title), Object.keys(COUNTERS));
  for (const [title, ...cells] of counters) {
    assert.deepEqual(cells, frame.nodes.map((_, node) => { const { now, rate } = given(frame, earlier, node); return text(`${count(now(COUNTERS[title]))} +${figure(rate(COUNTERS[title]))}/s`); }), title);
  }
  const { head, rows } = await tableOf(page, "hints");
  const pairs = frame.nodes.flatMap((_, node) => [0, 1].map((peer) => ({ node, peer, waiting: given(frame, earlier, node).of("hints_pending", peer) }))).sort((a, b) => b.waiting - a.waiting);
  for (const [column, shown] of Object.entries(PAIRS)) {
    const at = head.indexOf(column);
    assert.deepEqual(rows.map((row) => row[at]), pairs.map(({ node, peer }) => text(shown((name) => given(frame, earlier, node).of(name, peer)))), column);
  }
}));

test("all figures are there as they are", () => withPlanted(async (page, frame) => {
  await show(page, "overview");
  await page.getByText("as it is").click();
  const shown = new Map(await page.locator("section[aria-labelledby=h-all-figures] tbody tr").evaluateAll((rows) => rows.map((row) => [row.querySelector("th").textContent, Array.from(row.querySelectorAll("data"), (cell) => Number(cell.value))])));
  const wanted = new Map();
  frame.nodes.forEach(({ stats }, node) => {
    for (const [name, metric] of Object.entries(stats.metrics)) {
      for (const sample of typeof metric === "number" ? [[metric]] : metric) {
        const labels = sample.slice(0, -1).map((label, index) => `${stats.labels[name][index]}="${stats.labels[name][index] === "peer" ? stats.peers[label] : label}"`);
        const id = labels.length ? `${name}{${labels.join(",")}}` : name;
        const values = wanted.get(id) ?? frame.nodes.map(() => 0);
        values[node] = sample.at(-1);
        wanted.set(id, values);
      }
    }
  });
  assert.ok(wanted.size > 90, `${wanted.size}`);
  assert.deepEqual(Array.from(shown).sort(), Array.from(wanted).sort());
}));

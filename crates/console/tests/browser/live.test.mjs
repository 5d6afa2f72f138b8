// The pages with real nodes: `kvorum dev`, and its console or one beside it. CONSOLE_TEST_KVORUM names the program.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createServer } from "node:net";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, open, show, until } from "./tools.mjs";

const KVORUM = process.env.CONSOLE_TEST_KVORUM;
const CONSOLE = process.env.CONSOLE_TEST_CONSOLE ?? KVORUM;
/** Pages from the disk, where those in the program are older. */
const ASSETS = process.env.CONSOLE_TEST_ASSETS ? ["--assets", process.env.CONSOLE_TEST_ASSETS] : [];
/** What reaches nodes as a setting is not given on, such as what cargo sets for tests. */
const ENVIRONMENT = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("KVORUM_")));
const LIMIT = { timeout: 240000 };
const SILENT_MS_MAX = 2000;
const URL_OF_CONSOLE = /http:\/\/127\.0\.0\.1:\d+\/#\S+/;

const dir = mkdtempSync(join(tmpdir(), "kvorum-live-"));
const started = [];
let browser;
let view;
let address;
let nodes;

/** Starts the program and gives what it has said when this is in it. */
async function start(program, argumentsOf, awaited) {
  const child = spawn(program, argumentsOf, { stdio: ["pipe", "pipe", "pipe"], env: ENVIRONMENT });
  started.push(child);
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes) => { said = (said + bytes).slice(-20000); });
  await until(`${argumentsOf[0]} says ${awaited}`, () => {
    assert.equal(child.exitCode, null, said);
    return awaited.test(said);
  }, 60000);
  return () => said;
}

/** The first of several free ports one after the other. */
async function freePorts(many) {
  for (let base = 20000 + Math.floor(Math.random() * 8000); ; base += 17) {
    const servers = [];
    try {
      for (let port = base; port < base + many; port += 1) {
        const server = createServer();
        await new Promise((resolve, reject) => server.once("error", reject).listen(port, "127.0.0.1", resolve));
        servers.push(server);
      }
      return base;
    } catch {
      // Taken: try others.
    } finally {
      await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    }
  }
}

const order = (...words) => {
  const { status, stderr } = spawnSync(KVORUM, ["dev", ...words, "--data-dir", dir], { encoding: "utf8", env: ENVIRONMENT });
  assert.equal(status, 0, stderr);
};

before(async () => {
  const base = await freePorts(3);
  nodes = [0, 1, 2].map((index) => `http://127.0.0.1:${base + index}`);
  const said = await start(KVORUM, ["dev", "--nodes", "3", "--base-port", String(base), "--data-dir", dir], /nodes are ready/);
  // The console of `dev`, or one beside it where this `dev` has none.
  await until("dev is done with what it prints", () => /Ctrl-C/.test(said()));
  address = URL_OF_CONSOLE.exec(said())?.[0];
  if (!address) address = URL_OF_CONSOLE.exec((await start(CONSOLE, ["console", "--url", nodes.join(","), "--level", "write", "--listen", "127.0.0.1:0", ...ASSETS], URL_OF_CONSOLE))())?.[0];
  browser = await launch();
  view = await open(browser, address);
  await view.page.locator(".verdict.good").waitFor({ timeout: 20000 });
}, LIMIT);

after(async () => {
  await browser?.close();
  for (const child of started.reverse()) {
    child.kill("SIGINT");
    await until("it ends", () => child.exitCode !== null || child.signalCode !== null, 20000);
  }
  rmSync(dir, { recursive: true, force: true });
}, LIMIT);

/** What `kvorum` prints to stderr with `--trace`. */
function traced(...words) {
  const { status, stderr } = spawnSync(KVORUM, [...words, "--trace", "--url", nodes[0]], { encoding: "utf8", input: "", env: ENVIRONMENT });
  assert.equal(status, 0, stderr);
  return stderr;
}

/** Node, outcome and version of each replica in a receipt. */
const replicas = (text) => Array.from(text.matchAll(/(http:\/\/[\d.:]+)=([a-z-]+)(?:@([0-9a-f-]+))?/g), ([, node, outcome, version]) => ({ node, outcome, version }));

test("a PUT from the page has the receipt that the command line prints", LIMIT, async () => {
  const { page } = view;
  await show(page, "data");
  await page.getByLabel("Key", { exact: true }).fill("seen");
  await page.getByLabel("ack").fill("3");
  await page.getByText("A value to put").click();
  await page.getByLabel("Value", { exact: true }).fill("from the page");
  await page.getByRole("button", { name: "Put", exact: true }).click();
  await page.getByText("by the 3rd answer").waitFor();
  const ofPage = replicas(await page.locator(".raw-receipt").textContent());
  const ofCommand = replicas(traced("put", "seen", "from a terminal", "--ack", "3"));
  assert.equal(ofPage.length, 3);
  assert.deepEqual(ofPage.map(({ node, outcome }) => [node, outcome]), ofCommand.map(({ node, outcome }) => [node, outcome]));
  assert.equal(new Set(ofPage.map(({ version }) => version)).size, 1);
  await page.getByRole("button", { name: "Get", exact: true }).click();
  await page.locator("pre.value").filter({ hasText: "from a terminal" }).waitFor();
  assert.equal((await page.locator(".receipt li").allInnerTexts()).filter((text) => text.includes(ofCommand[0].version)).length >= 2, true);
});

test("numbers equal those of the nodes", LIMIT, async () => {
  const { page } = view;
  // It writes all the time: nothing would stand still.
  await show(page, "lab");
  await page.getByRole("button", { name: "Stop the canary" }).click();
  await page.getByRole("button", { name: "Start the canary" }).waitFor();
  await show(page, "overview");
  await page.getByText("as it is").click();
  // Those that stand still between two looks, else one would compare two moments.
  const still = ["store_sequence", "commit_records_total", "coordinator_operations", "node_voting_partitions", "store_disk_total_bytes", "store_cache_capacity_bytes", "hints_queue_bytes", "store_records"];
  for (const name of still) {
    await until(`${name} is equal`, async () => {
      const truth = await Promise.all(nodes.map(async (url) => (await (await fetch(`${url}/v0/stats`)).json()).metrics[name] ?? 0));
      const row = page.locator("tr").filter({ has: page.locator(`th code:text-is("${name}")`) });
      if ((await row.count()) === 0) return truth.every((value) => value === 0);
      const shown = await row.locator("data").evaluateAll((cells) => cells.map((cell) => Number(cell.value)));
      return JSON.stringify(shown) === JSON.stringify(truth);
    }, 10000);
  }
  await show(page, "lab");
  await page.getByRole("button", { name: "Start the canary" }).click();
  await page.getByRole("button", { name: "Stop the canary" }).waitFor();
});

test("a paused node shows as silent within two seconds, and hints for it rise and fall", LIMIT, async (t) => {
  const { page } = view;
  await show(page, "overview");
  const row = page.locator("section[aria-labelledby=h-nodes] tbody tr").nth(2);
  const hints = async () => Number((await row.locator("td").nth(4).innerText()).replaceAll(",", ""));
  // On a machine with other work one time in three is enough.
  const times = [];
  for (let attempt = 0; attempt < 3 && times.every((ms) => ms > SILENT_MS_MAX); attempt += 1) {
    if (attempt > 0) {
      order("resume", "3");
      await row.locator(".state.good").filter({ hasText: "up" }).waitFor({ timeout: 20000 });
    }
    order("pause", "3");
    const begun = Date.now();
    // Looked at every 20 ms: `waitFor` looks every half second.
    await until("it is silent", async () => (await row.locator(".state.bad").filter({ hasText: "silent" }).count()) > 0, 20000);
    times.push(Date.now() - begun);
  }
  t.diagnostic(`silent after ${times.join(", ")} ms`);
  assert.ok(times.some((ms) => ms <= SILENT_MS_MAX), `${times} ms`);
  await page.locator(".verdict").getByText("one more loss stops them").waitFor();
  await Promise.all(Array.from({ length: 200 }, (_, index) => fetch(`${nodes[0]}/v0/entity?id=hint-${index}`, { method: "PUT", body: "x" })));
  await until("hints rise", async () => (await hints()) >= 200, 20000);
  order("resume", "3");
  await until("hints fall", async () => (await hints()) === 0, 60000);
  await page.locator(".verdict.good").waitFor({ timeout: 20000 });
});

test("the lab kills and starts a node, and a quick knee ends in a report", LIMIT, async (t) => {
  const { page } = view;
  await show(page, "lab");
  if (await page.getByText("--level lab").count()) return t.skip("this `dev` has no console");
  // The canary runs while a page is open.
  await page.getByText("acknowledged writes lost: 0, stale reads: 0").waitFor({ timeout: 20000 });
  await page.getByRole("button", { name: "Kill node c" }).click();
  await page.locator(".failures li").nth(2).getByText("dead").waitFor({ timeout: 10000 });
  await page.getByRole("button", { name: "Start node c" }).click();
  await page.locator(".failures li").nth(2).getByText("running").waitFor({ timeout: 20000 });
  await page.getByRole("button", { name: "Stop the canary" }).click();
  await page.getByLabel("Each probe lasts").fill("1s");
  await page.getByLabel("Warm-up").fill("0s");
  await page.getByLabel("Keys", { exact: true }).fill("1000");
  // Any machine holds this, whatever else it does.
  await page.getByLabel("What must hold").fill("p99=5s");
  await page.getByRole("button", { name: "Start", exact: true }).click();
  const job = page.locator("section[aria-labelledby=h-jobs]");
  await until("the knee ends", async () => (await job.locator("tbody tr .state").first().innerText()).match(/done|failed/), 160000, 500);
  assert.match(await job.locator("tbody tr").first().innerText(), /done/);
  await job.getByRole("button", { name: /^Open/ }).first().click();
  await page.frameLocator("iframe.report").locator("h1").filter({ hasText: /./ }).first().waitFor();
});

test("ten pages at once show the same cluster, and it serves on when they are closed", LIMIT, async () => {
  const pages = await Promise.all(Array.from({ length: 10 }, () => open(browser, address)));
  for (const { page, faults } of pages) {
    await show(page, "storage");
    await page.locator("section[aria-labelledby=h-engine] tbody tr").nth(2).locator(".state.good").waitFor({ timeout: 20000 });
    assert.deepEqual(faults, []);
  }
  await Promise.all(pages.map((one) => one.close()));
  const { page } = view;
  await show(page, "overview");
  const at = await page.locator("section[aria-labelledby=h-nodes] tbody tr").first().innerText();
  await until("the page that is left goes on", async () => (await page.locator("section[aria-labelledby=h-nodes] tbody tr").first().innerText()) !== at);
});

test("with all this the page did nothing that it may not", LIMIT, () => {
  assert.deepEqual(view.faults.filter((fault) => !/Failed to load resource/.test(fault)), []);
});

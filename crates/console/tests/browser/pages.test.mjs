// The pages in a real browser, with recorded frames.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { TOKEN } from "./server.mjs";
import { PAGES, launch, recorded, require, show, until } from "./tools.mjs";
import { difference, small } from "./pictures.mjs";

const PICTURES = new URL("pictures/", import.meta.url);
const RECORD = process.env.RECORD === "1";
const DIFFERENT_MAX = 0.003;
const WIDTHS = [1280, 360];
const THEMES = ["light", "dark"];
/** Pages with something to say of a node that is silent; the others show what is well. */
const scene = (page) => (["overview", "cluster", "consistency", "load"].includes(page) ? "paused" : "healthy");

let browser;
before(async () => { browser = await launch(); });
after(() => browser.close());

/** A still page: time stands after the eleventh second. */
function still(options, run) {
  return recorded(browser, { paceMs: 0, ...options }, async ({ page, faults }, server) => {
    await run(page, server);
    assert.deepEqual(faults, []);
  });
}

/** Brings a page to where all that it asks for is there. */
async function settled(page, name, server) {
  await show(page, name);
  const needs = { overview: "history", consistency: "cluster", storage: "history", load: "slow" }[name];
  if (needs) await until(`${name} asked for ${needs}`, () => server.requests.some((line) => line.includes(`/${needs}`)));
  if (name === "data") {
    await page.getByLabel("Key", { exact: true }).fill("j");
    await page.getByRole("button", { name: /side by side/ }).click();
    await page.getByRole("button", { name: "List" }).click();
    await page.getByRole("heading", { name: "Read at 3/3" }).waitFor();
    await page.locator("table .key-text").first().waitFor();
  }
  if (name === "load") await page.locator(".heat").waitFor();
  await page.evaluate(() => document.fonts.ready);
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
}

for (const name of PAGES) {
  for (const theme of THEMES) {
    for (const width of WIDTHS) {
      test(`the page ${name} looks as it did, ${theme}, ${width} px`, () => still({ scene: scene(name), theme, width }, async (page, server) => {
        await page.evaluate(() => { performance.now = () => 0; });
        await settled(page, name, server);
        const png = await page.screenshot({ fullPage: true, animations: "disabled", caret: "hide" });
        const file = new URL(`${name}-${theme}-${width}.png`, PICTURES);
        if (RECORD) {
          mkdirSync(PICTURES, { recursive: true });
          return writeFileSync(file, small(png));
        }
        const { share, why, picture } = await difference(readFileSync(file), png);
        if (share > DIFFERENT_MAX && process.env.CONSOLE_TEST_PICTURES) {
          writeFileSync(`${process.env.CONSOLE_TEST_PICTURES}/${name}-${theme}-${width}.png`, png);
          writeFileSync(`${process.env.CONSOLE_TEST_PICTURES}/${name}-${theme}-${width}.diff.png`, picture);
        }
        assert.ok(share <= DIFFERENT_MAX, `${why}, ${(share * 100).toFixed(2)} %; set CONSOLE_TEST_PICTURES to a directory to see them, RECORD=1 to keep the new one`);
      }));
    }
  }
}

for (const theme of THEMES) {
  test(`axe finds nothing on any page, ${theme}`, () => still({ scene: "paused", theme }, async (page, server) => {
    const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
    for (const name of PAGES) {
      server.scene = scene(name);
      await settled(page, name, server);
      await page.evaluate(() => { for (const details of document.querySelectorAll("details")) details.open = true; });
      // Through the debugger, which the page's policy does not bind.
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      assert.deepEqual(violations.map((one) => `${name}: ${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`), []);
    }
  }));
}

for (const [what, options] of [["360 px", { width: 360 }], ["200 % of 1,280 px", { width: 640, height: 400, scale: 2 }], ["320 px", { width: 320 }]]) {
  test(`no page scrolls sideways at ${what}`, () => still({ scene: "paused", ...options }, async (page, server) => {
    for (const name of PAGES) {
      await settled(page, name, server);
      await page.evaluate(() => { for (const details of document.querySelectorAll("details")) details.open = true; });
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), name);
    }
  }));
}

test("the keyboard alone reaches content, pages and buttons, and where it is can be seen", () => still({}, async (page) => {
  const focused = () => page.evaluate(() => document.activeElement?.textContent?.trim().slice(0, 40) ?? "");
  await page.locator(".verdict").waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Skip to the content");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineWidth);
  assert.equal(outline, "3px");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
  for (let presses = 0; presses < 12 && (await focused()) !== "Data"; presses += 1) await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Enter");
  await page.getByLabel("Key", { exact: true }).focus();
  await page.keyboard.type("a");
  await page.keyboard.press("Enter");
  await page.locator("pre.value").filter({ hasText: "hello" }).waitFor();
}));

test("nothing moves for who does not want it, and the colours can be chosen", () => still({}, async (page) => {
  await page.locator(".bar > span").first().waitFor({ state: "attached" });
  assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector(".bar > span")).transitionDuration), "0s");
  await page.getByLabel("Colours").selectOption("dark");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  await page.reload();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
}));

test("keys and values are shown, never run or obeyed", () => still({}, async (page, server) => {
  const evil = '<img src=x onerror=alert(1)>"\n\u202egnp';
  server.state.values.set(evil, { type: "text/html", base64: Buffer.from("<script>alert(1)</script>\u202e\0").toString("base64") });
  await show(page, "data");
  await page.getByLabel("Key", { exact: true }).evaluate((input, value) => { input.value = value; input.dispatchEvent(new Event("input", { bubbles: true })); }, Buffer.from(evil).toString("base64"));
  await page.getByLabel("is base64").check();
  await page.getByRole("button", { name: "Get" }).click();
  await page.getByText("00000000  3c 73 63").waitFor();
  await page.locator("label").filter({ hasText: /^text$/ }).last().click();
  assert.match(await page.locator("pre.value").innerText(), /<script>alert\(1\)<\/script>\\u\{202e\}\\0/);
  await page.getByRole("button", { name: "List" }).click();
  await page.getByText('quo"te\\nnew\\u{202e}line').waitFor();
  assert.equal(await page.locator("main img, main script").count(), 0);
}));

test("a value of 8 MiB is shown in part and does not hold the page up", () => still({}, async (page, server) => {
  server.state.values.set("large", { type: "text/plain", base64: Buffer.alloc(8 << 20, "kvorum ").toString("base64") });
  await show(page, "data");
  await page.getByLabel("Key", { exact: true }).fill("large");
  await page.getByRole("button", { name: "Get", exact: true }).click();
  await page.getByText("The first 64 KiB of 8 MiB").waitFor();
  assert.ok((await page.locator("pre.value").innerText()).length <= 65536);
}));

test("a file that is too large is not read, and the page says what fits", () => still({}, async (page, server) => {
  await show(page, "data");
  await page.getByLabel("Key", { exact: true }).fill("film");
  await page.getByText("A value to put").click();
  await page.getByLabel("Or a file").setInputFiles({ name: "film", mimeType: "video/mp4", buffer: Buffer.alloc((16 << 20) + 1) });
  await page.getByRole("button", { name: "Put", exact: true }).click();
  await page.getByText("values of up to 16 MiB").waitFor();
  assert.ok(!server.requests.some((line) => line.startsWith("PUT")), server.requests);
}));

test("a receipt shows who was needed, who was late and which version", () => still({}, async (page) => {
  await show(page, "data");
  await page.getByLabel("Key", { exact: true }).fill("j");
  await page.getByRole("button", { name: "Get", exact: true }).click();
  const rows = page.locator(".receipt li");
  await rows.first().waitFor();
  const texts = (await rows.allInnerTexts()).map((text) => text.replace(/\s+/g, " "));
  assert.match(texts[0], /needed, 1st 210 µs record gave the record 01a22a66b6020000-b94d5f7f/);
  assert.match(texts[1], /needed, 2nd 1.12 ms version/);
  assert.match(texts[2], /late, or not asked – no-answer/);
  await page.getByText("Decided after 1.12 ms, by the 2nd answer").waitFor();
  assert.equal(await page.locator(".receipt-bar .decided").count(), 3);
}));

test("buttons that the level does not allow are off, and it is said why", () => still({ level: "read" }, async (page) => {
  await show(page, "data");
  assert.ok(await page.getByRole("button", { name: "Put" }).isDisabled());
  await page.getByText("--level write").waitFor();
  await show(page, "lab");
  await page.getByText("--level lab").first().waitFor();
  assert.equal(await page.getByRole("button", { name: /Kill/ }).count(), 0);
}));

test("what is no node of this cluster, or does not say, is named in words on each page", () => still({}, async (page, server) => {
  const states = [["unauthorized", "--key-file"], ["foreign", "belongs to another cluster"], ["old", "without /v0/stats"], ["not-kvorum", "is not kvorum"], ["silent", "is silent"]];
  const plain = server.frame;
  for (const [state, words] of states) {
    server.frame = (second) => {
      const frame = plain(second);
      Object.assign(frame.nodes[2], { state, why: `<b>${state}</b>`, stats: null, series: {} });
      return frame;
    };
    for (const stream of server.streams) stream.end();
    await show(page, "overview");
    await page.locator(".verdict").getByText(words).first().waitFor();
    for (const name of PAGES) await show(page, name);
  }
  // A console that was started before the cluster.
  server.frame = (second) => {
    const frame = plain(second);
    for (const node of frame.nodes) Object.assign(node, { state: "silent", why: "refused", stats: null, series: {} });
    return frame;
  };
  for (const stream of server.streams) stream.end();
  await show(page, "overview");
  await page.locator(".verdict.bad").getByText("fail: too few replicas answer").first().waitFor();
  for (const name of PAGES) await show(page, name);
}));

test("one that is seen by one side only is marked", () => still({}, async (page, server) => {
  const plain = server.frame;
  server.frame = (second) => {
    const frame = plain(second);
    const { stats } = frame.nodes[0];
    stats.metrics.peer_connections = stats.metrics.peer_connections.map(([peer, links]) => [peer, peer === 1 ? 0 : links]);
    return frame;
  };
  for (const stream of server.streams) stream.end();
  await show(page, "cluster");
  await page.locator(".matrix").getByText("one-sided: is seen by it").waitFor();
  await page.locator(".matrix").getByText("one-sided: not seen back").waitFor();
}));

test("the token leaves the URL, and a wrong one is said", () => recorded(browser, { paceMs: 0, token: "wrong" }, async ({ page }) => {
  await page.getByRole("alert").filter({ hasText: "the part after # is the token" }).waitFor();
  assert.doesNotMatch(page.url(), /wrong/);
  // The page takes the new token by itself.
  await page.evaluate((token) => { location.hash = token; }, TOKEN);
  await page.locator(".verdict").waitFor();
  await page.reload();
  await page.locator(".verdict").waitFor();
  assert.doesNotMatch(page.url(), new RegExp(TOKEN));
}));

// Rules for the pages' files that need no browser: types, sizes, what may be in them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { spawnSync } from "node:child_process";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ASSETS, served } from "./server.mjs";
import { require } from "./tools.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const BUDGET_BYTES = 60000;
const FILE_LINES_MAX = 600;
const FUNCTION_LINES_MAX = 70;
const VENDORED = ["preact.js"];

const assets = readdirSync(ASSETS);
const read = (name) => readFileSync(new URL(name, ASSETS));
const own = assets.filter((name) => name.endsWith(".js") && !VENDORED.includes(name));

test("types hold: tsc with checkJs and strict", () => {
  const dir = mkdtempSync(join(tmpdir(), "kvorum-types-"));
  try {
    for (const name of own) cpSync(new URL(name, ASSETS), join(dir, name));
    for (const name of ["types/shapes.d.ts", "types/preact.d.ts", "tsconfig.json"]) cpSync(join(HERE, name), join(dir, name.split("/").pop()));
    const { status, stdout } = spawnSync(process.execPath, [require.resolve("typescript/bin/tsc"), "-p", dir], { encoding: "utf8" });
    assert.equal(status, 0, stdout);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test("all that the pages load is at most 60 KB, compressed", async (t) => {
  const loaded = assets.filter((name) => /\.(html|js|css)$/.test(name));
  const sizes = await Promise.all(loaded.map(async (name) => ({ name, size: (await served(name)).length })));
  const total = sizes.reduce((sum, { size }) => sum + size, 0);
  t.diagnostic(`${total} bytes: ${sizes.sort((a, b) => b.size - a.size).map(({ name, size }) => `${name} ${size}`).join(", ")}`);
  assert.ok(total <= BUDGET_BYTES, `${total} bytes are over ${BUDGET_BYTES}`);
});

test("files stay under 600 lines and functions under 70", () => {
  const ts = require("typescript");
  const scripts = readdirSync(HERE).filter((name) => name.endsWith(".mjs")).map((name) => [name, readFileSync(join(HERE, name), "utf8")]);
  for (const [name, text] of [...own.map((asset) => [asset, read(asset).toString()]), ...scripts]) {
    assert.ok(text.split("\n").length <= FILE_LINES_MAX, `${name} is too long`);
    const source = ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true);
    const visit = (node) => {
      if (ts.isFunctionLike(node) && node.body) {
        const line = (at) => source.getLineAndCharacterOfPosition(at).line;
        const lines = line(node.end) - line(node.getStart()) + 1;
        assert.ok(lines <= FUNCTION_LINES_MAX, `${name}:${line(node.getStart()) + 1}: ${lines} lines`);
      }
      ts.forEachChild(node, visit);
    };
    visit(source);
  }
});

test("no script or style is inline, and no value becomes markup", () => {
  const html = read("index.html").toString();
  assert.doesNotMatch(html, /\son\w+=|\sstyle=|<style/i);
  for (const script of html.matchAll(/<script([^>]*)>([^<]*)/g)) assert.ok(/src=/.test(script[1]) && script[2] === "", script[0]);
  for (const name of own) assert.doesNotMatch(read(name).toString(), /innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|document\.write|\beval\(|new Function|\sstyle=/, name);
});

test("what is left out of modules is comments only", () => {
  // A string with such a mark would be cut.
  for (const name of own) {
    for (const line of read(name).toString().split("\n")) {
      const outside = line.replace(/\/\*\*.*?\*\//g, "");
      assert.ok(!outside.includes("/**") || outside.trim().startsWith("/**"), `${name}: ${line}`);
    }
  }
});

test("what others wrote has its licence beside it, and modules come from no named registry", () => {
  for (const name of ["htm.LICENSE", "preact.LICENSE"]) assert.ok(assets.includes(name), name);
  const lock = readFileSync(join(HERE, "package-lock.json"), "utf8");
  assert.doesNotMatch(lock, /https?:|"resolved"/);
  const { devDependencies } = JSON.parse(readFileSync(join(HERE, "package.json"), "utf8"));
  for (const version of Object.values(devDependencies)) assert.match(version, /^\d+\.\d+\.\d+$/);
});
